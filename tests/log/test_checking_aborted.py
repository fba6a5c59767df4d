"""A check compares the file `aborted` with what the markers in the log say."""

import struct
from dataclasses import replace

import pytest
from crc32c import crc32c

from oncelog.log.aborted import Aborted, entries_in
from oncelog.log.names import ABORTED_FILE
from tests.log.memory_disk import MemoryDisk
from tests.log.support import FOLDER, KAFKA_PID, SMALL, at, open_log, put
from tests.log.test_checking import check
from tests.log.transactions import committed_values, end_well, put_in_transaction

PATH = f"{FOLDER}/{ABORTED_FILE}"
COMPACTED = replace(SMALL, cleanup_policy=("compact",), min_cleanable_dirty_ratio=0.0, delete_retention_ms=1000)


def stopped() -> MemoryDisk:
    """Transactions of 0 to 5, every other one of them aborted."""
    disk = MemoryDisk()
    log = open_log(disk, SMALL)
    for number in range(6):
        put_in_transaction(log, b"%d" % number)
        end_well(log, commit=number % 2 == 1)
    log.close()
    return disk.crash(keep_all=True)


def rewritten(disk: MemoryDisk, entries: list[Aborted], dropped: int = 0) -> None:
    numbers = [struct.pack(">qqq", *each) for each in entries]
    held = (each + struct.pack(">I4x", crc32c(each)) for each in numbers)
    file = disk.open(PATH, write=True)
    file.truncate(0)
    file.pwritev([b"".join((struct.pack(">8sq", b"\xffOLAT\0\0\1", dropped), *held))], 0)


def stored_in(disk: MemoryDisk) -> list[Aborted]:
    return list(entries_in(bytes(disk.open(PATH).pread(1 << 20, 0)))[1])


STORED = [Aborted(KAFKA_PID, first, first + 1) for first in (0, 4, 8)]


def test_what_was_written_is_whole() -> None:
    disk = stopped()
    assert stored_in(disk) == STORED
    assert (check(disk).damage, check(disk).notes) == ([], [])


@pytest.mark.parametrize("entries", [[], STORED[:2], [STORED[1], STORED[0], STORED[2]], [*STORED, Aborted(7, 9, 10)]])
def test_of_a_file_that_a_start_makes_anew_it_says_so(entries: list[Aborted]) -> None:
    disk = stopped()
    rewritten(disk, entries)
    assert check(disk).damage == []
    assert check(disk).notes == ["aborted is missing or wrong; a start makes it anew"]
    assert committed_values(open_log(disk, SMALL)) == [b"1", b"3", b"5"]


@pytest.mark.parametrize(
    ("entries", "dropped", "said"),
    [
        ([STORED[0], Aborted(KAFKA_PID, 2, 5), STORED[2]], 0, "has a transaction of the producer"),
        ([*STORED[:2], Aborted(KAFKA_PID + 1, 8, 9)], 0, "has a transaction of the producer"),
        (STORED[1:], 1, "lacks a transaction of the producer"),
    ],
)
def test_a_file_that_a_start_would_believe_and_that_is_wrong_is_damage(
    entries: list[Aborted], dropped: int, said: str
) -> None:
    disk = stopped()
    rewritten(disk, entries, dropped)
    (damage,) = check(disk).damage
    assert said in damage and "so with 1 in all" in damage
    assert committed_values(open_log(disk, SMALL)) != [b"1", b"3", b"5"]


def test_it_is_mended_as_the_check_says() -> None:
    disk = stopped()
    rewritten(disk, STORED[1:], 1)
    disk.unlink(PATH)
    log = open_log(disk, SMALL)
    assert committed_values(log) == [b"1", b"3", b"5"]
    log.close()
    assert (check(disk).damage, check(disk).notes) == ([], [])


def test_what_is_not_needed_any_more_may_be_dropped() -> None:
    disk = MemoryDisk()
    log = open_log(disk, COMPACTED)
    for number in range(30):
        put_in_transaction(log, b"x" * 20, key=b"%d" % (number % 3))
        end_well(log, commit=number % 2 == 1)
    put(log, b"y", key=b"0")
    for ms in (0, 10_000, 20_000):
        log.segments.roll()
        put(log, b"z", key=b"0", now=at(ms))
        log.compact(at(ms))
        log.checkpoint(at(ms))
        found = check(disk)
        assert (found.damage, found.notes) == ([], []), ms
    assert len(stored_in(disk)) < 15
