"""Transactions in one partition: what is taken in, who is fenced, what readers of committed records see."""

import errno
from dataclasses import replace

import pytest

from oncelog.log import aborted, slices
from oncelog.log.aborted import AbortedTransactions
from oncelog.log.checkpoint import Checkpointer
from oncelog.log.cleaner_state import load_state
from oncelog.log.config import LogConfig
from oncelog.log.cutting import cut_back
from oncelog.log.errors import LogStorageError
from oncelog.log.handles import Handles
from oncelog.log.markers import marker_of
from oncelog.log.partition import PartitionLog
from oncelog.producers import Decision
from oncelog.producers.markers import Marker
from oncelog.records.header import headers
from tests.log.memory_disk import MemoryDisk
from tests.log.support import (
    FOLDER,
    KAFKA_PID,
    LEASED,
    NOW,
    SMALL,
    append,
    at,
    batch,
    batches_in,
    open_log,
    put,
    values_in,
)
from tests.log.transactions import committed_values, end, end_well, put_in_transaction

OTHER = KAFKA_PID + 1
COMPACTED = replace(SMALL, cleanup_policy=("compact",), min_cleanable_dirty_ratio=0.0, delete_retention_ms=1000)


@pytest.fixture
def log() -> PartitionLog:
    return open_log(MemoryDisk(1))


def test_readers_wait_for_the_end_and_see_what_is_committed(log: PartitionLog) -> None:
    put(log, b"before")
    put_in_transaction(log, b"a", b"b")
    put_in_transaction(log, b"c", pid=OTHER)
    put(log, b"after")
    assert (log.stable_offset, log.high_watermark) == (1, 5)
    assert committed_values(log) == [b"before"]
    end_well(log, commit=True)
    assert log.stable_offset == 3, "the other one is open"
    end_well(log, commit=False, pid=OTHER)
    assert committed_values(log) == [b"before", b"a", b"b", b"after"]
    assert values_in(log) == [b"before", b"a", b"b", b"c", b"after"]


def test_a_marker_says_where_its_transaction_began(log: PartitionLog) -> None:
    put_in_transaction(log, b"a")
    offset = end_well(log, commit=False)
    data = log.read(offset, 1000)
    _, header = next(iter(headers(data)))
    assert header.is_control
    assert header.is_transactional
    assert marker_of(data) == Marker(is_commit=False, coordinator_epoch=0, first_offset=0)


def test_who_comes_too_late_is_fenced(log: PartitionLog) -> None:
    put_in_transaction(log, b"a", epoch=3)
    assert end(log, commit=True, epoch=2).decision is Decision.FENCED
    assert end(log, commit=True, epoch=3, coordinator=5).decision is Decision.APPEND
    assert put_in_transaction(log, b"late", epoch=2, sequence=0).decision is Decision.FENCED
    put_in_transaction(log, b"b", epoch=3)
    assert end(log, commit=False, epoch=3, coordinator=4).decision is Decision.COORDINATOR_FENCED
    assert log.stable_offset == 2


def test_an_end_that_raises_the_epoch_is_known_by_it(log: PartitionLog) -> None:
    put_in_transaction(log, b"a", epoch=3)
    assert end(log, commit=True, epoch=3, raises_epoch=True).decision is Decision.FENCED, "of the one before"
    assert end(log, commit=True, epoch=4, raises_epoch=True).decision is Decision.APPEND
    assert end(log, commit=True, epoch=4, raises_epoch=True).decision is Decision.APPEND, "written again"
    assert put_in_transaction(log, b"late", epoch=3, sequence=1).decision is Decision.FENCED
    assert put_in_transaction(log, b"b", epoch=4, sequence=1).decision is Decision.OUT_OF_ORDER
    assert put_in_transaction(log, b"b", epoch=4, sequence=0).decision is Decision.APPEND


def test_a_batch_sent_again_is_a_duplicate_within_the_transaction(log: PartitionLog) -> None:
    first = put_in_transaction(log, b"a", sequence=0)
    again = put_in_transaction(log, b"a", sequence=0)
    assert (again.decision, again.base_offset) == (Decision.DUPLICATE, first.base_offset)


def test_a_producer_writes_nothing_beside_its_open_transaction(log: PartitionLog) -> None:
    put(log, b"x", pid=KAFKA_PID, sequence=0)
    put_in_transaction(log, b"a")
    beside = append(log, batch(b"y", pid=KAFKA_PID, sequence=2))
    assert beside.decision is Decision.IN_TRANSACTION
    end_well(log, commit=True)
    assert put(log, b"y", pid=KAFKA_PID, sequence=2).decision is Decision.APPEND


