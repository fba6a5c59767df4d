"""Damage that a torn write cannot explain: said with the file's name and what to do, and nothing is taken for gone."""

import struct
from copy import deepcopy
from dataclasses import replace

import pytest

from oncelog.log.compaction_swap import decide_swap
from oncelog.log.config import LogConfig
from oncelog.log.cutting import cut_back
from oncelog.log.errors import LogStorageError, OffsetOutOfRange
from oncelog.log.notes import write_start
from oncelog.log.partition import PartitionLog
from oncelog.log.partition_checking import check_partition
from tests.log.memory_disk import MemoryDisk
from tests.log.support import FOLDER, LEASED, NOW, SMALL, at, open_log, put, values_in
from tests.logged import messages

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


def test_a_folder_that_was_emptied_is_told_and_one_that_is_new_is_not(caplog: pytest.LogCaptureFixture) -> None:
    disk = MemoryDisk()
    log = filled(disk, SMALL)
    log.close()
    assert messages(caplog, "oncelog.log") == []
    for name in disk.listdir(FOLDER):
        disk.unlink(f"{FOLDER}/{name}")
    told = "is empty: if there were records in it, they are gone"
    checked = check_partition(disk, FOLDER)
    assert (checked.damage, checked.notes) == ([], [f"the folder {told}"])
    assert open_log(disk, SMALL).offline is None
    assert f"{FOLDER} {told}" in caplog.text


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


def test_a_noted_start_behind_the_end_removes_nothing_where_nothing_can_have_been_lost() -> None:
    """Another partition's, perhaps. After a power failure it may be right."""
    disk = MemoryDisk()
    log = filled(disk, LARGE)
    write_start(disk, FOLDER, 5000)
    found = disk.crash(keep_all=True)
    assert check_partition(found, FOLDER, stayed_up=True).damage
    offline = open_log(found, LARGE, stayed_up=True).offline
    assert offline is not None and "begins at 5000, but it ends at 40" in offline and "put one line into it" in offline
    assert found.size(f"{FOLDER}/{0:020d}.log") == log.size_bytes
    assert check_partition(found, FOLDER).damage == []
    assert open_log(found, LARGE).next_offset == 5000


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


@pytest.mark.parametrize("position", [0, 3, 7, 8, 11, 15, *range(16, 24)])
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


def test_an_index_that_points_into_a_batch_where_the_promised_offset_seems_to_stand_is_made_anew() -> None:
    disk = MemoryDisk()
    filled(disk, LARGE).close()
    found = disk.crash(keep_all=True)
    found.flip(INDEX, 24 + 15, bit=1)  # the first batch, at byte 2: eight zeros stand there as well
    again = open_log(found, LARGE)
    assert values_in(again) == [b"%d" % number for number in range(40)]


@pytest.mark.parametrize("clean", [True, False])
def test_an_index_that_cannot_be_read_is_as_good_as_none(clean: bool) -> None:
    for config in (SMALL, LARGE):
        disk = MemoryDisk()
        log = filled(disk, config)
        log.checkpoint(NOW)
        if clean:
            log.close()
        found = disk.crash(keep_all=True)
        for name in found.listdir(FOLDER):
            if name.endswith(".index"):
                found.fail_reads(f"{FOLDER}/{name}")
        assert check_partition(found, FOLDER).damage == []
        again = open_log(found, config)
        assert again.offline is None, again.offline
        assert values_in(again) == [b"%d" % number for number in range(40)]


def test_an_index_that_cannot_be_read_any_more_keeps_no_record_from_readers() -> None:
    disk = MemoryDisk()
    log = filled(disk, LARGE)
    log.close()
    log = open_log(disk, LARGE)
    disk.fail_reads(INDEX)
    assert values_in(log, 1) == [b"%d" % number for number in range(40)]
    first = log.offset_for_time(NOW.wall_ms)
    assert first is not None and first.offset == 0


@pytest.mark.parametrize(
    "stray", ["5.log", "\u00b2.log", "9" * 20 + ".log", "\u00b2.producers", f"{0:020d}.log.\u00b2.swap"]
)
def test_a_file_whose_name_is_no_offset_is_nobodys(stray: str) -> None:
    disk = MemoryDisk()
    filled(disk, SMALL).close()
    found = disk.crash(keep_all=True)
    found.open(f"{FOLDER}/{stray}", create=True)
    assert check_partition(found, FOLDER).damage == []
    again = open_log(found, SMALL)
    assert again.offline is None and values_in(again) == [b"%d" % number for number in range(40)]
    assert found.exists(f"{FOLDER}/{stray}")


