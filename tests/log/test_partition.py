"""What a log promises to those who append to it and read from it."""

from dataclasses import replace

import pytest

from oncelog.log.config import Flush, LogConfig, TimestampType
from oncelog.log.errors import Damaged, OffsetOutOfRange
from oncelog.log.handles import Handles
from oncelog.log.partition import Fenced, PartitionLog
from oncelog.producers import Decision, ProducerMap
from oncelog.producers.fence import read_fence
from oncelog.records.header import check_produced, headers, read_header, restamp_crc
from oncelog.records.read import records_of
from tests.log.memory_disk import MemoryDisk
from tests.log.support import (
    FOLDER,
    KAFKA_PID,
    LEASED,
    NOW,
    SMALL,
    START_MS,
    append,
    at,
    batch,
    batches_in,
    open_log,
    put,
    records_in,
    seed,
    values_in,
)


def test_offsets_are_given_without_gaps_and_epochs_are_stamped() -> None:
    log = open_log(MemoryDisk(), leader_epoch=4)
    assert [put(log, b"a", b"b").base_offset, put(log, b"c").base_offset, put(log, b"d").base_offset] == [0, 2, 3]
    assert (log.next_offset, log.high_watermark, log.log_start_offset) == (4, 4, 0)
    assert {read_header(each).leader_epoch for each in batches_in(log)} == {4}
    assert values_in(log) == [b"a", b"b", b"c", b"d"]


def test_a_batch_is_stored_as_it_came_but_for_offset_and_epoch() -> None:
    log = open_log(MemoryDisk())
    made = batch(b"a" * 300, codec=4)
    before = bytes(made)
    append(log, made)
    stored = next(iter(batches_in(log)))
    assert stored[16:] == before[16:]
    assert records_of(stored)[0].value == b"a" * 300


def test_many_staged_batches_are_written_by_one_commit_over_several_segments() -> None:
    log = open_log(MemoryDisk())
    made = [batch(b"%d" % number, pid=LEASED, sequence=number) for number in range(2000)]
    answers = [log.stage(each, check_produced(each), NOW) for each in made]
    assert log.next_offset == 0
    assert all(answer.end_offset == number + 1 for number, answer in enumerate(answers))
    log.commit()
    assert log.high_watermark == 2000
    assert len(log.segments) > 100
    assert values_in(log) == [b"%d" % number for number in range(2000)]
    log.close()


def test_more_buffers_than_one_call_takes_are_all_written() -> None:
    log = open_log(MemoryDisk(), LogConfig())
    for number in range(3000):
        made = batch(b"%d" % number)
        log.stage(made, check_produced(made), NOW)
    log.commit()
    assert values_in(log) == [b"%d" % number for number in range(3000)]


def test_short_writes_are_carried_on() -> None:
    disk = MemoryDisk(seed())
    disk.short_writes = True
    log = open_log(disk)
    for number in range(200):
        put(log, b"%d" % number)
    assert values_in(log) == [b"%d" % number for number in range(200)]


@pytest.mark.parametrize("pid", [LEASED, KAFKA_PID])
def test_a_duplicate_is_answered_with_the_offset_of_the_original(pid: int) -> None:
    log = open_log(MemoryDisk())
    put(log, b"x")
    original = put(log, b"a", b"b", pid=pid, sequence=0)
    again = put(log, b"a", b"b", pid=pid, sequence=0)
    assert (again.decision, again.base_offset) == (Decision.DUPLICATE, original.base_offset)
    assert values_in(log) == [b"x", b"a", b"b"]


def test_a_duplicate_of_what_is_only_staged_is_true_only_after_the_commit() -> None:
    log = open_log(MemoryDisk())
    first, again = batch(b"a", pid=LEASED, sequence=0), batch(b"a", pid=LEASED, sequence=0)
    log.stage(first, check_produced(first), NOW)
    answer = log.stage(again, check_produced(again), NOW)
    assert answer.decision is Decision.DUPLICATE
    assert log.high_watermark < answer.end_offset
    log.commit()
    assert log.high_watermark >= answer.end_offset


