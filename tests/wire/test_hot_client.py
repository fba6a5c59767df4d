"""What the client packs, kio reads; what kio writes, the client reads: in every version, without a copy of records."""

from datetime import timedelta
from io import BytesIO
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode
from kio.serial import entity_reader, entity_writer

from oncelog.wire import hot_client
from oncelog.wire.fields import NodeEndpoint
from oncelog.wire.frames import MalformedFrame
from oncelog.wire.hot import FETCH_TOPIC_IDS, PRODUCE_TOPIC_IDS
from oncelog.wire.hot_client import (
    FETCH_VERSIONS,
    PRODUCE_VERSIONS,
    FetchedPartition,
    FetchPartition,
    ProducedPartition,
    pack_fetch,
    pack_produce,
    read_fetch_answer,
    read_produce_answer,
)
from tests.depth import scaled

PRODUCE_ALL = range(PRODUCE_VERSIONS[0], PRODUCE_VERSIONS[1] + 1)
FETCH_ALL = range(FETCH_VERSIONS[0], FETCH_VERSIONS[1] + 1)

names = st.text("abcXYZ019._-", min_size=1, max_size=200).map(str.encode)
ids = st.uuids().filter(lambda each: each.int != 0).map(lambda each: each.bytes)
offsets = st.integers(-1, 2**63 - 1)
int32s = st.integers(-(2**31), 2**31 - 1)
epochs = st.integers(-1, 2**31 - 1)
codes = st.sampled_from([int(code) for code in ErrorCode])
texts = st.none() | st.text(max_size=40)
client_ids = st.none() | st.text(max_size=20)
batches = st.binary(max_size=300)
leaders = st.just((-1, -1)) | st.tuples(st.integers(0, 2**31 - 1), epochs)
endpoints = st.lists(st.builds(NodeEndpoint, int32s, st.text(min_size=1, max_size=9), int32s, texts), max_size=3)


def module(api: str, version: int, side: str) -> Any:
    return __import__(f"kio.schema.{api}.v{version}.{side}", fromlist=["x"])


def read_by_kio(entity_type: Any, frame: bytes) -> tuple[Any, Any]:
    """Header and request; the frame must end where they end."""
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    header, header_bytes = entity_reader(entity_type.__header_schema__)(frame, 4)
    request, body_bytes = entity_reader(entity_type)(frame, 4 + header_bytes)
    assert 4 + header_bytes + body_bytes == len(frame)
    return header, request


def written_by_kio(entity: Any, correlation_id: int) -> bytes:
    out = BytesIO()
    header = type(entity).__header_schema__
    entity_writer(header)(out, header(correlation_id=correlation_id))
    entity_writer(type(entity))(out, entity)
    return out.getvalue()


def topic_named(version: int, ids_from: int, field: str, topic: bytes) -> dict[str, Any]:
    return {"topic_id": UUID(bytes=topic)} if version >= ids_from else {field: topic.decode()}


def topic_of(version: int, ids_from: int, field: str, said: Any) -> bytes:
    found: bytes = said.topic_id.bytes if version >= ids_from else getattr(said, field).encode()
    return found


# --- Produce


@pytest.mark.parametrize("version", PRODUCE_ALL)
@settings(max_examples=scaled(10))
@given(data=st.data(), client_id=client_ids, timeout_ms=st.integers(0, 2**31 - 1), acks=st.sampled_from([-1, 0, 1]))
def test_a_produce_request_is_what_kio_reads(
    version: int, data: st.DataObject, client_id: str | None, timeout_ms: int, acks: int
) -> None:
    key = ids if version >= PRODUCE_TOPIC_IDS else names
    topics = data.draw(st.lists(st.tuples(key, st.lists(st.tuples(int32s, batches), max_size=3)), max_size=3))

    buffers = pack_produce(version, 78, client_id, topics, acks=acks, timeout_ms=timeout_ms)

    header, request = read_by_kio(module("produce", version, "request").ProduceRequest, b"".join(buffers))
    assert (header.correlation_id, header.client_id, header.request_api_version) == (78, client_id, version)
    assert request.transactional_id is None
    assert (request.acks, request.timeout / timedelta(milliseconds=1)) == (acks, timeout_ms)
    found = [
        (
            topic_of(version, PRODUCE_TOPIC_IDS, "name", topic),
            [(each.index, each.records or b"") for each in topic.partition_data],
        )
        for topic in request.topic_data
    ]
    assert found == topics


