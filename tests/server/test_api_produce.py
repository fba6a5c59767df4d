"""Produce: what each batch is answered with, in every version, whatever is wrong with it."""

import errno
import struct
import threading
from collections.abc import Sequence
from typing import Any, cast

import pytest
from crc32c import crc32c

from oncelog.embedded import Server
from oncelog.log.disk import File
from oncelog.log.work_steps import at_once
from oncelog.records.header import Buffer
from oncelog.records.read import LEAST_LIMIT_BYTES
from oncelog.records.trim import trim
from oncelog.server import bodies
from oncelog.server.errors import ErrorCode
from tests.raw import CODECS, RawConnection, Rec, batch, message_set
from tests.raw.batches import HEADER_BYTES, squeeze
from tests.raw.topics import new_topic

FULL_RANGE = range(3, 14)


def produce(raw: RawConnection, server: Server, topic: str, records: bytes | None, version: int, **more: Any) -> Any:
    """The answer about partition 0, by the topic's name or, in version 13, by its id."""
    found = server.broker.topics.get(topic)
    assert found is not None
    named = {"topic_id": found.id} if version >= 13 else {"name": topic}
    data = {**named, "partition_data": [{"index": 0, "records": records}]}
    answer = raw.call("produce", version, acks=more.get("acks", -1), timeout=1000, topic_data=[data])
    return answer.responses[0].partition_responses[0]


@pytest.mark.parametrize("version", FULL_RANGE)
def test_every_version_appends(server: Server, raw: RawConnection, topic: str, version: int) -> None:
    first = produce(raw, server, topic, batch([b"a", b"b"]), version)
    second = produce(raw, server, topic, batch([b"c"]), version)
    assert [(each.error_code, each.base_offset) for each in (first, second)] == [(0, 0), (0, 2)]


@pytest.mark.parametrize("codec", CODECS.values(), ids=CODECS.keys())
def test_every_codec_is_kept_as_it_came(raw: RawConnection, topic: str, codec: int) -> None:
    sent = batch([b"same" * 100] * 20, codec=codec)
    assert raw.produce(topic, 0, sent).error_code is ErrorCode.none
    assert raw.fetch(topic, 0, 0).records[17:] == sent[17:]


def flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 0xFF]) + data[at + 1 :]