def test_an_overlap_is_trimmed_and_the_answer_tells_how() -> None:
    log = open_log(MemoryDisk())
    put(log, b"0", b"1", b"2", pid=LEASED, sequence=0)
    put(log, b"other")
    answer = put(log, b"1", b"2", b"3", b"4", pid=LEASED, sequence=1)
    assert (answer.decision, answer.dropped_records, answer.base_offset) == (Decision.TRIM, 2, 4 - 2)
    assert values_in(log) == [b"0", b"1", b"2", b"other", b"3", b"4"]
    assert put(log, b"5", pid=LEASED, sequence=5).decision is Decision.APPEND


@pytest.mark.parametrize(
    ("generation", "sequence", "decision"),
    [(2, 1, Decision.FENCED), (3, 7, Decision.OUT_OF_ORDER), (3, 1, Decision.APPEND), (4, 1, Decision.APPEND)],
)
def test_refusals_append_nothing(generation: int, sequence: int, decision: Decision) -> None:
    log = open_log(MemoryDisk())
    put(log, b"0", pid=LEASED, generation=3, sequence=0)
    answer = put(log, b"1", pid=LEASED, generation=generation, sequence=sequence)
    assert answer.decision is decision
    assert log.next_offset == (2 if decision is Decision.APPEND else 1)
    assert answer.base_offset == (1 if decision is Decision.APPEND else -1)


def test_a_fence_keeps_the_zombie_out_and_survives_a_restart() -> None:
    disk = MemoryDisk()
    log = open_log(disk)
    put(log, b"0", b"1", pid=LEASED, generation=1, sequence=0)
    fenced = log.fence(LEASED, 2, NOW)
    assert fenced == Fenced(Decision.APPEND, 2, 1, 2)
    assert log.fence(LEASED, 2, NOW).decision is Decision.FENCED
    log = open_log(disk.crash(keep_all=True))
    assert put(log, b"2", pid=LEASED, generation=1, sequence=2).decision is Decision.FENCED
    assert put(log, b"2", pid=LEASED, generation=2, sequence=2).decision is Decision.APPEND
    control = [read_header(each) for each in batches_in(log) if read_header(each).is_control]
    assert [(each.producer_id, each.producer_epoch, each.base_offset) for each in control] == [(LEASED, 2, 2)]


def test_append_time_is_the_logs_clock() -> None:
    log = open_log(MemoryDisk(), replace(SMALL, message_timestamp_type=TimestampType.LOG_APPEND))
    answer = put(log, b"a", b"b", timestamp_ms=5, now=at(1234))
    assert answer.append_time_ms == START_MS + 1234
    assert {record.timestamp_ms for record in records_in(log)} == {START_MS + 1234}
    stored = next(iter(batches_in(log)))
    records_of(stored, check_crc=True)
    log.configure(SMALL)
    assert put(log, b"c", timestamp_ms=5).append_time_ms == -1


@pytest.mark.parametrize("max_bytes", [1, 100, 300, 1 << 20])
def test_every_offset_can_be_read_from(max_bytes: int) -> None:
    log = open_log(MemoryDisk(), replace(SMALL, segment_bytes=3000))
    for number in range(100):
        put(log, b"%d" % number, b"+", b"-")
    for offset in range(300):
        data = log.read(offset, max_bytes)
        first = read_header(data)
        assert first.base_offset <= offset <= first.last_offset
        assert len(data) <= max(max_bytes, first.size_bytes)
    assert values_in(log, max_bytes) == [value for number in range(100) for value in (b"%d" % number, b"+", b"-")]


def test_a_read_may_cut_the_last_batch_but_never_the_first() -> None:
    log = open_log(MemoryDisk(), LogConfig())
    for _ in range(5):
        put(log, b"ten bytes.")
    size = len(batch(b"ten bytes."))
    assert len(log.read(0, size + 10)) == size + 10
    assert len(log.read(0, 1)) == size
    assert log.read(0, 1, at_least_one=False) == b""
    assert log.read(0, size, at_least_one=False) == log.read(0, 1)


def test_a_read_ends_at_the_limit() -> None:
    log = open_log(MemoryDisk(), LogConfig())
    for number in range(10):
        put(log, b"%d" % number, b"")
    for limit in range(21):
        data = log.read(0, 1 << 20, limit_offset=limit)
        assert [header.last_offset for _, header in headers(data)] == [last for last in range(1, 20, 2) if last < limit]


