"""How far a log had been written: what is lost of it, or is another's, although nothing was brought to the disk."""

import errno
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace

import pytest
from crc32c import crc32c

from oncelog.log.config import Flush, LogConfig
from oncelog.log.cutting import cut_back
from oncelog.log.disk import read_whole
from oncelog.log.notes import read_written
from oncelog.log.partition import PartitionLog
from oncelog.log.partition_checking import check_partition
from oncelog.records.header import headers
from tests.log.memory_disk import MemoryDisk
from tests.log.support import (
    FOLDER,
    LEASED,
    NOW,
    SMALL,
    check_refused,
    contents,
    note_end,
    open_log,
    put,
    put_in_the_place_of,
)

CRC_AT = 17
LARGE = LogConfig(retention_ms=-1, index_interval_bytes=200)
OF_AN_EARLIER_BOOT = "written is damaged or of an earlier boot; a start does without it"


def noted(count: int = 40, config: LogConfig = SMALL) -> tuple[MemoryDisk, PartitionLog]:
    """Nothing of it was ever flushed."""
    disk = MemoryDisk()
    log = open_log(disk, config)
    for number in range(count):
        put(log, b"%d" % number, pid=LEASED, sequence=number)
    note_end(log)
    return disk, log


def last_batch_lost(disk: MemoryDisk, log: PartitionLog) -> None:
    file = disk.open(log.segments.active.log_path, write=True)
    *_, (position, _) = headers(file.pread(file.size(), 0))
    file.truncate(position)


def last_segment_emptied(disk: MemoryDisk, log: PartitionLog) -> None:
    disk.open(log.segments.active.log_path, write=True).truncate(0)


def all_segments_lost(disk: MemoryDisk, log: PartitionLog) -> None:
    for name in disk.listdir(FOLDER):
        if name.endswith((".log", ".index")):
            disk.unlink(f"{FOLDER}/{name}")


@pytest.mark.parametrize("config", [SMALL, LARGE], ids=["many segments", "one segment"])
@pytest.mark.parametrize("harming", [last_batch_lost, last_segment_emptied, all_segments_lost])
def test_what_is_lost_without_a_trace_before_any_recovery_point_is_missed_where_the_machine_ran_on(
    config: LogConfig, harming: Callable[[MemoryDisk, PartitionLog], None]
) -> None:
    disk, log = noted(config=config)
    found = disk.crash(keep_all=True)
    assert open_log(deepcopy(found), config, stayed_up=True).next_offset == 40
    harming(found, log)
    before = contents(found)
    assert check_partition(found, FOLDER, stayed_up=True).damage
    again = open_log(found, config, stayed_up=True)
    assert again.offline is not None and "offset 40 were on the disk" in again.offline
    assert contents(found) == before


def test_a_last_segment_that_is_lost_with_its_index_is_missed() -> None:
    disk, log = noted()
    log.segments.active.index.write()
    found = disk.crash(keep_all=True)
    found.unlink(log.segments.active.log_path)
    found.unlink(log.segments.active.index.path)
    base = log.segments.active.base_offset
    assert check_partition(found, FOLDER, stayed_up=True).damage
    again = open_log(found, SMALL, stayed_up=True)
    assert again.offline is not None and f"--cut orders-0:{base}" in again.offline
    cut_back(found, FOLDER, base)
    again = open_log(found, SMALL, stayed_up=True)
    assert (again.offline, again.next_offset) == (None, base)


@pytest.mark.parametrize("count", [40, 60], ids=["as long", "longer"])
def test_another_partitions_log_in_the_place_of_one_is_seen_before_any_recovery_point(count: int) -> None:
    disk, log = noted(config=LARGE)
    other = MemoryDisk()
    written = open_log(other, LARGE)
    for number in range(count):
        put(written, b"of another %d" % number)
    put(written, b"and a torn one")
    path = log.segments.active.log_path
    data = other.open(written.segments.active.log_path).pread(1 << 20, 0)
    found = disk.crash(keep_all=True)
    put_in_the_place_of(path, found, data[:-1])
    check_refused(found, LARGE, "is not what was written: offset 39", stayed_up=True)


def on_the_disk(log: PartitionLog) -> None:
    log.flush()


def at_a_recovery_point(log: PartitionLog) -> None:
    log.checkpoint(NOW)


