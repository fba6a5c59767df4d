"""What was begun for a log that was closed meanwhile says nothing about the next one in its folder."""

from collections.abc import Callable
from dataclasses import replace
from itertools import count
from typing import Any

import pytest

from oncelog.log.config import Flush
from oncelog.log.names import FLUSHED_FILE
from oncelog.log.partition import PartitionLog
from oncelog.log.unsynced import Unsynced
from oncelog.log.work_steps import Steps
from tests.log import test_compaction_steps, test_retention
from tests.log.memory_disk import MemoryDisk
from tests.log.support import FOLDER, NOW, SMALL, at, open_log, put
from tests.log.test_compaction_steps import NotingDisk, finished_run, go_on

GONE = "data/deleted"
Begin = Callable[[NotingDisk], tuple[PartitionLog, Steps[Any]]]


def deleting_records(disk: NotingDisk) -> tuple[PartitionLog, Steps[Any]]:
    log = open_log(disk)
    for _ in range(10):
        put(log, b"old")
    return log, log.deleting_before(5, NOW)


def retaining(disk: NotingDisk) -> tuple[PartitionLog, Steps[Any]]:
    log = test_retention.filled(disk, retention_ms=20_000)
    return log, log.maintaining(at(60_000))


def compacting(disk: NotingDisk) -> tuple[PartitionLog, Steps[Any]]:
    log = test_compaction_steps.filled(disk)
    return log, log.finishing_compaction(finished_run(log, disk))


def replaced(log: PartitionLog, disk: MemoryDisk) -> PartitionLog:
    """The log of a topic that was made in the name of one that was deleted."""
    log.abandon()
    disk.mkdir(GONE)
    for name in disk.listdir(FOLDER):
        disk.rename(f"{FOLDER}/{name}", f"{GONE}/{name}")
    other = open_log(disk, log.config)
    put(other, b"new", key=b"k")
    return other


@pytest.mark.parametrize("begin", [deleting_records, retaining, compacting])
def test_what_a_thread_does_late_is_not_done_in_the_next_logs_folder(begin: Begin) -> None:
    for number in count():
        disk = NotingDisk()
        log, steps = begin(disk)
        go_on(steps, disk, number)
        try:
            wait = next(steps)
        except StopIteration:
            break
        replaced(log, disk)
        names = disk.listdir(FOLDER)
        if wait is not None:
            wait()
        assert disk.listdir(FOLDER) == names, f"step {number}"
    assert number > 1


def test_a_flush_that_ends_behind_its_log_notes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    disk, others = MemoryDisk(), list[PartitionLog]()
    log = open_log(disk, replace(SMALL, flush=Flush.EVERY))
    put(log, b"old", b"older")
    sync = Unsynced.sync

    def syncing(unsynced: Unsynced, *paths: str) -> None:
        sync(unsynced, *paths)
        if not others:
            others.append(replaced(log, disk))

    monkeypatch.setattr(Unsynced, "sync", syncing)
    log.flush()
    assert len(others) == 1 and FLUSHED_FILE not in disk.listdir(FOLDER)
