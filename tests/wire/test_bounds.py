"""No request can make the reader reserve memory for what is not there, and unknown tagged fields are passed over."""

import struct
from io import BytesIO
from random import Random

import pytest
from kio.serial import entity_writer

from oncelog.server.api import apis
from oncelog.wire.bounds import MOST_STRING_BYTES
from oncelog.wire.frames import MOST_TAGGED_FIELDS, MalformedFrame, skip_tagged_fields, write_uvarint
from oncelog.wire.messages import schema
from tests.fuzz.entities import Instances
from tests.raw import message

MOST = 2**31 - 1
COMPACT_MOST = b"\xff\xff\xff\xff\x0f"


@pytest.mark.parametrize(
    ("name", "version", "data"),
    [
        ("describe_groups", 0, struct.pack(">i", MOST) + b"\x00\x01g"),
        ("describe_groups", 5, COMPACT_MOST + b"\x02g"),
        ("list_offsets", 1, struct.pack(">ii", -1, MOST)),
        ("list_offsets", 1, struct.pack(">ii", -1, 1) + b"\x00\x01t" + struct.pack(">i", MOST)),
        ("list_offsets", 6, struct.pack(">ib", -1, 0) + COMPACT_MOST),
        ("describe_groups", 5, b"\x01\x00" + COMPACT_MOST),
    ],
)
def test_an_array_that_claims_more_than_there_is_ends_the_reading(name: str, version: int, data: bytes) -> None:
    with pytest.raises(MalformedFrame):
        schema(name, version).read(data, 0)


@pytest.mark.parametrize("more", [0, 1])
def test_a_string_has_at_most_what_kafka_allows(more: int) -> None:
    name = b"g" * (MOST_STRING_BYTES + more)
    data = b"\x02" + write_uvarint(len(name) + 1) + name + b"\x00\x00"
    if more:
        with pytest.raises(MalformedFrame, match="32767"):
            schema("describe_groups", 5).read(data, 0)
    else:
        assert schema("describe_groups", 5).read(data, 0)[0].groups == (name.decode(),)


@pytest.mark.parametrize("more", [0, 1])
def test_tagged_fields_are_counted_over_the_whole_request(more: int) -> None:
    """Each takes a step of the reader, and two bytes: millions of them fit into a request."""
    in_a_topic = MOST_TAGGED_FIELDS // 2
    topic = b"\x02t\x01" + write_uvarint(in_a_topic) + b"\x09\x00" * in_a_topic
    in_the_request = MOST_TAGGED_FIELDS - 2 * in_a_topic + more
    data = b"\x03" + topic * 2 + write_uvarint(in_the_request) + b"\x09\x00" * in_the_request
    if more:
        with pytest.raises(MalformedFrame, match="tagged fields"):
            schema("describe_producers", 0).read(data, 0)
    else:
        assert len(schema("describe_producers", 0).read(data, 0)[0].topics) == 2


def test_tagged_fields_of_a_header_are_counted_before_they_are_read() -> None:
    fields = write_uvarint(MOST_TAGGED_FIELDS + 1)  # and no field behind it
    with pytest.raises(MalformedFrame, match="at most"):
        skip_tagged_fields(fields, 0, len(fields))


def test_tagged_fields_of_newer_clients_are_passed_over() -> None:
    group_and_no_flag = b"\x02\x02g\x00"
    request, _ = schema("describe_groups", 5).read(group_and_no_flag + b"\x02\x07\x03abc\x09\x00", 0)
    assert request.groups == ("g",)


def test_known_tagged_fields_are_kept_beside_unknown_ones() -> None:
    plain = struct.pack(">iiiibii", -1, 500, 1, 1 << 20, 0, 0, -1) + b"\x01\x01\x01"
    tags = b"\x02" + b"\x00\x03\x02xy"[:2] + b"\x03ab" + b"\x63\x01z"
    request, _ = schema("fetch", 12).read(plain + tags, 0)
    assert request.cluster_id == "ab"


def test_every_request_that_kio_writes_passes_unchanged() -> None:
    instances = Instances(Random(3))
    for api in apis().values():
        for version in range(api.versions[0], api.versions[1] + 1):
            kind = message(api.name, version)
            write = entity_writer(kind.request)
            for _ in range(3):
                out = BytesIO()
                write(out, instances.of(kind.request))
                body = out.getvalue()
                assert schema(api.name, version).bounds.checked(body) == body, (api.name, version)