def test_a_producer_of_the_second_version_begins_at_zero(log: PartitionLog) -> None:
    assert put_in_transaction(log, b"a", sequence=5, begins_at_zero=True).decision is Decision.OUT_OF_ORDER
    assert put_in_transaction(log, b"a", sequence=5).decision is Decision.APPEND, "as one that was forgotten"


def test_leased_pids_have_no_transactions(log: PartitionLog) -> None:
    assert put_in_transaction(log, b"a", pid=LEASED).decision is Decision.UNKNOWN_PRODUCER


def test_what_a_coordinator_writes_has_no_sequences(log: PartitionLog) -> None:
    assert put_in_transaction(log, b"offsets", sequence=-1).decision is Decision.APPEND
    assert log.stable_offset == 0
    end_well(log, commit=True)
    assert put_in_transaction(log, b"more", sequence=-1, epoch=-1).decision is Decision.FENCED


def test_an_open_transaction_outlives_a_restart_and_a_kill() -> None:
    disk = MemoryDisk(1)
    log = open_log(disk)
    put_in_transaction(log, b"a")
    log.close()
    log = open_log(disk)
    assert log.stable_offset == 0
    put_in_transaction(log, b"b")
    log = open_log(disk.crash(keep_all=True))
    assert log.stable_offset == 0
    end_well(log, commit=False)
    assert committed_values(log) == []
    assert log.stable_offset == log.next_offset


def test_a_producer_with_an_open_transaction_is_not_forgotten() -> None:
    log = open_log(MemoryDisk(1))
    put_in_transaction(log, b"a")
    put_in_transaction(log, b"b", pid=OTHER)
    end_well(log, commit=True, pid=OTHER)
    later = at(2 * 86_400_000)
    log.maintain(later)
    assert log.producers.live_pids(later) == {KAFKA_PID}


def test_many_aborted_ones_are_found_by_blocks_and_dropped_with_their_records(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aborted, "BLOCK", 4)
    monkeypatch.setattr(aborted, "DROPPED_AT_LEAST", 8)
    disk = MemoryDisk(1)
    log = open_log(disk)
    for number in range(50):
        put_in_transaction(log, b"a%d" % number)
        end_well(log, commit=number % 5 == 0)
    wanted = [b"a%d" % number for number in range(0, 50, 5)]
    assert committed_values(log) == wanted
    size = disk.size(f"{FOLDER}/aborted")
    log.delete_before(80, at(1))
    assert disk.size(f"{FOLDER}/aborted") < size / 2
    assert committed_values(log) == wanted[8:]
    log.checkpoint(at(2))
    assert committed_values(open_log(disk.crash())) == wanted[8:]


def test_a_disk_that_refuses_the_list_of_aborted_ones_loses_nothing() -> None:
    disk = MemoryDisk(1)
    log = open_log(disk)
    put_in_transaction(log, b"a")
    disk.fail("rename", 5)
    end_well(log, commit=False)
    assert not disk.exists(f"{FOLDER}/aborted")
    assert committed_values(log) == []
    assert committed_values(open_log(disk.crash(keep_all=True))) == []


def test_compaction_drops_what_was_aborted_and_keeps_markers_as_long_as_they_are_needed() -> None:
    log = open_log(MemoryDisk(1), COMPACTED)
    put_in_transaction(log, b"1", key=b"a")
    end_well(log, commit=True)
    put_in_transaction(log, b"2", key=b"a")
    end_well(log, commit=False)
    put(log, b"3", key=b"b")
    log.segments.roll()
    assert log.compact(at(10))
    assert values_in(log) == [b"1", b"3"], "an aborted record replaces nothing"
    assert committed_values(log) == [b"1", b"3"]
    put_in_transaction(log, b"4", key=b"a")
    log.segments.roll()
    log.compact(at(20))
    assert values_in(log) == [b"1", b"3", b"4"], "what is open waits, and replaces nothing"
    end_well(log, commit=True)
    log.segments.roll()
    log.compact(at(30))
    assert committed_values(log) == [b"3", b"4"]


