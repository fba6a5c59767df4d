"""A copied log is on the disk as a whole: what is not whole in it later is damage, and not a torn write."""

import pytest

from oncelog.log.copied import note_copied
from oncelog.log.disk import write_all
from oncelog.log.notes import read_flushed
from oncelog.log.partition import PartitionLog
from oncelog.log.partition_checking import check_partition
from tests.log.memory_disk import MemoryDisk
from tests.log.support import FOLDER, SMALL, contents, note_end, open_log, put

NAME = "flushed"


def copied(*, torn_bytes: int = 0, hit: int | None = None, stayed_up: bool = True) -> tuple[MemoryDisk, PartitionLog]:
    """Of a log of which nothing was flushed."""
    disk = MemoryDisk()
    log = open_log(disk, SMALL)
    for number in range(20):
        put(log, b"%d" % number)
    note_end(log)
    found = disk.crash(keep_all=True)
    file = found.open(log.segments.active.log_path, write=True)
    if torn_bytes:
        write_all(file, [b"x" * torn_bytes], file.size())
    if hit is not None:
        flip(found, log, hit)
    note_copied(found, FOLDER, stayed_up=stayed_up)
    return found, log


def flip(disk: MemoryDisk, log: PartitionLog, position: int) -> None:
    file = disk.open(log.segments.closed[0].log_path, write=True)
    write_all(file, [bytes([file.pread(1, position)[0] ^ 1])], position)


@pytest.mark.parametrize("torn_bytes", [0, 30])
def test_what_is_whole_counts_as_flushed(torn_bytes: int) -> None:
    disk, log = copied(torn_bytes=torn_bytes)
    active = log.segments.active
    assert read_flushed(disk, FOLDER) == (20, active.base_offset, active.size_bytes, active.last_crc)
    assert not check_partition(disk, FOLDER).damage
    flip(disk, log, 70)
    before = contents(disk)
    assert check_partition(disk, FOLDER).damage
    assert open_log(disk, SMALL).offline is not None
    assert contents(disk) == before


def test_damage_of_the_original_is_damage_of_the_copy() -> None:
    disk, _ = copied(hit=70)
    assert check_partition(disk, FOLDER).damage


def test_what_a_stop_of_the_machine_left_is_what_a_start_of_the_original_would_cut() -> None:
    disk, _ = copied(hit=70, stayed_up=False)
    assert not disk.exists(f"{FOLDER}/{NAME}")
    assert not check_partition(disk, FOLDER).damage


def test_the_first_start_of_a_copy_moves_the_recovery_point_past_the_note() -> None:
    """Or what a power failure tears while the copy is served would count as damage."""
    disk, _ = copied()
    log = open_log(disk, SMALL)
    assert log.offline is None and log.flusher.point_offset == 20
