"""Damage that a torn write cannot explain: said with the file's name and what to do, and nothing is taken for gone."""

import struct
from dataclasses import replace

import pytest

from oncelog.log.config import LogConfig
from oncelog.log.errors import OffsetOutOfRange
from oncelog.log.partition import PartitionLog
from tests.log.memory_disk import MemoryDisk
from tests.log.support import FOLDER, LEASED, NOW, SMALL, at, open_log, put, values_in

COMPACTED = replace(SMALL, cleanup_policy=("compact",), min_cleanable_dirty_ratio=0.01)
LARGE = LogConfig(retention_ms=-1, index_interval_bytes=200)
INDEX = f"{FOLDER}/{0:020d}.index"
START = f"{FOLDER}/log-start"


def filled(disk: MemoryDisk, config: LogConfig, count: int = 40) -> PartitionLog:
    log = open_log(disk, config)
    for number in range(count):
        put(log, b"%d" % number, key=b"k%d" % (number % 3), pid=LEASED, sequence=number)
    return log


def test_a_base_offset_that_grew_is_no_gap_of_compaction_behind_the_recovery_point() -> None:
    disk = MemoryDisk()
    log = filled(disk, COMPACTED)
    assert log.compact(NOW)
    log.checkpoint(NOW)
    for number in range(40, 43):
        put(log, b"%d" % number, pid=LEASED, sequence=number, key=b"x")
    active = log.segments.active
    place = active.find(42)
    assert place is not None
    found = disk.crash(keep_all=True)
    found.flip(active.log_path, place[0] + 1, bit=6)
    again = open_log(found, COMPACTED)
    assert (again.offline, again.next_offset) == (None, 42)
    assert again.producers.highwater(LEASED) == (0, 41)


def test_gaps_that_compaction_made_are_read_again_without_any_snapshot() -> None:
    disk = MemoryDisk()
    log = filled(disk, COMPACTED)
    assert log.compact(NOW)
    left = values_in(log)
    found = disk.crash(keep_all=True)
    for name in found.listdir(FOLDER):
        if name.endswith(".producers"):
            found.unlink(f"{FOLDER}/{name}")
    again = open_log(found, COMPACTED)
    assert values_in(again) == left


@pytest.mark.parametrize("clean", [True, False])
def test_a_first_segment_that_went_missing_takes_the_partition_offline(clean: bool) -> None:
    disk = MemoryDisk()
    log = filled(disk, SMALL)
    log.flush()
    first, second = (segment.base_offset for segment in list(log.segments)[:2])
    if clean:
        log.close()
    found = disk.crash(keep_all=True)
    found.unlink(f"{FOLDER}/{first:020d}.log")
    log = open_log(found, SMALL)
    assert log.offline is not None
    assert f"lacks the segments before {second}" in log.offline and f"put the line {second} into" in log.offline
    found.open(f"{FOLDER}/log-start", create=True).pwritev([b"%d\n" % second], 0)
    log = open_log(found, SMALL)
    assert log.offline is None and log.log_start_offset == second


def deleted_up_to(offset: int) -> MemoryDisk:
    disk = MemoryDisk()
    log = filled(disk, LARGE)
    log.delete_before(offset)
    log.close()
    return disk.crash(keep_all=True)


def test_no_damage_of_the_noted_start_hides_or_removes_a_record() -> None:
    size_bytes = deleted_up_to(15).size(START)
    for position in range(size_bytes):
        for bit in range(8):
            found = deleted_up_to(15)
            found.flip(START, position, bit)
            log = open_log(found, LARGE)
            assert log.offline is not None and "log-start is damaged" in log.offline
            assert found.size(f"{FOLDER}/{0:020d}.log") > 0
    for kept in range(size_bytes):
        found = deleted_up_to(15)
        found.open(START, write=True).truncate(kept)
        assert open_log(found, LARGE).offline is not None
    assert open_log(deleted_up_to(15), LARGE).log_start_offset == 15


@pytest.mark.parametrize("noted", [b"99999999999\n", b"2147483647\n", b"-5\n", b"1_0\n", b"\xff", b""])
def test_a_noted_epoch_that_cannot_be_one_is_passed_over(noted: bytes) -> None:
    disk = MemoryDisk()
    log = filled(disk, SMALL)
    log.close()
    epoch = log.leader_epoch
    found = disk.crash(keep_all=True)
    file = found.open(f"{FOLDER}/leader-epoch", write=True)
    file.truncate(0)
    file.pwritev([noted], 0)
    log = open_log(found, SMALL)
    assert (log.offline, log.leader_epoch) == (None, epoch + 1)
    put(log, b"x")


def test_a_log_whose_first_segments_retention_took_starts_whatever_flush_was_under_way() -> None:
    config = replace(SMALL, retention_ms=1000)
    disk = MemoryDisk()
    log = filled(disk, config, 42)
    log.checkpoint(NOW)
    for number in range(42, 60):
        put(log, b"%d" % number, pid=LEASED, sequence=number, now=at(5000), timestamp_ms=at(5000).wall_ms)
        if number % 5 == 0:
            log.checkpoint(at(5000))
    late = log.begin_flush(at(5000))
    log.maintain(at(5000))
    start = log.log_start_offset
    assert 0 < start < 42
    late.write_snapshot()  # its bases are from before
    again = open_log(disk.crash(), config, at(5000))
    assert (again.offline, again.log_start_offset) == (None, start)


@pytest.mark.parametrize("position", [0, 3, 7, 8, 11, 15])
def test_an_index_that_lies_is_made_anew_wherever_it_is_used(position: int) -> None:
    for entry in range(4):
        for closed in (True, False):
            disk = MemoryDisk()
            log = filled(disk, replace(LARGE, segment_bytes=1500 if closed else 1 << 20))
            log.close()
            found = disk.crash(keep_all=True)
            found.flip(INDEX, entry * 24 + position, bit=6)
            again = open_log(found, LARGE)
            assert again.offline is None, again.offline
            assert values_in(again) == [b"%d" % number for number in range(40)]
            again = open_log(found.crash(keep_all=True), LARGE)
            first = again.offset_for_time(NOW.wall_ms)
            assert first is not None and first.offset == 0


def test_an_index_whose_end_is_wrong_does_not_make_a_whole_closed_segment_count_as_short() -> None:
    disk = MemoryDisk()
    log = filled(disk, SMALL)
    log.close()
    found = disk.crash(keep_all=True)
    size_bytes = found.size(INDEX)
    found.open(INDEX, write=True).pwritev([struct.pack(">q", 1 << 40)], size_bytes - 16)
    again = open_log(found, SMALL)
    assert again.offline is None
    assert values_in(again) == [b"%d" % number for number in range(40)]


def test_an_offset_below_the_start_is_out_of_range_as_ever() -> None:
    log = filled(MemoryDisk(), SMALL)
    with pytest.raises(OffsetOutOfRange):
        log.read(-1, 100)