IS_ANOTHER = "is not what was written"
POINT_IS_ANOTHERS = "is of another log"


def alike(digit: bytes, noting: Callable[[PartitionLog], None], starts: int) -> tuple[MemoryDisk, str, bytes]:
    """A log that is as long as another one, batch by batch: the disk, the path and what is in it."""
    disk = MemoryDisk()
    config = replace(LARGE, flush=Flush.EVERY if noting is on_the_disk else Flush.OS)
    log = open_log(disk, config)
    for _ in range(40):
        put(log, digit * 10)
    for _ in range(starts):
        log = open_log(disk, config, stayed_up=True)
    noting(log)
    path = log.segments.active.log_path
    found = disk.crash(keep_all=True)
    return found, path, read_whole(found, path)


@pytest.mark.parametrize(
    ("noting", "starts", "why"),
    [
        (on_the_disk, 0, IS_ANOTHER),
        (on_the_disk, 1, POINT_IS_ANOTHERS),  # which the start has moved
        (note_end, 0, IS_ANOTHER),
        (note_end, 1, IS_ANOTHER),
        (at_a_recovery_point, 0, POINT_IS_ANOTHERS),
        (at_a_recovery_point, 1, POINT_IS_ANOTHERS),
    ],
)
def test_another_log_that_ends_at_one_place_is_seen(
    noting: Callable[[PartitionLog], None], starts: int, why: str
) -> None:
    found, path, whole = alike(b"1", noting, starts)
    assert open_log(deepcopy(found), LARGE, stayed_up=True).offline is None
    *_, other = alike(b"2", noting, starts)
    assert len(other) == len(whole)
    put_in_the_place_of(path, found, other)
    check_refused(found, LARGE, why, stayed_up=True)


def test_a_last_batch_that_has_rotted_below_the_recovery_point_is_no_other_log() -> None:
    found, path, whole = alike(b"1", at_a_recovery_point, 0)
    *_, (position, _) = headers(whole)
    found.flip(path, position + CRC_AT)
    assert open_log(found, LARGE).offline is None
    assert not any("of another log" in each for each in check_partition(found, FOLDER).damage)


@pytest.mark.parametrize("per_batch", [1, 3])
def test_another_partitions_log_below_a_recovery_point_is_seen(per_batch: int) -> None:
    """As long as the one that was there, or longer, so that all sizes fit."""
    disk, log = noted(config=LARGE)
    log.checkpoint(NOW)
    other = MemoryDisk()
    written = open_log(other, LARGE)
    for number in range(60):
        put(written, *[b"of another %d" % number] * per_batch)
    data = other.open(written.segments.active.log_path).pread(1 << 20, 0)
    found = disk.crash(keep_all=True)
    found.open(log.segments.active.log_path, write=True).pwritev([data], 0)
    before = contents(found)
    assert any("is of another log" in each for each in check_partition(found, FOLDER).damage)
    offline = open_log(found, LARGE).offline
    assert offline is not None and "is of another log" in offline
    assert contents(found) == before


def test_what_was_noted_before_a_power_failure_is_forgotten_by_the_start_after_it() -> None:
    for number in range(20):
        disk = MemoryDisk(number)
        log = open_log(disk, SMALL)
        for value in range(40):
            put(log, b"%d" % value)
        note_end(log)
        disk.sync_folder(FOLDER)
        found = disk.crash()
        log = open_log(found, SMALL, stayed_up=False)
        assert log.offline is None
        put(log, b"more")
        again = open_log(found.crash(keep_all=True), SMALL, stayed_up=True)
        assert (again.offline, again.next_offset) == (None, log.next_offset), f"seed {number}"


def cannot_be_removed(disk: MemoryDisk) -> None:
    disk.fail("unlink", errno.EIO)
    assert open_log(disk, LARGE, owner="mine/0").offline is None
    disk.heal()


def belongs_to_another(disk: MemoryDisk) -> None:
    offline = open_log(disk, LARGE, owner="another/0").offline
    assert offline is not None and "belongs to mine/0" in offline