def test_offsets_outside_of_the_log_are_refused() -> None:
    log = open_log(MemoryDisk())
    for number in range(20):
        put(log, b"%d" % number)
    assert log.read(20, 100) == b""
    log.delete_before(7)
    for offset in (-1, 6, 21):
        with pytest.raises(OffsetOutOfRange):
            log.read(offset, 100)
    assert log.read(7, 1) != b""


def test_a_segment_closes_by_size_and_by_age() -> None:
    log = open_log(MemoryDisk(), replace(SMALL, segment_bytes=400, segment_ms=1000))
    for number in range(6):
        put(log, b"%d" % number)
    by_size = len(log.segments)
    assert by_size >= 2
    assert all(segment.size_bytes <= 400 for segment in log.segments)
    put(log, b"late", now=at(1001))
    assert len(log.segments) == by_size + 1


def test_few_open_files_are_enough_for_many_segments() -> None:
    disk = MemoryDisk()
    log = open_log(disk)
    for number in range(200):
        put(log, b"%d" % number)
    log.checkpoint(NOW)
    disk = disk.crash(keep_all=True)
    log = PartitionLog.open(disk, FOLDER, SMALL, ProducerMap(), NOW, handles=Handles(disk, limit=2))
    assert values_in(log) == [b"%d" % number for number in range(200)]
    for number in range(200, 300):
        put(log, b"%d" % number)
    assert log.max_timestamp() is not None
    assert len(values_in(log)) == 300


def test_a_start_goes_on_in_the_segment_that_was_active() -> None:
    disk = MemoryDisk()
    config = replace(SMALL, segment_bytes=1 << 20, segment_ms=1000)
    put(open_log(disk, config), b"a", timestamp_ms=START_MS)
    for ms, segments in ((10, 1), (999, 1), (1001, 2)):
        log = open_log(disk.crash(keep_all=True), config, at(ms))
        put(log, b"b", now=at(ms))
        assert len(log.segments) == segments


def test_records_are_found_by_time() -> None:
    log = open_log(MemoryDisk())
    times = [10, 20, 15, 40, 30, 30, 50, 45]
    for number, ms in enumerate(times):
        put(log, b"%d" % number, timestamp_ms=START_MS + ms)
    for wanted in range(5, 60):
        expected = next((number for number, ms in enumerate(times) if ms >= wanted), None)
        found = log.offset_for_time(START_MS + wanted)
        assert (found and found.offset) == expected
        assert found is None or found.timestamp_ms == START_MS + times[found.offset]
    latest = log.max_timestamp()
    assert latest is not None
    assert (latest.offset, latest.timestamp_ms) == (6, START_MS + 50)
    log.delete_before(7)
    latest = log.max_timestamp()
    assert latest is not None and latest.offset == 7


def test_an_empty_log_has_no_times() -> None:
    log = open_log(MemoryDisk())
    assert log.offset_for_time(0) is None
    assert log.max_timestamp() is None


def test_with_flush_every_the_high_watermark_waits_for_the_disk() -> None:
    log = open_log(MemoryDisk(), replace(SMALL, flush=Flush.EVERY))
    put(log, b"a")
    assert (log.high_watermark, log.next_offset) == (0, 1)
    log.flush()
    assert log.high_watermark == 1


def test_a_replicated_log_keeps_offsets_and_epochs_and_learns_the_producers() -> None:
    leader = open_log(MemoryDisk(), leader_epoch=3)
    for number in range(10):
        put(leader, b"%d" % number, pid=LEASED, sequence=number)
    follower = open_log(MemoryDisk(), replicated=True)
    while follower.next_offset < leader.high_watermark:
        follower.append_replicated(leader.read(follower.next_offset, 500), NOW)
    assert follower.high_watermark == 0
    follower.advance_high_watermark(9)
    follower.advance_high_watermark(4)
    assert values_in(follower) == [b"%d" % number for number in range(9)]
    assert follower.producers.highwater(LEASED) == (0, 9)
    assert follower.end_of_epoch(3) == (3, 10)
    with pytest.raises(OffsetOutOfRange):
        follower.append_replicated(leader.read(4, 100), NOW)


