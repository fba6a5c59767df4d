"""What is forgotten, and what never is."""

import errno
from copy import deepcopy
from dataclasses import replace
from functools import partial
from itertools import islice, pairwise
from typing import Any

import pytest

from oncelog.log.batch_replay import replay_batch
from oncelog.log.config import LogConfig
from oncelog.log.errors import LogStorageError, OffsetOutOfRange
from oncelog.log.partition import PartitionLog
from oncelog.log.partition_checking import check_partition
from oncelog.log.work_steps import at_once
from oncelog.producers import Decision, ProducerMap
from tests.log.memory_disk import MemoryDisk
from tests.log.support import FOLDER, LEASED, OTHER_LEASED, SMALL, START_MS, at, open_log, put, values_in
from tests.log.test_compaction_steps import NotingDisk

SECOND_MS = 1000
HOUR_MS = 3_600_000


def filled(disk: MemoryDisk, count: int = 60, **settings: object) -> PartitionLog:
    log = open_log(disk, replace(SMALL, **settings))  # type: ignore[arg-type]
    put(log, b"early", pid=OTHER_LEASED, sequence=0)
    for number in range(1, count):
        put(log, b"%d" % number, pid=LEASED, sequence=number - 1, timestamp_ms=START_MS + number * SECOND_MS)
    return log


def test_whole_segments_go_when_their_newest_record_is_too_old() -> None:
    log = filled(MemoryDisk(), retention_ms=20 * SECOND_MS)
    log.maintain(at(60 * SECOND_MS))
    kept = values_in(log)
    assert kept[-1] == b"59"
    assert b"41" in kept
    assert log.log_start_offset == log.segments[0].base_offset > 20
    newest_in_first = log.segments[0].max_timestamp_ms
    assert newest_in_first >= START_MS + 40 * SECOND_MS


def test_an_index_whose_last_time_rotted_makes_no_segment_too_old() -> None:
    disk = MemoryDisk()
    log = filled(disk, retention_ms=1000 * SECOND_MS)
    index = log.segments[0].index.path
    log.close()
    disk.flip(index, disk.size(index) - 5, bit=0)  # 49 days earlier
    again = open_log(disk, log.config)
    assert again.segments[0].max_timestamp_ms < START_MS
    again.maintain(at(60 * SECOND_MS))
    assert again.log_start_offset == 0 and again.segments[0].max_timestamp_ms > START_MS


def test_a_log_that_is_wholly_too_old_becomes_empty() -> None:
    disk = MemoryDisk()
    log = filled(disk, retention_ms=20 * SECOND_MS)
    log.maintain(at(1000 * SECOND_MS))
    assert (log.log_start_offset, log.next_offset, log.size_bytes) == (60, 60, 0)
    assert put(log, b"x").base_offset == 60
    log = open_log(disk.crash(keep_all=True), log.config)
    assert values_in(log) == [b"x"]


def test_a_kill_while_segments_go_one_after_the_other_leaves_a_log_that_can_be_opened() -> None:
    disk = MemoryDisk()
    log = filled(disk, retention_ms=20 * SECOND_MS)
    before = log.segments.bases
    beginnings = set()
    for wait in log.maintaining(at(60 * SECOND_MS)):
        if wait is not None:
            wait()
        found = deepcopy(disk).crash(keep_all=True)
        assert check_partition(found, FOLDER).damage == []
        opened = open_log(found, log.config)
        assert opened.offline is None
        assert values_in(opened)[-1] == b"59"
        beginnings.add(opened.segments[0].base_offset)
    assert len(beginnings) > 3 and beginnings == {base for base in before if base <= log.log_start_offset}


def test_a_flush_that_began_before_segments_went_does_not_write_over_what_says_so() -> None:
    disk = MemoryDisk()
    log = open_log(disk, replace(SMALL, retention_ms=1))
    plans = []
    while len(log.segments) == 1:
        plans.append(log.begin_flush(at(0)))
        put(log, b"x" * 20)
    base = log.segments[1].base_offset
    assert plans[-1].snapshot.point.offset == base
    log.delete_before(base)
    for plan in plans:
        plan.write_snapshot()
    assert open_log(disk.crash(keep_all=True), log.config).offline is None