@pytest.mark.parametrize(("start", "notes"), [(cannot_be_removed, [OF_AN_EARLIER_BOOT]), (belongs_to_another, [])])
def test_a_note_that_outlives_the_start_after_a_power_failure_does_not_count_in_the_next(
    start: Callable[[MemoryDisk], None], notes: list[str]
) -> None:
    disk = MemoryDisk()
    log = open_log(disk, LARGE, owner="mine/0")
    for number in range(40):
        put(log, b"%d" % number)
    note_end(log)
    for name in disk.listdir(FOLDER):  # as the kernel does in time; of the log it left out the last batch
        disk.open(f"{FOLDER}/{name}", write=True).fdatasync()
    disk.sync_folder(FOLDER)
    found = disk.crash()
    last_batch_lost(found, log)
    start(found)
    found = found.crash(keep_all=True)
    checked = check_partition(found, FOLDER, stayed_up=True)
    assert (checked.damage, checked.notes) == ([], notes)
    again = open_log(found, LARGE, stayed_up=True, owner="mine/0")
    assert (again.offline, again.next_offset) == (None, 39)


@pytest.mark.parametrize("boot", ["boot-1", ""])
def test_a_note_counts_under_the_boot_that_it_names_and_nowhere_else(
    boot: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MemoryDisk, "boot_id", lambda disk: boot)
    disk, _ = noted()
    assert (read_written(disk, FOLDER).offset == 40) == bool(boot)
    monkeypatch.setattr(MemoryDisk, "boot_id", lambda disk: "boot-2")
    assert read_written(disk, FOLDER).offset == -1


def test_a_note_that_names_no_boot_does_not_count() -> None:
    disk, _ = noted()
    path = f"{FOLDER}/written"
    numbers = b" ".join(read_whole(disk, path).split(b" ")[1:-1])
    disk.unlink(path)
    disk.open(path, create=True).pwritev([b"%b %08x\n" % (numbers, crc32c(numbers))], 0)
    assert read_written(disk, FOLDER).offset == -1


def test_half_a_note_counts_as_none_until_it_is_written_again() -> None:
    disk, log = noted()
    put(log, b"more")
    note = log.begin_note()
    assert note is not None
    whole = disk.size(f"{FOLDER}/written")
    disk.open(f"{FOLDER}/written", write=True).truncate(whole // 2)
    disk.capacity_bytes = disk.capacity_bytes - disk.free_bytes(FOLDER)
    note()
    disk.heal()
    assert read_written(disk, FOLDER).offset == -1
    note_end(log)
    assert read_written(disk, FOLDER).offset == 41


def test_a_note_of_how_far_a_log_is_that_is_damaged_is_passed_over() -> None:
    disk, _ = noted()
    found = disk.crash(keep_all=True)
    for position in range(found.size(f"{FOLDER}/written")):
        harmed = deepcopy(found)
        harmed.flip(f"{FOLDER}/written", position)
        checked = check_partition(harmed, FOLDER, stayed_up=True)
        assert (checked.damage, len(checked.notes)) == ([], 1), checked
        assert open_log(harmed, SMALL, stayed_up=True).next_offset == 40


def test_a_log_that_is_cut_back_forgets_how_far_it_was() -> None:
    disk, log = noted()
    log.truncate_to(25)
    put(log, b"25")
    again = open_log(disk.crash(keep_all=True), SMALL, stayed_up=True)
    assert (again.offline, again.next_offset) == (None, 26)


def test_a_note_that_was_begun_before_a_cut_or_the_end_is_not_written() -> None:
    disk, log = noted()
    put(log, b"more")
    late = log.begin_note()
    assert late is not None
    log.truncate_to(25)
    late()
    assert not disk.exists(f"{FOLDER}/written")
    put(log, b"more")
    late = log.begin_note()
    assert late is not None
    log.abandon()
    late()
    assert not disk.exists(f"{FOLDER}/written")


def test_a_log_that_has_not_grown_since_is_not_noted_again() -> None:
    _, log = noted()
    assert log.begin_note() is None
    put(log, b"more")
    assert log.begin_note() is not None


@pytest.mark.parametrize("numbers", [b"40 0", b"40 0 -1", b"40 0 x", b"40 0 1_0", b"40 0 1 2"])
def test_a_note_of_something_else_counts_as_none_though_its_sum_is_right(numbers: bytes) -> None:
    disk, _ = noted()
    path = f"{FOLDER}/written"
    said = b"%b %b" % (disk.boot_id().encode(), numbers)
    disk.unlink(path)
    disk.open(path, create=True).pwritev([b"%b %08x\n" % (said, crc32c(said))], 0)
    assert read_written(disk, FOLDER).offset == -1
