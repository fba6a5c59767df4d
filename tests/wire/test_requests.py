"""The client's side of every message: written as kio reads it, read as kio writes it, and bounded before that."""

from dataclasses import fields, is_dataclass
from datetime import timedelta
from io import BytesIO
from typing import Any

import pytest
from kio.schema.metadata.v12.response import MetadataResponse
from kio.schema.types import BrokerId
from kio.serial import entity_reader, entity_writer
from kio.static.primitive import i32Timedelta

from oncelog.wire.frames import MalformedFrame
from oncelog.wire.own import LEASE_PID_KEY
from oncelog.wire.requests import api_key, known_versions, request_schema
from tests.raw.entities import make

FLAGS = {
    "allow_auto_topic_creation": False,
    "include_cluster_authorized_operations": False,
    "include_topic_authorized_operations": False,
}
ANSWER = MetadataResponse(
    throttle_time=i32Timedelta.parse(timedelta(0)),
    brokers=(),
    cluster_id="c",
    controller_id=BrokerId(1),
    topics=(),
)


def answer_frame(entity: Any, correlation_id: int = 7) -> bytes:
    out = BytesIO()
    header = type(entity).__header_schema__
    entity_writer(header)(out, header(correlation_id=correlation_id))
    entity_writer(type(entity))(out, entity)
    return out.getvalue()


@pytest.mark.parametrize("version", [0, 9, 13])
@pytest.mark.parametrize("client_id", [None, "", "me"])
def test_a_request_is_what_kio_reads(version: int, client_id: str | None) -> None:
    spoken = request_schema("metadata", version)
    topic = spoken.new("MetadataRequestTopic", name="t", topic_id=None)
    request = spoken.new("MetadataRequest", topics=(topic,), **FLAGS)

    frame = spoken.encode(request, 5, client_id)

    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    header, size = entity_reader(spoken.request_type.__header_schema__)(frame, 4)
    assert (header.request_api_key, header.request_api_version) == (3, version)
    assert (header.correlation_id, header.client_id) == (5, client_id)
    assert entity_reader(spoken.request_type)(frame, 4 + size) == (request, len(frame) - 4 - size)


def test_fields_that_a_version_lacks_are_dropped() -> None:
    spoken = request_schema("metadata", 1)
    assert spoken.new("MetadataRequest", topics=None, **FLAGS) == spoken.new("MetadataRequest", topics=None)


def test_an_answer_is_read_from_any_kind_of_buffer() -> None:
    frame = answer_frame(ANSWER)
    for kind in (bytes, bytearray, memoryview):
        assert request_schema("metadata", 12).read(kind(frame)) == ANSWER


def test_an_answer_that_claims_more_elements_than_bytes_is_refused_before_memory_is_taken_for_them() -> None:
    frame = b"\0\0\0\7\0" + b"\0\0\0\0" + b"\xff\xff\xff\xff\x0f"
    with pytest.raises(MalformedFrame, match="an array of 4294967294 elements"):
        request_schema("metadata", 12).read(frame)


def test_a_null_where_an_array_must_be_is_refused() -> None:
    with pytest.raises(MalformedFrame, match="brokers is null"):
        request_schema("metadata", 12).read(b"\0\0\0\7\0" + b"\0\0\0\0" + b"\0" + b"\0" + b"\0\0\0\1" + b"\1" + b"\0")


def test_tagged_fields_of_newer_brokers_are_passed_over() -> None:
    frame = answer_frame(ANSWER)
    assert frame.endswith(b"\0")
    assert request_schema("metadata", 12).read(frame[:-1] + b"\x01\x63\x02hi") == ANSWER


def test_the_answer_to_api_versions_has_the_oldest_header_in_every_version() -> None:
    spoken = request_schema("api_versions", 4)
    assert spoken.has_flexible_request_header
    assert not spoken.has_flexible_response_header


def test_our_own_messages_are_spoken_too() -> None:
    assert (known_versions("lease_pid"), api_key("lease_pid")) == ((0, 0), LEASE_PID_KEY)
    assert request_schema("lease_pid", 0).key == LEASE_PID_KEY
    assert known_versions("metadata") == (0, 13)


def codes_of(entity: Any) -> list[int]:
    """Every error code in an answer, wherever it stands."""
    found: list[int] = []
    for field in fields(entity):
        value = getattr(entity, field.name)
        if field.name == "error_code":
            found.append(int(value))
        for each in value if isinstance(value, tuple) else (value,):
            if is_dataclass(each):
                found += codes_of(each)
    return found


PARTITION = {"partition_index": 1, "error_code": 42}


@pytest.mark.parametrize(
    ("name", "version", "said"),
    [
        ("heartbeat", 4, {"error_code": 42}),
        ("list_offsets", 7, {"topics": [{"name": "t", "partitions": [PARTITION]}]}),
        ("offset_fetch", 8, {"groups": [{"group_id": "g", "topics": [{"name": "t", "partitions": [PARTITION]}]}]}),
        ("find_coordinator", 4, {"coordinators": [{"key": "k", "error_code": 42}]}),
    ],
)
def test_an_error_code_of_a_newer_broker_is_read_as_its_number(name: str, version: int, said: dict[str, Any]) -> None:
    spoken = request_schema(name, version)
    frame = answer_frame(make(spoken.response_type, said))
    known = codes_of(spoken.read(frame))
    newer = codes_of(spoken.read(frame.replace(b"\0\x2a", (999).to_bytes(2, "big"))))
    assert 42 in known and newer == [999 if code == 42 else code for code in known]
    assert codes_of(spoken.read(frame)) == known