def test_what_producers_were_is_found_in_steps_and_by_threads_while_others_append(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("oncelog.log.batch_replay.BATCHES_IN_A_STEP", 2)
    read: list[str] = []
    replay = replay_batch

    def noted(*arguments: Any) -> None:
        read.append("b")
        replay(*arguments)

    disk = MemoryDisk()
    log = filled(disk, retention_ms=20 * SECOND_MS)
    monkeypatch.setattr("oncelog.log.batch_replay.replay_batch", noted)
    appended = 59
    for wait in log.maintaining(at(60 * SECOND_MS)):
        read.append("|")
        if wait is not None:
            before = len(read)
            wait()
            assert len(read) == before, "nothing of the log is read by a thread"
        put(log, b"more", pid=LEASED, sequence=appended, timestamp_ms=START_MS + 60 * SECOND_MS)
        appended += 1
    assert read.count("b") == log.log_start_offset
    assert max(map(len, "".join(read).split("|"))) == 2
    for opened in (log, open_log(disk.crash(keep_all=True), log.config)):
        assert opened.offline is None
        assert put(opened, b"again", pid=LEASED, sequence=appended - 1).decision is Decision.DUPLICATE
        assert opened.producers.highwater(OTHER_LEASED) == (0, 0)


def test_the_oldest_segments_go_when_the_log_is_too_large() -> None:
    log = filled(MemoryDisk(), retention_bytes=1500)
    before = log.size_bytes
    log.maintain(at(0))
    assert before > 1500 + 600
    assert 1500 <= log.size_bytes <= 1500 + 600
    assert values_in(log)[-1] == b"59"


def test_nothing_goes_without_a_limit_or_with_compaction_alone() -> None:
    for settings in ({"retention_ms": -1}, {"retention_ms": 1, "cleanup_policy": ("compact",)}):
        log = filled(MemoryDisk(), **settings)
        log.maintain(at(10**9))
        assert log.log_start_offset == 0


def test_what_is_not_replicated_yet_stays() -> None:
    log = open_log(MemoryDisk(), replace(SMALL, retention_ms=1), replicated=True)
    for number in range(30):
        put(log, b"%d" % number)
    log.advance_high_watermark(9)
    log.maintain(at(10**6))
    assert log.log_start_offset <= 9
    assert log.read(9, 1, limit_offset=30) != b""


def test_retention_never_forgets_a_live_producer() -> None:
    disk = MemoryDisk()
    log = filled(disk, retention_ms=20 * SECOND_MS)
    log.maintain(at(60 * SECOND_MS))
    assert b"early" not in values_in(log)
    for keep_all in (True, False):
        again = open_log(disk.crash(keep_all=keep_all), log.config)
        assert again.producers.highwater(OTHER_LEASED) == (0, 0)
        assert put(again, b"early", pid=OTHER_LEASED, sequence=0).decision is Decision.DUPLICATE
        assert put(again, b"late", pid=OTHER_LEASED, sequence=1).decision is Decision.APPEND


def test_a_log_cut_back_to_its_start_still_knows_who_wrote_before_it() -> None:
    disk = MemoryDisk()
    log = filled(disk)
    log.delete_before(59)
    log.configure(replace(SMALL, segment_bytes=1 << 20))
    for number in range(5):
        put(log, b"later%d" % number)
        log.checkpoint(at(number))
    start = log.log_start_offset
    log.truncate_to(start)
    assert log.producers.highwater(OTHER_LEASED) == (0, 0)
    log = open_log(disk.crash(keep_all=True))
    assert log.next_offset == start
    assert log.producers.highwater(OTHER_LEASED) == (0, 0)
    assert log.producers.highwater(LEASED) == (0, start - 2)


def test_deleted_records_cannot_be_read_and_the_rest_can() -> None:
    disk = MemoryDisk()
    log = filled(disk)
    for offset in (1, 7, 30, 59):
        assert log.delete_before(offset) == offset
        assert values_in(log) == [b"%d" % number for number in range(offset, 60)]
        disk = disk.crash(keep_all=True)
        log = open_log(disk)
        assert log.log_start_offset == offset
        assert values_in(log) == [b"%d" % number for number in range(offset, 60)]
    assert log.delete_before(3) == 59
    assert len(log.segments) <= 2


def test_epochs_before_the_start_are_forgotten() -> None:
    disk = MemoryDisk()
    for _ in range(3):
        log = filled(disk, 2)
        log.close()
    log = open_log(disk)
    end = log.next_offset
    put(log, b"x")
    log.delete_before(end)
    assert log.end_of_epoch(3) == (3, end + 1)
    assert log.end_of_epoch(0) == (0, end)


def test_producers_are_known_after_a_snapshot_that_could_not_be_made(monkeypatch: pytest.MonkeyPatch) -> None:
    log = open_log(MemoryDisk(), SMALL)
    for number in range(30):
        put(log, b"%d" % number, pid=LEASED, sequence=number)

    def fail(producers: ProducerMap, *_: object) -> None:
        producers.clear()
        raise OSError(errno.EIO, "cannot be read")

    monkeypatch.setattr("oncelog.log.stored_producers.replaying", fail)
    with pytest.raises(LogStorageError):
        log.delete_before(20)
    assert log.producers.highwater(LEASED) == (0, 29)


def test_a_snapshot_made_for_retention_makes_no_producer_older_than_it_is() -> None:
    disk = MemoryDisk()
    log = open_log(disk, replace(SMALL, retention_ms=HOUR_MS))
    put(log, b"0", pid=LEASED, sequence=0)
    log.checkpoint(at(20 * HOUR_MS))
    log.maintain(at(21 * HOUR_MS))
    assert log.log_start_offset == 1
    later = open_log(disk.crash(), now=at(21 * HOUR_MS))
    later.maintain(at(28 * HOUR_MS))
    assert later.producers.highwater(LEASED) == (0, 0), "28 hours are not two lifetimes"


# Taking turns


def test_who_appends_waits_for_nothing_while_segments_go_one_at_a_time() -> None:
    disk = NotingDisk()
    log = filled(disk)
    before = len(log.segments)
    steps = log.deleting_before(59)
    disk.waited.clear()
    counts = [before]
    for wait in steps:
        counts.append(len(log.segments))
        with pytest.raises(OffsetOutOfRange):
            log.read(log.segments[0].base_offset - 1, 100)
        if wait is not None:
            disk.is_aside = True
            wait()
            disk.is_aside = False
    assert disk.waited == []
    assert before - counts[-1] > 3
    assert max(more - less for more, less in pairwise(counts)) == 1
    assert values_in(log) == values_in(open_log(disk.crash())) == [b"59"]


def test_where_two_delete_together_the_start_never_goes_back() -> None:
    disk = MemoryDisk()
    log = filled(disk)
    first, second = log.deleting_before(30), log.deleting_before(59)
    for steps in (first, second):
        flush = next(steps)
        assert flush is not None
        flush()
    while not (isinstance(wait := next(first), partial) and wait.args[-1] == 30):
        if wait is not None:
            wait()
    # The first is about to note its start when the second is done.
    assert at_once(second) == 59
    wait()
    assert at_once(first) == 59
    assert values_in(log) == values_in(open_log(disk.crash())) == [b"59"]


@pytest.mark.parametrize("steps", range(20))
def test_a_log_that_is_cut_below_where_it_is_to_begin_begins_no_later_than_it_ends(steps: int) -> None:
    """By another leader, while a follower deletes what its last one has deleted."""
    disk = MemoryDisk()
    filled(disk).close()
    log = open_log(disk, replicated=True)
    log.advance_high_watermark(60)
    removing = log.deleting_before(30)
    for wait in islice(removing, steps):
        if wait is not None:
            wait()
    late = next(removing, None)  # a thread has it, and is slow
    log.truncate_to(20)
    if late is not None:
        late()
    for wait in removing:
        if wait is not None:
            wait()
    assert log.log_start_offset <= log.next_offset
    values = values_in(log)
    log.close()
    again = open_log(disk.crash(keep_all=True), replicated=True)
    assert again.offline is None and again.log_start_offset <= again.next_offset
    assert values_in(again) == values


@pytest.mark.parametrize("steps", range(12))
def test_a_log_that_is_cut_back_or_closed_between_two_steps_loses_nothing_else(steps: int) -> None:
    disk = MemoryDisk()
    log = filled(disk)
    log.checkpoint(at(0))
    removing = log.deleting_before(30)
    for wait in islice(removing, steps):
        if wait is not None:
            wait()
    log.truncate_to(40)
    put(log, b"again")
    for wait in islice(removing, 2):
        if wait is not None:
            wait()
    log.close()
    for wait in removing:
        if wait is not None:
            wait()
    log = open_log(disk.crash(keep_all=True))
    assert log.offline is None
    assert values_in(log)[-11:] == [*(b"%d" % number for number in range(30, 40)), b"again"]


def test_a_log_is_brought_to_the_disk_once_for_many_starts_within_what_is_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disk = MemoryDisk()
    log = open_log(disk, LogConfig(retention_ms=-1))
    for number in range(20):
        put(log, b"%d" % number)
    flushed: list[str] = []
    step = disk.step

    def watched(operation: str, path: str) -> bool:
        if operation == "fdatasync" and path == log.segments.active.log_path:
            flushed.append(path)
        return step(operation, path)

    monkeypatch.setattr(disk, "step", watched)
    for offset in range(1, 20):
        log.delete_before(offset)
    assert len(flushed) == 1
    put(log, b"20")
    log.delete_before(21)
    assert len(flushed) == 2


def test_what_is_under_way_for_a_log_that_is_let_go_writes_nothing_for_the_one_that_has_its_folder_then() -> None:
    for count in range(30):
        disk = MemoryDisk()
        log = open_log(disk, SMALL)
        for number in range(40):
            put(log, b"%d" % number)
        waits = (step for step in log.deleting_before(25) if step is not None)
        for wait in islice(waits, count):
            wait()
        last = next(waits, None)
        if last is None:
            break
        log.abandon()
        for name in disk.listdir(FOLDER):
            disk.unlink(f"{FOLDER}/{name}")
        another = open_log(disk, SMALL)
        put(another, b"another")
        names = disk.listdir(FOLDER)
        last()
        for wait in waits:
            wait()
        assert disk.listdir(FOLDER) == names, f"after {count} waits"
        again = open_log(disk.crash(keep_all=True), SMALL, stayed_up=True)
        assert (again.offline, values_in(again)) == (None, [b"another"])
    assert count > 3
