"""A compaction's two ends go in steps, so that who appends waits for the disk as little as can be."""

from typing import Any

import pytest

from oncelog.log.compaction import CompactionJob
from oncelog.log.partition import PartitionLog
from oncelog.log.steps import Steps
from tests.log.memory_disk import MemoryDisk
from tests.log.support import FOLDER, NOW, open_log
from tests.log.test_compaction import CONFIG, close_active, latest, put_keys

WAITS = ("fdatasync", "sync_folder")


class NotingDisk(MemoryDisk):
    """Notes what was waited for by the appending thread itself."""

    def __init__(self) -> None:
        super().__init__()
        self.is_aside = False
        self.waited: list[str] = []

    def step(self, operation: str, path: str) -> bool:
        if operation in WAITS and not self.is_aside:
            self.waited.append(operation)
        return super().step(operation, path)


def go_on(steps: Steps[Any], disk: NotingDisk, most: int = 1 << 30) -> Any:
    """What the steps answer; None where they are not at their end after so many."""
    for _ in range(most):
        try:
            wait = next(steps)
        except StopIteration as end:
            return end.value
        assert wait is not None
        disk.is_aside = True
        wait()
        disk.is_aside = False
    return None


def filled(disk: NotingDisk) -> PartitionLog:
    log = open_log(disk, CONFIG)
    put_keys(log, b"abcdefgh" * 8)
    close_active(log)
    return log


def finished_run(log: PartitionLog, disk: NotingDisk) -> CompactionJob:
    job = go_on(log.beginning_compaction(NOW), disk)
    assert isinstance(job, CompactionJob)
    job.run()
    return job


def test_who_appends_waits_for_one_sync_of_each_swap_and_for_nothing_else() -> None:
    disk = NotingDisk()
    log = filled(disk)
    before = latest(log)
    disk.waited.clear()
    job = go_on(log.beginning_compaction(NOW), disk)
    assert isinstance(job, CompactionJob)
    assert disk.waited == []
    job.run()
    disk.waited.clear()
    go_on(log.finishing_compaction(job), disk)
    assert disk.waited == ["sync_folder"] * sum(group.cleaned for group in job.groups)
    assert len(disk.waited) > 1
    assert latest(log) == before
    assert latest(open_log(disk.crash(), CONFIG)) == before


STEPS = 30


@pytest.mark.parametrize("steps", range(STEPS))
def test_what_is_cut_off_between_two_steps_stays_so_and_nothing_else_goes(steps: int) -> None:
    disk = NotingDisk()
    log = filled(disk)
    job = finished_run(log, disk)
    finishing = log.finishing_compaction(job)
    go_on(finishing, disk, steps)
    log.truncate_to(40)
    put_keys(log, b"xyz", first=log.next_offset)
    expected = latest(log)
    go_on(finishing, disk)
    assert latest(log) == expected
    assert log.offline is None
    assert not [name for name in disk.listdir(FOLDER) if "cleaned" in name or "swap" in name]
    again = open_log(disk.crash(keep_all=True), CONFIG)
    assert again.offline is None
    assert latest(again) == expected


@pytest.mark.parametrize("steps", range(STEPS))
def test_a_log_that_is_closed_between_two_steps_is_left_alone(steps: int) -> None:
    disk = NotingDisk()
    log = filled(disk)
    before = latest(log)
    job = finished_run(log, disk)
    finishing = log.finishing_compaction(job)
    go_on(finishing, disk, steps)
    log.close()
    go_on(finishing, disk)
    again = open_log(disk, CONFIG)
    assert again.offline is None
    assert latest(again) == before


def test_enough_steps_are_gone_through() -> None:
    disk = NotingDisk()
    log = filled(disk)
    finishing = log.finishing_compaction(finished_run(log, disk))
    assert 3 < sum(1 for wait in finishing if wait is not None and wait() is None) <= STEPS