def test_batches_are_sent_without_a_copy() -> None:
    batch = bytearray(100)
    assert any(each is batch for each in pack_produce(9, 1, "c", [(b"t", [(0, batch)])], timeout_ms=1))


def produced(version: int) -> st.SearchStrategy[tuple[bytes, list[ProducedPartition]]]:
    def of(topic: bytes) -> st.SearchStrategy[tuple[bytes, list[ProducedPartition]]]:
        has_errors, has_leaders = version >= 8, version >= 10
        one = st.builds(
            ProducedPartition,
            st.just(topic),
            int32s,
            codes,
            offsets,
            st.integers(-1, 2**40),
            offsets,
            st.lists(st.tuples(int32s, texts), max_size=3) if has_errors else st.just(()),
            texts if has_errors else st.none(),
            leaders if has_leaders else st.just((-1, -1)),
        )
        return st.tuples(st.just(topic), st.lists(one, max_size=3))

    return (ids if version >= PRODUCE_TOPIC_IDS else names).flatmap(of)


def produce_answer(version: int, topics: Any, throttle_ms: int, nodes: Any) -> Any:
    of = module("produce", version, "response")

    def partition(each: ProducedPartition) -> Any:
        values: dict[str, Any] = {
            "index": each.partition,
            "error_code": ErrorCode(each.error_code),
            "base_offset": each.base_offset,
            "log_append_time": moment(each.append_time_ms),
            "log_start_offset": each.log_start_offset,
        }
        if version >= 8:
            values["record_errors"] = tuple(
                of.BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=text)
                for index, text in each.record_errors
            )
            values["error_message"] = each.error_message
        if version >= 10:
            values["current_leader"] = of.LeaderIdAndEpoch(leader_id=each.leader[0], leader_epoch=each.leader[1])
        return of.PartitionProduceResponse(**values)

    values: dict[str, Any] = {} if version < 10 else {"node_endpoints": tuple(map(node(of), nodes))}
    return of.ProduceResponse(
        responses=tuple(
            of.TopicProduceResponse(
                **topic_named(version, PRODUCE_TOPIC_IDS, "name", topic),
                partition_responses=tuple(map(partition, partitions)),
            )
            for topic, partitions in topics
        ),
        throttle_time=of.i32Timedelta.parse(timedelta(milliseconds=throttle_ms)),
        **values,
    )


def moment(ms: int) -> Any:
    from datetime import UTC, datetime

    return None if ms == -1 else datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=ms)


def node(of: Any) -> Any:
    return lambda each: of.NodeEndpoint(node_id=each.node_id, host=each.host, port=each.port, rack=each.rack)


@pytest.mark.parametrize("version", PRODUCE_ALL)
@settings(max_examples=scaled(10))
@given(data=st.data(), throttle_ms=st.integers(0, 2**31 - 1))
def test_a_produce_answer_is_read_as_kio_writes_it(version: int, data: st.DataObject, throttle_ms: int) -> None:
    topics = data.draw(st.lists(produced(version), max_size=3))
    nodes = data.draw(endpoints) if version >= 10 else []
    frame = written_by_kio(produce_answer(version, topics, throttle_ms, nodes), 5)

    answer = read_produce_answer(version, memoryview(frame))

    partitions = [each._replace(record_errors=list(each.record_errors)) for _, some in topics for each in some]
    assert [each._replace(record_errors=list(each.record_errors)) for each in answer.partitions] == partitions
    assert (answer.throttle_ms, list(answer.endpoints)) == (throttle_ms, nodes)