def test_what_is_behind_a_closed_segments_end_takes_the_partition_offline_with_what_to_do() -> None:
    disk = MemoryDisk()
    log = filled(disk, SMALL)
    log.close()
    found = disk.crash(keep_all=True)
    found.open(log.segments[0].log_path, write=True).pwritev([b"\xff" * 100], log.segments[0].size_bytes)
    offline = open_log(found, SMALL).offline
    assert offline is not None and "Restore the files from a backup; `oncelog check --data data`" in offline


def test_a_file_that_cannot_be_read_takes_the_partition_offline_with_what_to_do() -> None:
    disk = MemoryDisk()
    log = filled(disk, SMALL)
    found = disk.crash(keep_all=True)
    found.fail_reads(log.segments.active.log_path)
    offline = open_log(found, SMALL).offline
    assert offline is not None and log.segments.active.log_path in offline and "Restore the files" in offline


def test_a_compacted_segment_that_lost_its_records_is_no_gap_of_compaction() -> None:
    disk = MemoryDisk()
    log = filled(disk, COMPACTED)
    assert log.compact(NOW)
    log.close()
    for segment in log.segments.closed:
        found = disk.crash(keep_all=True)
        found.open(segment.log_path, write=True).truncate(0)
        assert open_log(deepcopy(found), COMPACTED).offline is not None
        assert check_partition(found, FOLDER).damage


@pytest.mark.parametrize("ending", ["log", "index"])
def test_what_compaction_is_about_to_replace_stays_where_the_replacement_is_not_whole(ending: str) -> None:
    disk = MemoryDisk()
    log = filled(disk, COMPACTED)
    log.segments.roll()
    job = log.begin_compaction(NOW)
    assert job is not None
    job.run()
    group = job.groups[0]
    left = values_in(log)
    decide_swap(disk, FOLDER, group.base_offset, group.end_offset)
    found = disk.crash(keep_all=True)
    found.open(f"{FOLDER}/{group.base_offset:020d}.{ending}.{group.end_offset:020d}.swap", write=True).truncate(0)
    before = found.listdir(FOLDER)
    offline = open_log(found, COMPACTED).offline
    assert offline is not None and ".swap is to replace the segments from 0" in offline and "Restore both" in offline
    assert found.listdir(FOLDER) == before
    assert check_partition(found, FOLDER).damage
    with pytest.raises(LogStorageError, match="Nothing is removed"):
        cut_back(found, FOLDER, 5)
    for name in before:
        if name.endswith((".swap", ".cleaned")):
            found.unlink(f"{FOLDER}/{name}")
    assert values_in(open_log(found, COMPACTED)) == left


@pytest.mark.parametrize("stayed_up", [True, False])
@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("longer", [range(20), range(39, 40)], ids=["from the beginning", "at the end"])
def test_another_partitions_snapshot_cuts_nothing_off(stayed_up: bool, is_clean: bool, longer: range) -> None:
    """Files that were restored into the wrong folder: the same offset, at another place."""
    for ours, theirs in ((SMALL, LARGE), (LARGE, SMALL), (LARGE, LARGE)):
        disk = MemoryDisk()
        log, other = open_log(disk, ours), open_log(disk, theirs, folder="data/other-0")
        for number in range(40):
            put(log, b"%d" % number * (5 if number in longer else 1), pid=LEASED, sequence=number)
            put(other, b"%d" % number)
        log.checkpoint(NOW)
        other.checkpoint(NOW)
        if not is_clean:
            put(log, b"40", pid=LEASED, sequence=40)
        found = disk.crash(keep_all=True)
        name = f"{40:020d}.producers"
        found.rename(f"data/other-0/{name}", f"{FOLDER}/{name}")
        before = {each: found.size(f"{FOLDER}/{each}") for each in found.listdir(FOLDER) if each.endswith(".log")}
        assert check_partition(found, FOLDER, stayed_up=stayed_up).damage
        offline = open_log(found, ours, stayed_up=stayed_up).offline
        assert offline is not None and "Restore the files from a backup" in offline
        assert {each: found.size(f"{FOLDER}/{each}") for each in before} == before


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
