"""A check finds whatever is damaged in a partition's folder, and changes nothing."""

from copy import deepcopy
from dataclasses import replace
from typing import Any, cast

import pytest

from oncelog.log.compaction_swap import decide_swap
from oncelog.log.config import LogConfig
from oncelog.log.disk import Disk
from oncelog.log.partition_checking import MOST_FINDINGS, Checked, check_partition
from tests.log.memory_disk import MemoryDisk
from tests.log.support import FOLDER, LEASED, NOW, SMALL, at, open_log, put, values_in

LARGE = LogConfig(retention_ms=-1, index_interval_bytes=200)
COMPACTED = replace(SMALL, cleanup_policy=("compact",), min_cleanable_dirty_ratio=0.0)
RESERVED = (6, 7)  # of a snapshot
VALUES = [b"%d" % number for number in range(20)]


class ReadOnly:
    """A disk that can only be read."""

    def __init__(self, disk: MemoryDisk) -> None:
        self._disk = disk

    def open(self, path: str, *, write: bool = False, create: bool = False) -> Any:
        assert not write and not create, path
        return self._disk.open(path)

    def __getattr__(self, name: str) -> Any:
        assert name in ("listdir", "exists", "size"), f"a check has no business with {name}"
        return getattr(self._disk, name)


def check(disk: MemoryDisk) -> Checked:
    return check_partition(cast(Disk, ReadOnly(disk)), FOLDER)


def filled(config: LogConfig = SMALL, *, clean: bool = True) -> MemoryDisk:
    disk = MemoryDisk()
    log = open_log(disk, config)
    for number, value in enumerate(VALUES):
        put(log, value, pid=LEASED, sequence=number)
    if clean:
        log.close()
    return disk.crash(keep_all=True)


def files(disk: MemoryDisk, ending: str) -> list[str]:
    return sorted(f"{FOLDER}/{name}" for name in disk.listdir(FOLDER) if name.endswith(ending))


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("config", [SMALL, LARGE])
def test_a_whole_log_is_whole(config: LogConfig, clean: bool) -> None:
    checked = check(filled(config, clean=clean))
    assert (checked.damage, checked.notes) == ([], [])
    assert (checked.start_offset, checked.end_offset, checked.records, checked.batches) == (0, 20, 20, 20)


def test_what_retention_deletion_and_compaction_leave_is_whole() -> None:
    disk = MemoryDisk()
    log = open_log(disk, replace(COMPACTED, cleanup_policy=("compact", "delete"), retention_ms=1000))
    for number in range(60):
        put(log, b"x" * 20, key=b"%d" % (number % 3), timestamp_ms=NOW.wall_ms + number)
    log.segments.roll()
    assert log.compact(NOW)
    log.delete_before(3)
    for number in range(30):
        put(log, b"y" * 20, key=b"%d" % number, timestamp_ms=NOW.wall_ms + 9000, now=at(9000))
    for closed in (False, True):
        checked = check(deepcopy(disk))
        assert (checked.damage, checked.notes, checked.end_offset) == ([], [], 90)
        assert checked.start_offset == log.log_start_offset > 0
        if not closed:
            log.maintain(at(9000))
            log.close()


def test_no_flipped_bit_of_any_file_gets_past_a_check_that_would_get_past_a_reader() -> None:
    """What it does not call damaged is read as it was written."""
    for config in (SMALL, LARGE):
        made = filled(config)
        for path in files(made, ""):
            for position in range(0, made.size(path), 1 if made.size(path) < 400 else 7):
                found = deepcopy(made)
                found.flip(path, position, bit=position % 8)
                checked = check(found)
                if path.endswith(".log"):
                    assert checked.damage, (path, position)
                elif path.endswith(".producers"):
                    assert checked.damage or position in RESERVED, (path, position)
                if not checked.damage:
                    log = open_log(found, config)
                    assert log.offline is None
                    assert values_in(log) == VALUES


