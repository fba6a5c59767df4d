"""No more files can be opened: that goes by, so nothing of it may last."""

import errno
from dataclasses import replace

import pytest

from oncelog.log.config import Flush, LogConfig
from oncelog.log.disk import File
from oncelog.log.errors import LogStorageError
from oncelog.log.partition import PartitionLog
from oncelog.producers import Decision
from tests.log.memory_disk import MemoryDisk
from tests.log.support import LEASED, SMALL, open_log, put, values_in

LARGE = LogConfig(retention_ms=-1)
CONFIGS = pytest.mark.parametrize("config", [SMALL, LARGE], ids=["rolling", "one-segment"])


class FewDescriptors(MemoryDisk):
    error_number = 0

    def open(self, path: str, *, write: bool = False, create: bool = False) -> File:  # type: ignore[override]
        if self.error_number:
            raise OSError(self.error_number, "too many open files", path)
        return super().open(path, write=write, create=create)


def filled(disk: MemoryDisk, config: LogConfig, pid: int = -1) -> PartitionLog:
    log = open_log(disk, config)
    for number in range(20):
        put(log, b"%d" % number, pid=pid, sequence=number if pid > 0 else -1)
    return log


@CONFIGS
@pytest.mark.parametrize("pid", [-1, LEASED])
@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE])
def test_appends_work_again_once_there_are_descriptors(number: int, pid: int, config: LogConfig) -> None:
    disk = FewDescriptors()
    log = filled(disk, config, pid)
    log.segments.active.handles.close()
    disk.error_number = number
    for _ in range(12):  # more than a segment takes
        with pytest.raises(LogStorageError):
            put(log, b"20", pid=pid, sequence=20 if pid > 0 else -1)
    disk.error_number = 0
    assert put(log, b"20", pid=pid, sequence=20 if pid > 0 else -1).decision is Decision.APPEND
    assert log.offline is None
    if pid > 0:
        assert put(log, b"19", pid=pid, sequence=19).decision is Decision.DUPLICATE
    expected = [b"%d" % each for each in range(21)]
    assert values_in(log) == expected
    assert values_in(open_log(disk.crash(keep_all=True), config)) == expected


def test_a_roll_that_cannot_open_a_file_is_done_by_a_later_append() -> None:
    disk = FewDescriptors()
    log = open_log(disk, SMALL)
    put(log, b"0")
    disk.error_number = errno.EMFILE
    stored = 1
    with pytest.raises(LogStorageError):
        for _ in range(20):
            put(log, b"x" * 100)
            stored += 1
    assert log.offline is None
    disk.error_number = 0
    put(log, b"last")
    assert (log.next_offset, len(log.segments)) == (stored + 1, 2)
    again = open_log(disk.crash(keep_all=True), SMALL)
    assert values_in(again) == [b"0", *[b"x" * 100] * (stored - 1), b"last"]


@CONFIGS
def test_a_flush_that_cannot_open_a_file_is_made_good_by_the_next(config: LogConfig) -> None:
    disk = FewDescriptors()
    log = filled(disk, replace(config, flush=Flush.EVERY))
    disk.error_number = errno.EMFILE
    with pytest.raises(LogStorageError):
        log.flush()
    assert (log.offline, log.high_watermark) == (None, 0)
    disk.error_number = 0
    log.flush()
    assert log.high_watermark == 20
    assert values_in(open_log(disk.crash(), config)) == [b"%d" % each for each in range(20)]
