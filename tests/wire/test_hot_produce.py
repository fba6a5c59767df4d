"""Produce without schemas says the same as kio's reader and writer, in every version."""

from datetime import UTC, datetime, timedelta
from io import BytesIO
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode
from kio.serial import entity_reader, entity_writer

from oncelog.wire.frames import MalformedFrame
from oncelog.wire.hot import (
    MOST_ENTRIES,
    NO_RECORDS,
    PRODUCE_TOPIC_IDS,
    Produced,
    encode_produced,
    pack_produced_one,
    read_produce,
)
from tests.depth import scaled
from tests.raw import message

VERSIONS = range(3, 14)
ENTITIES = {version: message("produce", version) for version in VERSIONS}

names = st.text("abcXYZ019._-", min_size=1, max_size=200)
ids = st.uuids()
indexes = st.integers(-(2**31), 2**31 - 1)
offsets = st.integers(-1, 2**63 - 1)
texts = st.none() | st.text(max_size=300)


def request_bytes(version: int, transactional_id: str | None, acks: int, timeout_ms: int, topics: Any) -> bytes:
    module = __import__(f"kio.schema.produce.v{version}.request", fromlist=["x"])
    named = "topic_id" if version >= PRODUCE_TOPIC_IDS else "name"
    entity = module.ProduceRequest(
        transactional_id=transactional_id,
        acks=acks,
        timeout=timedelta(milliseconds=timeout_ms),
        topic_data=tuple(
            module.TopicProduceData(
                **{named: name},
                partition_data=tuple(module.PartitionProduceData(index=i, records=records) for i, records in parts),
            )
            for name, parts in topics
        ),
    )
    out = BytesIO()
    entity_writer(module.ProduceRequest)(out, entity)
    return out.getvalue()


def topic_lists(version: int) -> st.SearchStrategy[Any]:
    parts = st.lists(st.tuples(indexes, st.none() | st.binary(max_size=300)), max_size=4)
    key = ids if version >= PRODUCE_TOPIC_IDS else names
    return st.lists(st.tuples(key, parts), max_size=4)


@pytest.mark.parametrize("version", VERSIONS)
@settings(max_examples=scaled(15))
@given(data=st.data())
def test_reads_what_kio_writes(version: int, data: st.DataObject) -> None:
    topics = data.draw(topic_lists(version))
    transactional_id = data.draw(st.none() | st.text(max_size=200))
    acks, timeout_ms = data.draw(st.integers(-1, 1)), data.draw(st.integers(0, 2**31 - 1))
    body = request_bytes(version, transactional_id, acks, timeout_ms, topics)
    behind = data.draw(st.binary(max_size=20))
    buffer = bytearray(b"before" + body + behind)

    request = read_produce(buffer, 6, 6 + len(body), version)

    assert (request.transactional_id, request.acks, request.timeout_ms) == (transactional_id, acks, timeout_ms)
    found = [
        (
            UUID(bytes=name) if version >= PRODUCE_TOPIC_IDS else name.decode(),
            [(index, None if stop == NO_RECORDS else bytes(buffer[start:stop])) for index, start, stop in parts],
        )
        for name, parts in request.topics
    ]
    assert found == topics


@pytest.mark.parametrize("version", VERSIONS)
def test_every_truncation_is_malformed(version: int) -> None:
    topic: Any = UUID(int=7) if version >= PRODUCE_TOPIC_IDS else "topic"
    body = request_bytes(version, "id", -1, 5, [(topic, [(0, b"records"), (1, None)])])
    for size in range(len(body)):
        with pytest.raises(MalformedFrame):
            read_produce(bytearray(body[:size] + b"\x00" * 64), 0, size, version)


@pytest.mark.parametrize("version", [min(VERSIONS), max(VERSIONS)])
def test_a_request_names_no_more_than_is_answered_in_time(version: int) -> None:
    topic: Any = UUID(int=7) if version >= PRODUCE_TOPIC_IDS else "topic"
    for count in (MOST_ENTRIES - 1, MOST_ENTRIES):  # beside the topic
        body = request_bytes(version, None, -1, 5, [(topic, [(index, None) for index in range(count)])])
        if count < MOST_ENTRIES:
            assert len(read_produce(bytearray(body), 0, len(body), version).topics[0][1]) == count
        else:
            with pytest.raises(MalformedFrame, match=f"more than {MOST_ENTRIES} topics and partitions"):
                read_produce(bytearray(body), 0, len(body), version)