def test_what_is_aborted_behind_the_cleaned_segments_takes_no_record_away() -> None:
    log = open_log(MemoryDisk(1), COMPACTED)
    put_in_transaction(log, b"kept", key=b"a")
    put_in_transaction(log, b"aborted", key=b"a", pid=OTHER)
    log.segments.roll()
    end_well(log, commit=False, pid=OTHER)
    end_well(log, commit=True)
    assert log.compact(at(10))
    assert committed_values(log) == [b"kept"]


def test_a_marker_stays_as_long_as_something_of_its_transaction_does() -> None:
    log = open_log(MemoryDisk(1), COMPACTED)
    put_in_transaction(log, b"1", key=b"a")
    of_replaced = end_well(log, commit=True)
    put_in_transaction(log, b"2", key=b"b")
    of_kept = end_well(log, commit=True)
    put_in_transaction(log, b"3", key=b"c")
    of_aborted = end_well(log, commit=False)
    put_in_transaction(log, b"4", key=b"a")
    of_last = end_well(log, commit=True)
    log.segments.roll()
    assert log.compact(at(10))
    assert markers_in(log) == [of_replaced, of_kept, of_aborted, of_last], "readers may be on their way to them"
    put(log, b"5", key=b"d")
    log.segments.roll()
    assert log.compact(at(5000))
    assert markers_in(log) == [of_kept, of_last]
    assert committed_values(log) == [b"2", b"4", b"5"]


def markers_in(log: PartitionLog) -> list[int]:
    found = [header for each in batches_in(log) for _, header in headers(each)]
    return [header.base_offset for header in found if header.is_control]


def test_a_follower_knows_what_its_leader_knows() -> None:
    leader, disk = open_log(MemoryDisk(1)), MemoryDisk(2)
    follower = open_log(disk, replicated=True)
    put_in_transaction(leader, b"a")
    put_in_transaction(leader, b"b", pid=OTHER)
    end_well(leader, commit=False, pid=OTHER)
    follower.append_replicated(leader.read(0, 1 << 20), NOW)
    follower.advance_high_watermark(2)
    assert follower.stable_offset == 0
    end_well(leader, commit=True)
    follower.append_replicated(leader.read(3, 1 << 20), NOW)
    assert follower.stable_offset == 0, "its end may be lost yet"
    follower.advance_high_watermark(4)
    assert follower.stable_offset == 4
    assert committed_values(follower) == committed_values(leader) == [b"a"]
    assert committed_values(open_log(disk.crash(keep_all=True), replicated=True)) in ([], [b"a"])


def test_a_reader_is_told_of_so_many_aborted_ones_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aborted, "BLOCK", 4)
    monkeypatch.setattr(slices, "MOST_TOLD", 16)
    monkeypatch.setattr(slices, "LEAST_COMMITTED_BYTES", 600)
    log = open_log(MemoryDisk(1), LogConfig(retention_ms=-1, index_interval_bytes=100))
    for number in range(200):
        put_in_transaction(log, b"a%d" % number)
        end_well(log, commit=number % 10 == 0)
    found = log.find(0, 1 << 20, stable_only=True)
    assert found is not None
    assert 0 < len(log.aborted_within(0, found)) <= 16
    assert committed_values(log, 1 << 20) == [b"a%d" % number for number in range(0, 200, 10)]


def test_a_reader_is_given_something_however_many_were_open_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """No part of what they wrote is told of fewer."""
    monkeypatch.setattr(aborted, "BLOCK", 4)
    monkeypatch.setattr(slices, "MOST_TOLD", 16)
    monkeypatch.setattr(slices, "LEAST_COMMITTED_BYTES", 600)
    log = open_log(MemoryDisk(1), LogConfig(retention_ms=-1, index_interval_bytes=100))
    for number in range(50):
        put_in_transaction(log, b"a", pid=KAFKA_PID + number)
    put(log, b"nobody's")
    for number in range(50):
        end_well(log, commit=False, pid=KAFKA_PID + number)
    assert committed_values(log, 1 << 20) == [b"nobody's"]


def test_how_many_were_aborted_below_an_offset_is_told_without_a_look_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aborted, "BLOCK", 4)
    disk = MemoryDisk(1)
    listed = AbortedTransactions(disk, FOLDER, Handles(disk))
    disk.mkdir(FOLDER)
    listed.begin_with([], 7)
    listed.add(aborted.Aborted(KAFKA_PID, 10 * number, 10 * number + 5) for number in range(11))
    for offset in range(130):
        assert listed.total_below(offset) == 7 + sum(1 for number in range(11) if 10 * number + 5 < offset), offset