# --- Fetch

asked = st.builds(FetchPartition, int32s, offsets, st.integers(0, 2**31 - 1), epochs, epochs)


@pytest.mark.parametrize("version", FETCH_ALL)
@settings(max_examples=scaled(10))
@given(data=st.data(), client_id=client_ids, most=st.integers(0, 2**31 - 1), committed=st.booleans(), rack=st.text())
def test_a_fetch_request_is_what_kio_reads(
    version: int, data: st.DataObject, client_id: str | None, most: int, committed: bool, rack: str
) -> None:
    key = ids if version >= FETCH_TOPIC_IDS else names
    topics = data.draw(st.lists(st.tuples(key, st.lists(asked, max_size=3)), max_size=3))

    (frame,) = pack_fetch(
        version,
        9,
        client_id,
        topics,
        max_wait_ms=500,
        min_bytes=1,
        max_bytes=most,
        read_committed=committed,
        rack=rack,
    )

    header, request = read_by_kio(module("fetch", version, "request").FetchRequest, bytes(frame))
    assert (header.correlation_id, header.client_id, header.request_api_version) == (9, client_id, version)
    assert (request.max_wait, request.min_bytes, request.max_bytes) == (timedelta(milliseconds=500), 1, most)
    assert (request.isolation_level, request.session_id, request.session_epoch) == (committed, 0, -1)
    assert getattr(request, "replica_id", -1) == -1
    assert request.forgotten_topics_data == ()
    if version >= 11:
        assert request.rack_id == rack
    found = [
        (
            topic_of(version, FETCH_TOPIC_IDS, "topic", topic),
            [
                FetchPartition(
                    each.partition,
                    each.fetch_offset,
                    each.partition_max_bytes,
                    each.current_leader_epoch,
                    getattr(each, "last_fetched_epoch", -1),
                )
                for each in topic.partitions
            ],
        )
        for topic in request.topics
    ]
    without_epoch = [
        (topic, [each._replace(last_fetched_epoch=-1) if version < 12 else each for each in some])
        for topic, some in topics
    ]
    assert found == without_epoch


def fetched(version: int) -> st.SearchStrategy[tuple[bytes, list[FetchedPartition]]]:
    def of(topic: bytes) -> st.SearchStrategy[tuple[bytes, list[FetchedPartition]]]:
        one = st.builds(
            FetchedPartition,
            st.just(topic),
            int32s,
            codes,
            offsets,
            offsets,
            offsets,
            batches.map(memoryview),
            st.lists(st.tuples(st.integers(0, 2**63 - 1), offsets), max_size=3),
            int32s if version >= 11 else st.just(-1),
            st.none() | st.tuples(st.integers(0, 2**31 - 1), offsets) if version >= 12 else st.none(),
            leaders if version >= 12 else st.just((-1, -1)),
        )
        return st.tuples(st.just(topic), st.lists(one, max_size=3))

    return (ids if version >= FETCH_TOPIC_IDS else names).flatmap(of)