def test_a_wrong_index_is_a_note_since_it_is_made_anew() -> None:
    made = filled()
    for path in files(made, ".index"):
        for position in range(made.size(path)):
            found = deepcopy(made)
            found.flip(path, position)
            checked = check(found)
            assert checked.damage == []
            assert [note.split(" ")[0] for note in checked.notes] == [path.rpartition("/")[2]]
    found = deepcopy(made)
    found.unlink(files(made, ".index")[0])
    assert (len(check(found).damage), len(check(found).notes)) == (0, 1)


@pytest.mark.parametrize("ending", [".log", ".producers"])
def test_a_missing_or_cut_file_is_damage(ending: str) -> None:
    made = filled()
    for path in files(made, ending)[-3:]:
        found = deepcopy(made)
        found.open(path, write=True).truncate(made.size(path) - 1)
        assert check(found).damage
    for path in files(made, ".log"):
        found = deepcopy(made)
        found.unlink(path)
        assert check(found).damage


def test_a_torn_write_is_a_note_and_a_start_agrees() -> None:
    made = filled(LARGE, clean=False)
    path = files(made, ".log")[0]
    for size_bytes in range(0, made.size(path), 13):
        found = deepcopy(made)
        found.open(path, write=True).truncate(size_bytes)
        checked = check(found)
        assert checked.damage == []
        log = open_log(found, LARGE)
        assert log.next_offset == checked.end_offset
        assert bool(log.recovered.cut_bytes) is bool(checked.notes)


@pytest.mark.parametrize("config", [SMALL, LARGE])
def test_a_torn_write_right_behind_the_recovery_point_is_a_note_too(config: LogConfig) -> None:
    found = filled(config)
    path = files(found, ".log")[-1]
    found.open(path, write=True).pwritev([b"\xff" * 70], found.size(path))
    checked = check(found)
    assert (checked.damage, len(checked.notes), checked.end_offset) == ([], 1, 20)
    assert open_log(found, config).next_offset == 20


def test_every_damaged_batch_is_named_up_to_a_bound() -> None:
    disk = MemoryDisk()
    log = open_log(disk, LARGE)
    starts = []
    for number in range(MOST_FINDINGS + 10):
        starts.append(log.size_bytes)
        put(log, b"%d" % number)
    log.close()
    found = disk.crash(keep_all=True)
    for number in (3, 5):
        found.flip(files(found, ".log")[0], starts[number] + 65)
    assert [text.split(": ")[1] for text in check(found).damage] == [
        f"the CRC of the batch of offset {number} is wrong" for number in (3, 5)
    ]
    for start in starts:
        found.flip(files(found, ".log")[0], start + 66)
    assert (len(check(found).damage), check(found).left_out) == (MOST_FINDINGS, 10)


def test_what_a_crash_left_half_done_is_a_note() -> None:
    disk = MemoryDisk()
    log = open_log(disk, COMPACTED)
    for number in range(40):
        put(log, b"x" * 20, key=b"%d" % (number % 3))
    log.segments.roll()
    job = log.begin_compaction(NOW)
    assert job is not None
    job.run()
    cleaned = check(deepcopy(disk))
    assert cleaned.damage == [] and all("is left from work" in note for note in cleaned.notes) and cleaned.notes
    # In the order of `compaction.finish`: first the notes of the cleaner, then the first swap.
    found = disk.crash(keep_all=True)
    found.open(f"{FOLDER}/cleaner", create=True).pwritev([b"0 0\n"], 0)
    decide_swap(found, FOLDER, job.groups[0].base_offset, job.groups[0].end_offset)
    swapped = check(found)
    assert swapped.damage == [] and swapped.end_offset == 40
    assert swapped.records < cleaned.records == 40


def test_a_file_that_is_none_of_a_partition_is_noted() -> None:
    made = filled()
    made.open(f"{FOLDER}/diary", create=True)
    assert check(made).notes == ["diary is no file of a partition"]


def test_a_disk_that_cannot_be_read_is_told() -> None:
    made = filled()
    path = files(made, ".log")[1]

    class Broken(ReadOnly):
        def open(self, wanted: str, *, write: bool = False, create: bool = False) -> Any:
            if wanted == path:
                raise OSError(5, "Input/output error", wanted)
            return super().open(wanted)

    (damage,) = check_partition(cast(Disk, Broken(made)), FOLDER).damage
    assert "cannot be read" in damage and "Input/output error" in damage