def test_the_first_ones_of_a_list_are_dropped_or_it_stays_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aborted, "BLOCK", 4)
    monkeypatch.setattr(aborted, "DROPPED_AT_LEAST", 8)
    disk = MemoryDisk(1)
    disk.mkdir(FOLDER)
    listed = AbortedTransactions(disk, FOLDER, Handles(disk))
    every = [aborted.Aborted(KAFKA_PID, 10 * number, 10 * number + 5) for number in range(18)]
    listed.add(every)
    size = disk.size(listed.path)
    disk.fail("rename", errno.EIO)
    listed.forget_below(150)
    disk.heal()
    assert (listed.total, disk.size(listed.path), listed.between(0, 200)) == (18, size, every)
    listed.forget_below(150)
    assert (listed.total, listed.between(0, 200)) == (18, every[12:])
    listed.add([aborted.Aborted(KAFKA_PID, 180, 185)])
    again = AbortedTransactions(disk, FOLDER, Handles(disk))
    assert (again.load(1000), again.between(0, 200)) == (19, [*every[12:], aborted.Aborted(KAFKA_PID, 180, 185)])


def test_what_stands_open_before_the_start_is_known_after_a_power_failure() -> None:
    for number in range(30):
        disk = MemoryDisk(number)
        log = open_log(disk)
        put(log, b"before")
        log.checkpoint(NOW)
        put_in_transaction(log, b"a")
        put_in_transaction(log, b"b", b"c", b"d")
        log.delete_before(3)
        log = open_log(disk.crash())
        assert (log.log_start_offset, log.next_offset >= 3, log.stable_offset) == (3, True, 3), f"seed {number}"
        put(log, b"behind")
        assert committed_values(log) == [], f"seed {number}"
        end_well(log, commit=True)
        assert committed_values(log)[-1] == b"behind", f"seed {number}"


def test_a_recovery_point_that_an_abort_moves_itself_knows_of_it(caplog: pytest.LogCaptureFixture) -> None:
    for number in range(20):
        disk = MemoryDisk(number)
        log = open_log(disk, checkpointer=Checkpointer(limit_bytes=2))  # each commit brings all to the disk at once
        put_in_transaction(log, b"aborted")
        end_well(log, commit=False)
        assert log.is_behind is False
        again = open_log(disk.crash(keep_all=number == 0))
        assert committed_values(again) == [], f"seed {number}"
        assert again.recovered.scanned_bytes == 0
    assert "made anew from the log" not in caplog.text


def test_an_abort_that_the_disk_refuses_is_none() -> None:
    disk = MemoryDisk()
    log = open_log(disk)
    put_in_transaction(log, b"open")
    disk.fail("pwritev", errno.EIO)
    with pytest.raises(LogStorageError):
        end(log, commit=False)
    disk.heal()
    put(log, b"more")
    assert log.stable_offset == 0
    end_well(log, commit=True)
    assert committed_values(log) == [b"open", b"more"]
    log.close()
    assert committed_values(open_log(disk.crash())) == [b"open", b"more"]


def test_what_is_aborted_behind_a_cut_stays_known_until_compaction_has_taken_it_out() -> None:
    disk = MemoryDisk(1)
    compacted(disk).close()
    found = disk.crash(keep_all=True)
    cut_back(found, FOLDER, 5)
    log = open_log(found, COMPACTED)
    put_in_transaction(log, b"aborted", key=b"a")
    end_well(log, commit=False)
    for number in range(40):  # so that it comes to what the pass before the cut had looked at
        put(log, b"%d" % number, key=b"k%d" % number)
    log.segments.roll()
    log.checkpoint(NOW)
    assert log.begin_compaction(NOW) is not None
    assert b"aborted" not in committed_values(log)


def test_a_log_that_is_cut_back_was_compacted_up_to_there_at_most() -> None:
    disk = MemoryDisk(1)
    log = compacted(disk, replicated=True)
    assert load_state(disk, FOLDER).dirty_offset == 30
    log.truncate_to(5)
    assert load_state(disk, FOLDER).gaps_below == 5


def compacted(disk: MemoryDisk, *, replicated: bool = False) -> PartitionLog:
    log = open_log(disk, COMPACTED, replicated=replicated)
    for number in range(30):
        put(log, b"%d" % number, key=b"k%d" % number)
    log.advance_high_watermark(log.next_offset)
    log.segments.roll()
    log.checkpoint(NOW)
    assert log.compact(NOW)
    return log
