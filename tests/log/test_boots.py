"""What a power failure tore is a torn write until a start has cut it off, however many starts refused the log."""

import errno
from collections.abc import Callable

import pytest

from oncelog.log.config import LogConfig
from oncelog.log.notes import read_opened
from oncelog.log.partition_checking import check_partition
from tests.log.memory_disk import MemoryDisk
from tests.log.support import FOLDER, open_log, put

LARGE = LogConfig(retention_ms=-1, index_interval_bytes=200)
OWNER = "mine/0"


def torn_by_a_power_failure() -> tuple[MemoryDisk, int, str]:
    """In the midst of what was never flushed; whole batches follow. And how much before is whole, in which file."""
    disk = MemoryDisk()
    log = open_log(disk, LARGE, owner=OWNER)
    whole_bytes = 0
    for number in range(40):
        if number == 25:
            whole_bytes = log.segments.active.size_bytes
        put(log, b"%d" % number)
    path = log.segments.active.log_path
    found = disk.crash(keep_all=True)
    found.boots += 1
    found.flip(path, whole_bytes + 64)
    return found, whole_bytes, path


def belongs_to_another(disk: MemoryDisk) -> None:
    offline = open_log(disk, LARGE, owner="another/0").offline
    assert offline is not None and "belongs to mine/0" in offline


def cannot_be_cut(disk: MemoryDisk) -> None:
    disk.fail("truncate", errno.EROFS)
    offline = open_log(disk, LARGE, owner=OWNER).offline
    assert offline is not None and "cannot be cut off" in offline
    disk.heal()


@pytest.mark.parametrize("first_start", [belongs_to_another, cannot_be_cut])
def test_a_later_start_of_the_same_boot_takes_a_torn_write_for_one(first_start: Callable[[MemoryDisk], None]) -> None:
    disk, whole_bytes, path = torn_by_a_power_failure()
    first_start(disk)
    disk = disk.crash(keep_all=True)
    checked = check_partition(disk, FOLDER, stayed_up=True, owner=OWNER)
    assert checked.damage == [] and "the machine stopped before a flush" in checked.notes[0]
    log = open_log(disk, LARGE, stayed_up=True, owner=OWNER)
    assert (log.offline, log.next_offset) == (None, 25)
    assert disk.size(path) == whole_bytes


def test_once_a_start_has_cut_it_what_is_not_whole_is_damage() -> None:
    disk, whole_bytes, path = torn_by_a_power_failure()
    log = open_log(disk, LARGE, owner=OWNER)
    put(log, b"more")
    disk = disk.crash(keep_all=True)
    disk.flip(path, whole_bytes - 5)
    assert check_partition(disk, FOLDER, stayed_up=True, owner=OWNER).damage
    offline = open_log(disk, LARGE, stayed_up=True, owner=OWNER).offline
    assert offline is not None and "Whole batches follow it" in offline


@pytest.mark.parametrize("noted", [f"3 {OWNER} 1d72c3e6", "3", "", "3 mine/0 boot-2 00000000"])
def test_a_note_that_names_no_boot_proves_nothing(noted: str) -> None:
    disk, _, _ = torn_by_a_power_failure()
    disk.unlink(f"{FOLDER}/leader-epoch")
    disk.open(f"{FOLDER}/leader-epoch", create=True).pwritev([noted.encode() + b"\n"], 0)
    assert not read_opened(disk, FOLDER).has_run_on(disk)
    assert open_log(disk, LARGE, stayed_up=True).next_offset == 25


@pytest.mark.parametrize("owner", [OWNER, ""])
def test_the_note_names_the_boot_of_now(owner: str) -> None:
    disk = MemoryDisk()
    log = open_log(disk, LARGE, owner=owner)
    assert read_opened(disk, FOLDER) == (log.leader_epoch, owner, "boot-1")
    assert read_opened(disk, FOLDER).has_run_on(disk)
    disk.boots += 1
    assert not read_opened(disk, FOLDER).has_run_on(disk)


def test_where_no_boot_is_known_the_note_names_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MemoryDisk, "boot_id", lambda disk: "")
    disk = MemoryDisk()
    open_log(disk, LARGE, owner=OWNER)
    assert read_opened(disk, FOLDER)[1:] == (OWNER, "")
    assert not read_opened(disk, FOLDER).has_run_on(disk)