@pytest.mark.parametrize("wrong_at", [16, 20, 60, -1], ids=["magic", "crc", "count", "body"])
def test_a_follower_takes_nothing_of_what_rotted_at_its_leader(wrong_at: int) -> None:
    leader = open_log(MemoryDisk(), leader_epoch=3)
    for number in range(3):
        put(leader, b"%d" % number, pid=LEASED, sequence=number)
    sent = bytearray(leader.read(0, 1 << 20))
    *_, (last, _) = headers(sent)
    sent[wrong_at if wrong_at < 0 else last + wrong_at] ^= 1
    follower = open_log(MemoryDisk(), replicated=True)
    with pytest.raises(Damaged, match="the leader's batch at offset 2"):
        follower.append_replicated(sent, NOW)
    assert follower.next_offset == 0
    assert follower.producers.highwater(LEASED) is None
    assert follower.append_replicated(leader.read(0, 1 << 20), NOW) == 3


def test_a_follower_takes_a_body_that_its_leader_acknowledged_whatever_it_is() -> None:
    leader, follower = open_log(MemoryDisk(), leader_epoch=3), open_log(MemoryDisk(), replicated=True)
    odd = batch(b"value")
    odd[-1] ^= 1
    restamp_crc(odd, 0, len(odd))
    append(leader, odd)
    put(leader, b"behind it")
    assert follower.append_replicated(leader.read(0, 1 << 20), NOW) == 2
    follower.advance_high_watermark(2)
    assert list(batches_in(follower)) == list(batches_in(leader))


def test_epochs_end_where_the_next_began() -> None:
    disk = MemoryDisk()
    for _ in range(3):
        log = open_log(disk)
        put(log, b"a")
        put(log, b"b")
        log.close()
    log = open_log(disk)
    assert [log.end_of_epoch(epoch) for epoch in (0, 1, 2, 3)] == [(0, 2), (1, 4), (2, 6), (3, 6)]
    assert log.end_of_epoch(4) == (-1, -1)
    assert log.truncate_to(3) == 3
    assert log.end_of_epoch(1) == (1, 3)


def test_every_start_is_a_new_epoch_even_if_nothing_is_appended() -> None:
    disk = MemoryDisk()
    epochs = []
    for _ in range(4):
        log = open_log(disk)
        epochs.append(log.leader_epoch)
        disk = disk.crash(keep_all=True)
    assert epochs == [0, 1, 2, 3]


def test_cutting_back_forgets_the_producers_batches_too() -> None:
    disk = MemoryDisk()
    log = open_log(disk)
    for number in range(40):
        put(log, b"%d" % number, b"", pid=LEASED, sequence=2 * number)
        if number % 15 == 14:
            log.checkpoint(NOW)
    assert log.truncate_to(33) == 32
    assert (log.next_offset, log.high_watermark) == (32, 32)
    assert log.producers.highwater(LEASED) == (0, 31)
    answer = put(log, b"again", b"", pid=LEASED, sequence=32)
    assert (answer.decision, answer.base_offset) == (Decision.APPEND, 32)
    log = open_log(disk.crash(keep_all=True))
    assert log.offline is None
    assert log.next_offset == 34
    assert values_in(log)[-2:] == [b"again", b""]
    assert put(log, b"again", b"", pid=LEASED, sequence=32).decision is Decision.DUPLICATE


def test_a_clean_start_looks_at_nothing() -> None:
    disk = MemoryDisk()
    log = open_log(disk)
    for number in range(50):
        put(log, b"%d" % number, pid=LEASED, sequence=number)
    log.close()
    log = open_log(disk.crash(keep_all=False))
    assert log.offline is None
    assert log.recovered.scanned_bytes == 0
    assert log.next_offset == 50
    assert values_in(log) == [b"%d" % number for number in range(50)]
    assert log.producers.highwater(LEASED) == (0, 49)


def test_a_fence_is_not_the_latest_record() -> None:
    log = open_log(MemoryDisk(), replace(SMALL, segment_bytes=1 << 20))
    for number in range(10):
        put(log, b"%d" % number, pid=LEASED, sequence=number, timestamp_ms=START_MS - number)
    log.fence(LEASED, 1, at(1000))
    latest = log.max_timestamp()
    assert latest is not None and (latest.offset, latest.timestamp_ms) == (0, START_MS)


def test_a_fence_in_the_log_says_whom_it_fences() -> None:
    log = open_log(MemoryDisk())
    put(log, b"0", pid=LEASED, sequence=0)
    log.fence(LEASED, 1, NOW)
    record = records_of(list(batches_in(log))[-1])[0]
    assert read_fence(record.key, record.value) == (LEASED, 1)