def fetch_answer(version: int, topics: Any, throttle_ms: int, error_code: int, session: int, nodes: Any) -> Any:
    of = module("fetch", version, "response")

    def partition(each: FetchedPartition) -> Any:
        values: dict[str, Any] = {
            "partition_index": each.partition,
            "error_code": ErrorCode(each.error_code),
            "high_watermark": each.high_watermark,
            "last_stable_offset": each.last_stable_offset,
            "log_start_offset": each.log_start_offset,
            "aborted_transactions": tuple(
                of.AbortedTransaction(producer_id=pid, first_offset=first) for pid, first in each.aborted
            )
            or None,
            "records": bytes(each.records),
        }
        if version >= 11:
            values["preferred_read_replica"] = each.preferred_read_replica
        if version >= 12:
            values["current_leader"] = of.LeaderIdAndEpoch(leader_id=each.leader[0], leader_epoch=each.leader[1])
            if each.diverging is not None:
                epoch, end = each.diverging
                values["diverging_epoch"] = of.EpochEndOffset(epoch=epoch, end_offset=end)
        return of.PartitionData(**values)

    values: dict[str, Any] = {} if version < 16 else {"node_endpoints": tuple(map(node(of), nodes))}
    return of.FetchResponse(
        throttle_time=of.i32Timedelta.parse(timedelta(milliseconds=throttle_ms)),
        error_code=ErrorCode(error_code),
        session_id=session,
        responses=tuple(
            of.FetchableTopicResponse(
                **topic_named(version, FETCH_TOPIC_IDS, "topic", topic), partitions=tuple(map(partition, partitions))
            )
            for topic, partitions in topics
        ),
        **values,
    )


@pytest.mark.parametrize("version", FETCH_ALL)
@settings(max_examples=scaled(10))
@given(data=st.data(), throttle_ms=st.integers(0, 2**31 - 1), code=codes, session=int32s)
def test_a_fetch_answer_is_read_as_kio_writes_it(
    version: int, data: st.DataObject, throttle_ms: int, code: int, session: int
) -> None:
    topics = data.draw(st.lists(fetched(version), max_size=3))
    nodes = data.draw(endpoints) if version >= 16 else []
    frame = written_by_kio(fetch_answer(version, topics, throttle_ms, code, session, nodes), 5)

    answer = read_fetch_answer(version, memoryview(frame))

    assert answer.partitions == [each for _, some in topics for each in some]
    assert (answer.error_code, answer.throttle_ms, answer.session_id) == (code, throttle_ms, session)
    assert list(answer.endpoints) == nodes


def test_fetched_records_are_a_view_of_the_frame() -> None:
    partition = FetchedPartition(b"t", 0, 0, 1, 1, 0, memoryview(b"records"))
    frame = bytearray(written_by_kio(fetch_answer(12, [(b"t", [partition])], 0, 0, 0, []), 1))
    records = read_fetch_answer(12, memoryview(frame)).partitions[0].records
    frame[:] = frame.replace(b"records", b"RECORDS")
    assert bytes(records) == b"RECORDS"


# --- rubbish

READERS: list[tuple[int, Any]] = [
    *((version, hot_client.read_produce_answer) for version in PRODUCE_ALL),
    *((version, hot_client.read_fetch_answer) for version in FETCH_ALL),
]


@pytest.mark.parametrize(("version", "read"), READERS)
@settings(max_examples=scaled(15))
@given(rubbish=st.binary(min_size=4, max_size=120))
def test_rubbish_is_a_malformed_frame_and_nothing_else(version: int, read: Any, rubbish: bytes) -> None:
    try:
        read(version, memoryview(rubbish))
    except MalformedFrame:
        return


@pytest.mark.parametrize("version", [7, 9, 13])
def test_a_produce_answer_cut_anywhere_is_malformed(version: int) -> None:
    topic = bytes(range(1, 17))
    partition = ProducedPartition(topic, 1, 0, 5, -1, 0)
    frame = written_by_kio(produce_answer(version, [(topic, [partition])], 0, []), 5)
    for size in range(4, len(frame)):
        with pytest.raises(MalformedFrame):
            read_produce_answer(version, memoryview(frame)[:size])


@pytest.mark.parametrize("version", [10, 12, 16])
def test_a_fetch_answer_cut_anywhere_is_malformed(version: int) -> None:
    topic = bytes(range(1, 17))
    partition = FetchedPartition(topic, 1, 0, 5, 5, 0, memoryview(b"records"), [(1, 2)])
    frame = written_by_kio(fetch_answer(version, [(topic, [partition])], 0, 0, 0, []), 5)
    for size in range(4, len(frame)):
        with pytest.raises(MalformedFrame):
            read_fetch_answer(version, memoryview(frame)[:size])