@pytest.mark.parametrize("version", VERSIONS)
@given(data=st.data())
def test_a_flipped_byte_is_read_within_the_frame_or_malformed(version: int, data: st.DataObject) -> None:
    topic: Any = UUID(int=7) if version >= PRODUCE_TOPIC_IDS else "topic"
    body = bytearray(request_bytes(version, None, -1, 5, [(topic, [(0, b"r" * 40)]), (topic, [(9, b"")])]))
    at, value = data.draw(st.integers(0, len(body) - 1)), data.draw(st.integers(0, 255))
    body[at] = value
    try:
        request = read_produce(body + b"\x00" * 4096, 0, len(body), version)
    except MalformedFrame:
        return
    for _, parts in request.topics:
        for _, start, stop in parts:
            assert stop == NO_RECORDS or 0 <= start <= stop <= len(body)


def test_unknown_tagged_fields_are_passed_over() -> None:
    body = bytearray(request_bytes(9, None, 1, 5, [("t", [(0, b"rr")])]))
    assert body[-3:] == b"\x00\x00\x00"
    tagged = body[:-1] + b"\x01\x63\x02ab"
    assert read_produce(tagged, 0, len(tagged), 9).topics == read_produce(body, 0, len(body), 9).topics


def written_by_kio(version: int, correlation_id: int, topics: Any) -> bytes:
    module = __import__(f"kio.schema.produce.v{version}.response", fromlist=["x"])
    named = "topic_id" if version >= PRODUCE_TOPIC_IDS else "name"

    def partition(each: Produced) -> Any:
        at = each.append_time_ms
        values: dict[str, Any] = {
            "index": each.partition_index,
            "error_code": ErrorCode(each.error_code),
            "base_offset": each.base_offset,
            "log_append_time": None if at == -1 else datetime.fromtimestamp(at / 1000, UTC),
        }
        if version >= 5:
            values["log_start_offset"] = each.log_start_offset
        if version >= 8:
            values["error_message"] = each.error_message
            values["record_errors"] = tuple(
                module.BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=text)
                for index, text in each.record_errors
            )
        return module.PartitionProduceResponse(**values)

    entity = module.ProduceResponse(
        responses=tuple(
            module.TopicProduceResponse(
                **{named: UUID(bytes=name) if named == "topic_id" else name.decode()},
                partition_responses=tuple(map(partition, partitions)),
            )
            for name, partitions in topics
        )
    )
    out = BytesIO()
    header = module.ProduceResponse.__header_schema__
    entity_writer(header)(out, header(correlation_id=correlation_id))
    entity_writer(module.ProduceResponse)(out, entity)
    return len(out.getvalue()).to_bytes(4, "big") + out.getvalue()


def keys(version: int) -> st.SearchStrategy[bytes]:
    if version >= PRODUCE_TOPIC_IDS:
        return ids.filter(lambda each: each.int != 0).map(lambda each: each.bytes)
    return names.map(str.encode)


codes = st.sampled_from([int(code) for code in ErrorCode])
times_ms = st.just(-1) | st.integers(0, 4_000_000_000).map(lambda seconds: seconds * 1000)
produced = st.builds(
    Produced,
    indexes,
    codes,
    offsets,
    times_ms,
    offsets,
    st.lists(st.tuples(st.integers(0, 2**31 - 1), texts), max_size=3),
    texts,
)


@pytest.mark.parametrize("version", VERSIONS)
@settings(max_examples=scaled(15))
@given(data=st.data(), correlation_id=st.integers(-(2**31), 2**31 - 1))
def test_answers_as_kio_writes(version: int, data: st.DataObject, correlation_id: int) -> None:
    topics = data.draw(st.lists(st.tuples(keys(version), st.lists(produced, max_size=4)), max_size=3))
    if version < 8:
        topics = [(name, [each._replace(record_errors=(), error_message=None) for each in ps]) for name, ps in topics]

    assert encode_produced(version, correlation_id, topics) == written_by_kio(version, correlation_id, topics)


@pytest.mark.parametrize("version", range(5, 14))
@settings(max_examples=scaled(15))
@given(data=st.data(), correlation_id=st.integers(-(2**31), 2**31 - 1))
def test_the_short_way_answers_as_kio_writes(version: int, data: st.DataObject, correlation_id: int) -> None:
    name = data.draw(keys(version))
    one = Produced(data.draw(indexes), data.draw(codes), data.draw(offsets), data.draw(times_ms), data.draw(offsets))

    pack, size_bytes, before, after = pack_produced_one(version, name)
    frame = pack(size_bytes, correlation_id, before, *one[:5], after)

    assert frame == written_by_kio(version, correlation_id, [(name, [one])])


def test_the_oracle_reads_its_own_answers() -> None:
    """kio's writer is only an oracle while kio's reader agrees with it."""
    kind = ENTITIES[9]
    frame = written_by_kio(9, 5, [(b"t", [Produced(3, 0, 17, -1, 2)])])
    _, at = kind.read_header(frame[4:], 0)
    answer, _ = entity_reader(kind.response)(frame[4:], at)
    assert answer.responses[0].partition_responses[0].base_offset == 17
