"""A log whose records other brokers have, too: epochs, the high watermark, and what becomes of waits."""

from dataclasses import replace

import pytest

from oncelog.log.config import Flush
from oncelog.log.partition import Fate, PartitionLog
from oncelog.log.partition_checking import check_partition
from oncelog.producers import Decision
from oncelog.records.header import stamp
from tests.log.memory_disk import MemoryDisk
from tests.log.support import FOLDER, NOW, SMALL, batch, open_log, put

LEASED = 7


def filled(disk: MemoryDisk, *, epoch: int, records: int) -> PartitionLog:
    """As a follower has it."""
    leader = open_log(MemoryDisk(), leader_epoch=epoch)
    for number in range(records):
        put(leader, b"%d" % number, pid=LEASED, sequence=number)
    follower = open_log(disk, replicated=True)
    follower.append_replicated(leader.read(0, 1 << 20), NOW)
    return follower


@pytest.mark.parametrize("is_orderly", [True, False], ids=["stop", "kill"])
def test_a_follower_comes_back_in_its_leaders_epoch(is_orderly: bool) -> None:
    disk = MemoryDisk()
    follower = filled(disk, epoch=3, records=4)
    if is_orderly:
        follower.close()
    back = open_log(disk.crash(keep_all=True), replicated=True)
    assert (back.leader_epoch, back.epochs.entries) == (3, ((3, 0),))
    leader = open_log(MemoryDisk(), leader_epoch=3)
    for number in range(6):
        put(leader, b"%d" % number, pid=LEASED, sequence=number)
    assert back.append_replicated(leader.read(4, 1 << 20), NOW) == 6


def test_an_epoch_without_a_record_is_forgotten_by_who_follows() -> None:
    """KAFKA-10706: a leader that appended nothing would offer the next one an epoch that nobody else knows, and refuse
    what was appended before it."""
    log = filled(MemoryDisk(), epoch=3, records=4)
    log.begin_epoch(5)
    assert log.end_of_epoch(5) == (5, 4)
    log.follow_epoch(6)
    assert (log.epochs.entries, log.leader_epoch) == (((3, 0),), 6)
    assert (log.epochs.last_before(4), log.epochs.last_before(0)) == (3, -1)


def test_what_ends_in_an_epoch_is_of_it() -> None:
    log = filled(MemoryDisk(), epoch=3, records=2)
    log.begin_epoch(5)
    put(log, b"2")
    assert [log.epochs.last_before(offset) for offset in range(4)] == [-1, 3, 3, 5]
    log.begin_epoch(6)
    assert log.epochs.last_before(3) == 5, "6 holds nothing yet"


def test_what_waits_is_lost_with_its_leaders_epoch() -> None:
    """Offsets alone would say that it is safe once another leader's records stand there."""
    log = open_log(MemoryDisk(), replicated=True)
    log.begin_epoch(2)
    first = put(log, b"first", pid=LEASED, sequence=0)
    again = put(log, b"first", pid=LEASED, sequence=0)
    fenced = log.fence(LEASED, 1, NOW)
    assert (again.decision, fenced.epoch) == (Decision.DUPLICATE, 2)
    assert log.fate(first.end) is log.fate(again.end) is log.fate(log.end) is Fate.WAITS
    log.advance_high_watermark(1)
    assert (log.fate(first.end), log.fate(log.end)) == (Fate.SAFE, Fate.WAITS)
    end = log.end
    log.follow_epoch(3)
    log.truncate_to(1)
    other = open_log(MemoryDisk(), leader_epoch=3)
    for number in range(3):
        put(other, b"another %d" % number)
    log.append_replicated(other.read(1, 1 << 20), NOW)
    log.advance_high_watermark(3)
    assert log.fate(end) is log.fate(again.end) is Fate.LOST


def test_a_wait_ends_when_the_log_goes_offline() -> None:
    log = open_log(MemoryDisk(), replicated=True)
    log.begin_epoch(1)
    safe, waits = put(log, b"a"), put(log, b"b")
    log.advance_high_watermark(1)
    log.go_offline("the disk is gone")
    assert (log.fate(safe.end), log.fate(waits.end)) == (Fate.SAFE, Fate.LOST)


@pytest.mark.parametrize(("is_orderly", "power_fails", "least"), [(True, True, 3), (False, False, 0)])
def test_a_start_knows_a_high_watermark(is_orderly: bool, power_fails: bool, least: int) -> None:
    """So that readers are not sent away until the followers have asked again."""
    disk = MemoryDisk()
    log = filled(disk, epoch=3, records=4)
    log.advance_high_watermark(3)
    if is_orderly:
        log.close()
    back = open_log(disk.crash(keep_all=not power_fails), replicated=True)
    assert least <= back.high_watermark <= 3


def test_a_log_that_was_cut_back_into_a_gap_is_whole_to_a_start_and_to_a_check() -> None:
    """Its leader compacts. Behind the last batch there is nothing, up to the end."""
    disk = MemoryDisk()
    log = open_log(disk, replicated=True, leader_epoch=0)

    def take(log: PartitionLog, *offsets: int) -> None:
        for offset in offsets:
            data = batch(b"%d" % offset)
            stamp(data, 0, offset, log.leader_epoch)
            log.append_replicated(data, NOW)

    def checked(disk: MemoryDisk) -> tuple[list[str], int]:
        found = check_partition(disk, FOLDER, replicated=True, stayed_up=True)
        return found.damage, found.end_offset

    take(log, 0, 1, 10, 20)
    assert log.truncate_to(15) == 15
    assert log.begin_note() is None
    log.flush()
    assert not disk.exists(f"{FOLDER}/flushed")
    log.checkpoint(NOW)
    found = disk.crash(keep_all=True)
    assert checked(found) == ([], 15)
    again = open_log(found, replicated=True, leader_epoch=0, stayed_up=True)
    assert (again.offline, again.next_offset) == (None, 15)
    take(again, 30)
    note = again.begin_note()
    assert note is not None
    note()
    found = found.crash(keep_all=True)
    assert checked(found) == ([], 31)
    again = open_log(found, replicated=True, leader_epoch=0, stayed_up=True)
    assert (again.offline, again.next_offset) == (None, 31)


def test_a_high_watermark_is_not_below_the_start_of_the_log() -> None:
    disk = MemoryDisk()
    log = filled(disk, epoch=3, records=4)
    log.advance_high_watermark(2)
    log.checkpoint(NOW)
    log.advance_high_watermark(4)
    log.delete_before(4)
    assert open_log(disk.crash(keep_all=True), replicated=True).high_watermark == 4


def test_where_the_disk_is_waited_for_others_are_told_of_what_is_flushed_alone() -> None:
    log = open_log(MemoryDisk(), replace(SMALL, flush=Flush.EVERY), replicated=True)
    put(log, b"a")
    assert (log.next_offset, log.safe_offset) == (1, 0)
    log.flush()
    put(log, b"b")
    assert (log.next_offset, log.safe_offset, log.high_watermark) == (2, 1, 0)
    log.truncate_to(0)
    assert log.safe_offset == 0


def test_of_a_log_that_begins_anew_nothing_is_flushed() -> None:
    """Else a leader would count what it has not brought to the disk."""
    log = open_log(MemoryDisk(), replace(SMALL, flush=Flush.EVERY), replicated=True)
    put(log, b"a")
    log.flush()
    log.begin_anew(b"", NOW)
    put(log, b"b")
    assert (log.next_offset, log.safe_offset) == (1, 0)
