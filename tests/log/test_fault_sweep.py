"""A fault in any disk operation: the life of `test_crash_sweep.py`, in which one or some in a row are refused.

Who is refused tries again, a log that is offline is opened anew, and at the end the process or the machine dies. What
was acknowledged is there once, and nothing but `LogStorageError` was raised.
"""

import errno
from collections.abc import Callable

import pytest

from oncelog.log.errors import LogStorageError
from oncelog.log.partition import PartitionLog
from tests.log.memory_disk import MemoryDisk
from tests.log.support import at, open_log, seed
from tests.log.test_crash_sweep import CONFIGS, Life, Script, check_after, operations_of_the_script

TRIES = 8  # more than operations are refused in a row


class FaultyDisk(MemoryDisk):
    def __init__(self, seed: int, first: int, times: int, error_number: int) -> None:
        super().__init__(seed)
        self._first, self._times, self._error_number = first, times, error_number

    def step(self, operation: str, path: str) -> bool:
        if self.operations == self._first or self._first < self.operations < self._first + self._times:
            self.fail(operation, self._error_number, times=1)
        return super().step(operation, path)


class Stubborn(Script):
    """Goes on after whatever was refused."""

    def opened(self, disk: MemoryDisk) -> PartitionLog:
        for _ in range(TRIES):
            self.log = open_log(disk, self.config, at(self.clock_ms))
            if self.log.offline is None:
                break
            self.log.abandon()
        assert self.log.offline is None, self.log.offline
        self.disk = disk
        return self.log

    def well(self) -> PartitionLog:
        if self.log.offline is not None:
            self.log.abandon()
            self.opened(self.disk)
        return self.log

    def tried(self, work: Callable[[PartitionLog], object]) -> bool:
        try:
            work(self.well())
        except LogStorageError:
            return False
        return True

    def sent(self) -> None:
        assert any(self.tried(self.send) for _ in range(TRIES))

    def flushed_if_well(self) -> None:
        log = self.log
        if log.offline is None and log.flusher.point_offset == log.next_offset:
            self.flushed()

    def run(self, disk: MemoryDisk) -> None:
        self.opened(disk)
        for _ in range(6):
            self.sent()
        self.tried(lambda log: log.checkpoint(at(self.clock_ms)))
        self.flushed_if_well()
        for _ in range(7):
            self.sent()
        if self.config.deletes:
            self.tried(lambda log: log.delete_before(6, at(self.clock_ms)))
            self.life.log_start = self.log.log_start_offset
        else:
            self.tried(lambda log: log.compact(at(self.clock_ms)))
        self.sent()
        if self.tried(lambda log: log.flush()):
            self.flushed()
        self.end()
        self.opened(disk)
        for _ in range(5):
            self.sent()
        self.tried(lambda log: log.checkpoint(at(self.clock_ms)))
        self.flushed_if_well()
        self.tried(lambda log: log.maintain(at(self.clock_ms)))
        if self.config.compacts:
            self.tried(lambda log: log.compact(at(self.clock_ms)))
        self.sent()
        self.end()

    def end(self) -> None:
        if not self.tried(lambda log: log.close()):
            self.log.abandon()


@pytest.mark.parametrize("policy", CONFIGS)
@pytest.mark.parametrize(
    ("error_number", "times", "pace"),
    [
        pytest.param(errno.EIO, 1, 3, id="EIO"),
        pytest.param(errno.ENOSPC, 2, 3, id="ENOSPC-twice"),
        *(
            pytest.param(number, times, 1, id=f"{errno.errorcode[number]}-{times}", marks=pytest.mark.thorough)
            for number in (errno.EIO, errno.ENOSPC, errno.EROFS)
            for times in (1, 2, 5)
        ),
    ],
)
def test_a_fault_in_any_disk_operation_loses_nothing_and_doubles_nothing(
    policy: str, error_number: int, times: int, pace: int
) -> None:
    config = CONFIGS[policy]
    for step in range(seed() % pace, operations_of_the_script(config), pace):
        for keep_all in (True, False):
            disk = FaultyDisk(seed() + step, step, times, error_number)
            life = Life()
            what = f"ONCELOG_SEED={seed()}, {times} operations from {step} on refused, keep_all={keep_all}"
            try:
                Stubborn(life, config).run(disk)
            except Exception as error:
                raise AssertionError(f"{what}: {disk.trace[-1]}") from error
            life.flushed_epoch = -1  # what opened an epoch may have been refused
            check_after(life, config, disk.crash(keep_all=keep_all), keep_all=keep_all, what=what)
