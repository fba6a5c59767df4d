"""A compaction's two ends go in steps, so that who appends waits for the disk as little as can be."""

from copy import deepcopy
from typing import Any

import pytest

from oncelog.log.compaction import CompactionJob
from oncelog.log.partition import PartitionLog
from oncelog.log.work_steps import Steps
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
        disk.is_aside = True
        if wait is not None:
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


@pytest.mark.parametrize("steps", range(STEPS))
def test_what_says_that_segments_are_removed_stays_while_they_go_between_two_steps(steps: int) -> None:
    for removed in range(9):
        disk = NotingDisk()
        log = filled(disk)
        finishing = log.finishing_compaction(finished_run(log, disk))
        deleting = log.deleting_before(log.segments[3].base_offset)
        go_on(deleting, disk, removed)
        go_on(finishing, disk, steps)
        for is_killed in (True, False):  # in between, and at the end
            again = open_log(deepcopy(disk).crash(keep_all=True), CONFIG)
            assert again.offline is None
            if is_killed:
                go_on(deleting, disk)


def test_a_removal_that_was_cut_short_is_remembered_when_compaction_takes_its_snapshot() -> None:
    disk = NotingDisk()
    log = filled(disk)
    log.checkpoint(NOW)
    deleting = log.deleting_before(log.segments[3].base_offset)
    while not log.segments.first_offset:
        go_on(deleting, disk, 1)
    log = open_log(found := disk.crash(keep_all=True), CONFIG)
    assert log.compact(NOW)
    assert open_log(found.crash(keep_all=True), CONFIG).offline is None


def test_enough_steps_are_gone_through() -> None:
    disk = NotingDisk()
    log = filled(disk)
    finishing = log.finishing_compaction(finished_run(log, disk))
    assert 3 < sum(1 for wait in finishing if wait is not None and wait() is None) <= STEPS