GOOD = batch([b"value"])
REFUSED: dict[str, tuple[bytes | None, ErrorCode]] = {
    "no records": (None, ErrorCode.invalid_record),
    "empty records": (b"", ErrorCode.invalid_record),
    "a bad CRC": (flipped(GOOD, len(GOOD) - 1), ErrorCode.corrupt_message),
    "magic 0": (message_set(b"old", 0), ErrorCode.invalid_record),
    "magic 1": (message_set(b"old", 1), ErrorCode.invalid_record),
    "magic 3": (batch([b"x"], magic=3), ErrorCode.corrupt_message),
    "a control batch": (batch([b"x"], attributes=0x20), ErrorCode.invalid_record),
    "a transactional batch": (
        batch([b"x"], attributes=0x10, pid=2**32),
        ErrorCode.transactional_id_authorization_failed,
    ),
    "two batches": (GOOD + GOOD, ErrorCode.invalid_record),
    "a batch that stops": (GOOD[:-3], ErrorCode.invalid_record),
    "a negative length": (batch([b"x"], length_bytes=-5), ErrorCode.corrupt_message),
    "a count that contradicts": (batch([b"x"], record_count=5), ErrorCode.invalid_record),
    "a delta that contradicts": (batch([b"x"], last_offset_delta=7), ErrorCode.invalid_record),
    "an unknown codec": (batch([b"x"], attributes=7), ErrorCode.unsupported_compression_type),
    "the log's own time": (batch([b"x"], attributes=8), ErrorCode.invalid_timestamp),
    "more than max.message.bytes": (batch([b"x" * 1_100_000]), ErrorCode.message_too_large),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_batch_that_cannot_be_is_refused_and_nothing_is_appended(raw: RawConnection, topic: str, name: str) -> None:
    records, code = REFUSED[name]
    answer = raw.produce(topic, 0, records)
    assert (answer.error_code, answer.base_offset) == (code, -1)
    assert answer.error_message
    assert raw.offset_at(topic, 0, -1).offset == 0
    assert raw.produce(topic, 0, GOOD).base_offset == 0


def test_what_is_not_there_is_unknown(raw: RawConnection, topic: str) -> None:
    assert raw.produce("no-such-topic", 0, GOOD).error_code is ErrorCode.unknown_topic_or_partition
    assert raw.produce(topic, 1, GOOD).error_code is ErrorCode.unknown_topic_or_partition
    assert raw.produce(topic, -1, GOOD).error_code is ErrorCode.unknown_topic_or_partition


def test_an_unknown_topic_id_is_unknown(raw: RawConnection) -> None:
    from uuid import UUID

    data = {"topic_id": UUID(int=99), "partition_data": [{"index": 0, "records": GOOD}]}
    answer = raw.call("produce", 13, acks=-1, timeout=1000, topic_data=[data])
    assert answer.responses[0].partition_responses[0].error_code is ErrorCode.unknown_topic_id


def test_acks_must_be_minus_1_0_or_1(raw: RawConnection, topic: str) -> None:
    assert raw.produce(topic, 0, GOOD, acks=2).error_code is ErrorCode.invalid_required_acks
    assert raw.produce(topic, 0, GOOD, acks=1).base_offset == 0


def test_internal_topics_are_not_written_by_clients(server: Server, raw: RawConnection) -> None:
    now = server.broker.clock.now()
    server.call(lambda: server.broker.topics.create("__consumer_offsets", 1, {}, now, is_internal=True))
    assert raw.produce("__consumer_offsets", 0, GOOD).error_code is ErrorCode.invalid_topic_exception
    assert raw.offset_at("__consumer_offsets", 0, -1).offset == 0
    assert raw.produce("__oncelog_metadata", 0, GOOD).error_code is ErrorCode.unknown_topic_or_partition


@pytest.mark.parametrize("codec", CODECS.values(), ids=CODECS.keys())
def test_a_compacted_topic_refuses_records_without_a_key_and_names_them(raw: RawConnection, codec: int) -> None:
    topic = new_topic(raw, cleanup_policy="compact,delete")
    keyless = batch([Rec(b"v", key=b"k"), Rec(b"v"), Rec(b"v", key=b""), Rec(b"v")], codec=codec)
    for _ in range(2):  # the second one is recognised by its first bytes
        answer = raw.produce(topic, 0, keyless)
        assert (answer.error_code, answer.base_offset) == (ErrorCode.invalid_record, -1)
        assert [each.batch_index for each in answer.record_errors] == [1, 3]
    assert raw.produce(topic, 0, batch([Rec(None, key=b"k")], codec=codec)).base_offset == 0


def test_a_compacted_topic_refuses_equal_records_that_unfold_from_little(raw: RawConnection) -> None:
    """Told at the second record: to walk a million of them would hold up everybody else."""
    topic = new_topic(raw, cleanup_policy="compact")
    record = batch([Rec(b"v", b"k")])[HEADER_BYTES:]
    packed = squeeze(CODECS["zstd"], record * 1000)
    bomb = batch([], payload=packed, codec=CODECS["zstd"], record_count=1000, last_offset_delta=999)
    answer = raw.produce(topic, 0, bomb)
    assert answer.error_code is ErrorCode.invalid_record
    assert raw.offset_at(topic, 0, -1).offset == 0


def test_a_compacted_topic_refuses_what_its_compaction_could_not_read(raw: RawConnection) -> None:
    topic = new_topic(raw, cleanup_policy="compact")
    assert raw.produce(topic, 0, batch([b"not gzip"], attributes=1)).error_code is ErrorCode.invalid_record
    bomb = batch([Rec(bytes(LEAST_LIMIT_BYTES), key=b"k")], codec=CODECS["gzip"])
    assert len(bomb) < 200_000 and raw.produce(topic, 0, bomb).error_code is ErrorCode.message_too_large
    assert raw.offset_at(topic, 0, -1).offset == 0


def test_a_batch_outside_of_transactions_is_taken_from_who_names_one(raw: RawConnection, topic: str) -> None:
    data = [{"name": topic, "partition_data": [{"index": 0, "records": GOOD}]}]
    answer = raw.call("produce", 9, transactional_id="tx", acks=-1, timeout=1000, topic_data=data)
    assert answer.responses[0].partition_responses[0].error_code is ErrorCode.none


def test_one_request_for_many_partitions_is_answered_for_each(raw: RawConnection) -> None:
    first, second = new_topic(raw, 3), new_topic(raw)
    data = [
        {"name": first, "partition_data": [{"index": index, "records": GOOD} for index in (2, 0, 7)]},
        {"name": "nowhere", "partition_data": [{"index": 0, "records": GOOD}]},
        {"name": second, "partition_data": [{"index": 0, "records": GOOD}, {"index": 0, "records": GOOD}]},
    ]
    answer = raw.call("produce", 8, acks=-1, timeout=1000, topic_data=data)
    unknown = ErrorCode.unknown_topic_or_partition
    assert [
        [(each.index, each.error_code, each.base_offset) for each in topic.partition_responses]
        for topic in answer.responses
    ] == [[(2, 0, 0), (0, 0, 0), (7, unknown, -1)], [(0, unknown, -1)], [(0, 0, 0), (0, 0, 1)]]


def test_recognised_requests_follow_the_topic_when_it_is_made_anew(server: Server, raw: RawConnection) -> None:
    topic = new_topic(raw)
    for offset in range(3):
        assert raw.produce(topic, 0, GOOD).base_offset == offset
    assert raw.delete_topic(topic) is ErrorCode.none
    assert raw.produce(topic, 0, GOOD).error_code is ErrorCode.unknown_topic_or_partition
    assert raw.create_topic(topic) is ErrorCode.none
    assert [raw.produce(topic, 0, GOOD).base_offset for _ in range(2)] == [0, 1]


def test_recognised_requests_are_still_judged(raw: RawConnection, topic: str) -> None:
    assert raw.produce(topic, 0, GOOD).error_code is ErrorCode.none
    assert raw.produce(topic, 0, flipped(GOOD, 60)).error_code is ErrorCode.corrupt_message
    assert raw.produce(topic, 0, b"").error_code is ErrorCode.invalid_record
    assert raw.produce(topic, 0, None).error_code is ErrorCode.invalid_record
    assert raw.produce(topic, 0, GOOD).base_offset == 1


# Producers


def test_a_kafka_producer_is_deduplicated(raw: RawConnection, topic: str) -> None:
    pid, epoch = raw.init_producer_id()
    first = batch([b"a", b"b"], pid=pid, epoch=epoch, sequence=0)
    gap = batch([b"z"], pid=pid, epoch=epoch, sequence=9)
    zombie = batch([b"z"], pid=pid, epoch=epoch, sequence=0)
    assert raw.produce(topic, 0, first).base_offset == 0
    again = raw.produce(topic, 0, first)
    assert (again.error_code, again.base_offset) == (0, 0)
    assert raw.produce(topic, 0, gap).error_code is ErrorCode.out_of_order_sequence_number
    assert raw.produce(topic, 0, batch([b"n"], pid=pid, epoch=epoch + 1, sequence=0)).base_offset == 2
    assert raw.produce(topic, 0, zombie).error_code is ErrorCode.invalid_producer_epoch
    assert raw.offset_at(topic, 0, -1).offset == 3


def test_a_leased_producer_is_trimmed_where_it_overlaps(raw: RawConnection, topic: str) -> None:
    topics = [{"name": topic, "partitions": [0]}]
    lease = raw.call("lease_pid", 0, topics=topics).topics[0].partitions[0]

    def send(values: list[bytes], sequence: int, version: int = 9) -> Any:
        records: list[Rec | bytes | None] = list(values)
        data = batch(records, pid=lease.producer_id, epoch=lease.generation, sequence=sequence)
        return raw.produce(topic, 0, data, version=version)

    assert send([b"0", b"1", b"2"], 0).base_offset == 0
    raw.produce(topic, 0, batch([b"between"]))
    overlap = send([b"1", b"2", b"3", b"4"], 1)
    assert (overlap.error_code, overlap.base_offset) == (0, 4 - 2)
    assert [each.batch_index for each in overlap.record_errors] == [0, 1]
    assert raw.offset_at(topic, 0, -1).offset == 6
    assert send([b"9"], 9).error_code is ErrorCode.out_of_order_sequence_number
    assert send([b"3", b"4"], 3).error_code is ErrorCode.none
    assert raw.offset_at(topic, 0, -1).offset == 6


@pytest.mark.parametrize(("value", "codec"), [(b"v", 1), (b"v" * 2000, 0)], ids=["compressed", "large"])
@pytest.mark.parametrize("requests", ["one", "many"])
def test_an_overlap_that_takes_long_to_cut_is_cut_by_a_thread(
    server: Server, raw: RawConnection, monkeypatch: pytest.MonkeyPatch, value: bytes, codec: int, requests: str
) -> None:
    topic = new_topic(raw, 2)
    lease = raw.call("lease_pid", 0, topics=[{"name": topic, "partitions": [0, 1]}]).topics[0].partitions[0]
    loop_thread = server.call(threading.get_ident)
    cut_by: list[int] = []

    def watched(*arguments: Any, **keywords: Any) -> bytearray:
        cut_by.append(threading.get_ident())
        return trim(*arguments, **keywords)

    monkeypatch.setattr(bodies, "trim", watched)
    indexes = (0, 1) if requests == "many" else (0,)

    def send(count: int, sequence: int) -> Any:
        data = batch([value] * count, pid=lease.producer_id, epoch=lease.generation, sequence=sequence, codec=codec)
        topics = [{"name": topic, "partition_data": [{"index": index, "records": data} for index in indexes]}]
        answer = raw.call("produce", 9, transactional_id=None, acks=-1, timeout=9, topic_data=topics)
        return answer.responses[0].partition_responses

    assert [each.error_code for each in send(20, 0)] == [ErrorCode.none] * len(indexes)
    for each in send(25, 5):
        assert (each.error_code, each.base_offset, len(each.record_errors)) == (ErrorCode.none, 20 - 15, 15)
    assert [raw.offset_at(topic, index, -1).offset for index in indexes] == [30] * len(indexes)
    counted = [partition.log.producers.trimmed for partition in server.broker.topics.all()[-1].partitions]
    assert counted[: len(indexes)] == [1] * len(indexes), "each once, though it was judged before it was cut, too"
    assert len(cut_by) == len(indexes)
    assert loop_thread not in cut_by


def test_damage_is_found_before_an_overlap_is_cut(raw: RawConnection, topic: str) -> None:
    topics = [{"name": topic, "partitions": [0]}]
    lease = raw.call("lease_pid", 0, topics=topics).topics[0].partitions[0]
    values: list[Rec | bytes | None] = [b"0", b"1", b"2"]
    own: dict[str, Any] = {"pid": lease.producer_id, "epoch": lease.generation}
    assert raw.produce(topic, 0, batch(values, **own, sequence=0)).error_code is ErrorCode.none
    damaged = batch(values, **own, sequence=1, payload=b"\xff" * 40)
    assert raw.produce(topic, 0, damaged).error_code is ErrorCode.invalid_record
    assert raw.offset_at(topic, 0, -1).offset == 3


def test_a_pid_that_was_never_granted_is_unknown(raw: RawConnection, topic: str) -> None:
    answer = raw.produce(topic, 0, batch([b"x"], pid=4_000_000_000, epoch=0, sequence=0))
    assert answer.error_code is ErrorCode.unknown_producer_id


def test_log_append_time_is_told(server: Server, raw: RawConnection) -> None:
    """And it is what counts: a time of the client's own has no bounds then."""
    topic = new_topic(raw, message_timestamp_type="LogAppendTime", message_timestamp_before_max_ms="1")
    answer = raw.produce(topic, 0, batch([b"x"], timestamp_ms=5))
    assert answer.log_append_time is not None
    stored = raw.fetch(topic, 0, 0).records
    assert struct.unpack_from(">q", stored, 35)[0] == int(answer.log_append_time.timestamp() * 1000)


# Times of records

HOUR_MS = 3_600_000


def recs(*deltas_ms: int) -> list[Rec]:
    return [Rec(b"v", timestamp_delta_ms=delta) for delta in deltas_ms]


def refused_times(answer: Any) -> list[int] | None:
    if answer.error_code is ErrorCode.none:
        return None
    assert (answer.error_code, answer.base_offset) == (ErrorCode.invalid_timestamp, -1)
    return [each.batch_index for each in answer.record_errors]


@pytest.mark.parametrize("codec", CODECS.values(), ids=CODECS.keys())
def test_records_from_the_future_are_refused_and_named(raw: RawConnection, topic: str, codec: int) -> None:
    for _ in range(2):  # the second one is recognised by its first bytes
        assert refused_times(raw.produce(topic, 0, batch(recs(0, 2 * HOUR_MS, 9), codec=codec))) == [1]
    assert refused_times(raw.produce(topic, 0, batch(recs(0, HOUR_MS - 60_000, 9), codec=codec))) is None


def test_records_from_too_long_ago_are_refused_and_named(raw: RawConnection) -> None:
    topic = new_topic(raw, message_timestamp_before_max_ms=str(HOUR_MS))
    late = batch(recs(0, -2 * HOUR_MS, 9, -HOUR_MS + 60_000))
    assert refused_times(raw.produce(topic, 0, late)) == [1]
    assert refused_times(raw.produce(topic, 0, batch(recs(0, -HOUR_MS + 60_000, 9)))) is None
    no_times = batch(recs(0, 0), timestamp_ms=-1)
    assert refused_times(raw.produce(topic, 0, no_times)) is None  # without a time, as old clients send


def test_a_record_without_a_key_is_named_beside_one_out_of_time(raw: RawConnection) -> None:
    topic = new_topic(raw, cleanup_policy="compact")
    mixed = batch([Rec(b"v"), Rec(b"v", b"k"), Rec(b"v", b"k", timestamp_delta_ms=2 * HOUR_MS)])
    assert refused_times(raw.produce(topic, 0, mixed)) == [0, 2]


def test_a_max_timestamp_that_no_record_has_is_refused_too(raw: RawConnection, topic: str) -> None:
    lie = bytearray(batch(recs(0)))
    struct.pack_into(">q", lie, 35, 2**62)
    struct.pack_into(">I", lie, 17, crc32c(memoryview(lie)[21:]))
    assert refused_times(raw.produce(topic, 0, bytes(lie))) == []


def test_what_is_in_the_log_already_is_not_refused_for_its_age(server: Server, raw: RawConnection) -> None:
    """Its answer was lost, and it comes again when the bound has passed. A client that is told that the batch was
    refused sends its records as new ones."""
    topic = new_topic(raw)
    pid, epoch = raw.init_producer_id()
    old = batch(recs(-2 * HOUR_MS), pid=pid, epoch=epoch, sequence=0)
    assert raw.produce(topic, 0, old).base_offset == 0
    server.call(lambda: set_configs(server, topic, {"message.timestamp.before.max.ms": str(HOUR_MS)}))
    again = raw.produce(topic, 0, old)
    assert (again.error_code, again.base_offset) == (ErrorCode.none, 0)
    next_one = batch(recs(-2 * HOUR_MS), pid=pid, epoch=epoch, sequence=1)
    assert refused_times(raw.produce(topic, 0, next_one)) == [0]
    server.call(lambda: set_configs(server, topic, {}))
    assert raw.produce(topic, 0, next_one).base_offset == 1


def set_configs(server: Server, name: str, configs: dict[str, str | None]) -> None:
    topic = server.broker.topics.get(name)
    assert topic is not None
    at_once(server.broker.topics.altering_configs(topic, lambda _: configs, server.broker.clock.now()))


def test_acks_all_waits_for_no_more_copies_than_there_are(raw: RawConnection) -> None:
    assert raw.produce(new_topic(raw, min_insync_replicas="2"), 0, GOOD, acks=-1).base_offset == 0


# The disk


class FullFile:
    """A file on a disk that has no room left."""

    def __init__(self, file: File) -> None:
        self._file = file

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def pwritev(self, buffers: Sequence[Buffer], position: int) -> int:
        raise OSError(errno.ENOSPC, "no space left on device")


def test_a_disk_that_refuses_is_answered_and_the_log_stays_readable(
    server: Server, raw: RawConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, other = new_topic(raw), new_topic(raw)
    raw.produce(topic, 0, GOOD)
    partition = server.broker.topics.partition(topic, 0)
    assert partition is not None
    log = partition.log

    path, handles = log.segments.active.log_path, log.segments.active.handles
    get = handles.get

    def get_full(wanted: str, *, create: bool = False) -> File:
        file = get(wanted, create=create)
        return cast("File", FullFile(file)) if wanted == path else file

    with monkeypatch.context() as patch:
        patch.setattr(handles, "get", get_full)
        raw.ask_produce(topic, 0, GOOD)
        raw.ask_produce(other, 0, GOOD)
        raw.ask_produce(topic, 0, GOOD)
        failed, fine, failed_too = (raw.produce_answer() for _ in range(3))
    assert failed.error_code is failed_too.error_code is ErrorCode.kafka_storage_error
    assert "no space left" in failed.error_message
    assert fine.error_code is ErrorCode.none
    assert raw.fetch(topic, 0, 0).high_watermark == 1
    assert raw.produce(topic, 0, GOOD).base_offset == 1


def test_an_accident_in_one_commit_leaves_the_partitions_beside_it_whole(
    server: Server, raw: RawConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = new_topic(raw, 2)
    unlucky, lucky = (server.broker.topics.partition(topic, index) for index in (0, 1))
    assert unlucky is not None and lucky is not None

    def stumble() -> None:
        raise RuntimeError("an accident of this test")

    monkeypatch.setattr(unlucky.log, "commit", stumble)
    parts = [{"index": index, "records": GOOD} for index in (0, 1)]
    raw.call("produce", 8, acks=1, timeout=1000, topic_data=[{"name": topic, "partition_data": parts}])
    monkeypatch.undo()
    assert raw.produce(topic, 0, GOOD).error_code is ErrorCode.kafka_storage_error
    assert unlucky.log.size_bytes == 0  # nothing that the buffer holds by now was written
    assert raw.produce(topic, 1, GOOD).base_offset == 1
    assert raw.fetch(topic, 1, 0, max_wait_ms=0).records[17 : len(GOOD)] == GOOD[17:]
