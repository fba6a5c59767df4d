"""No more files can be opened: that goes by, so nothing of it may last."""

import errno
from dataclasses import replace
from pathlib import Path

import pytest

from oncelog.log.checkpoint import Checkpointer
from oncelog.log.config import Flush, LogConfig
from oncelog.log.disk import File
from oncelog.log.errors import LogStorageError
from oncelog.log.partition import PartitionLog
from oncelog.producers import Decision
from oncelog.server.topics import FEWEST_FILES
from tests.log.memory_disk import MemoryDisk
from tests.log.support import LEASED, NOW, SMALL, open_log, put, values_in
from tests.server import topics_support
from tests.server.topics_support import open_topics

LARGE = LogConfig(retention_ms=-1)
CONFIGS = pytest.mark.parametrize("config", [SMALL, LARGE], ids=["rolling", "one-segment"])


class FewDescriptors(MemoryDisk):
    error_number = 0

    def open(self, path: str, *, write: bool = False, create: bool = False) -> File:  # type: ignore[override]
        if self.error_number:
            raise OSError(self.error_number, "too many open files", path)
        return super().open(path, write=write, create=create)


class CountedFiles(MemoryDisk):
    """No more than so many are open at once."""

    most = 1 << 30
    open_now = 0

    def open(self, path: str, *, write: bool = False, create: bool = False) -> File:  # type: ignore[override]
        if self.open_now >= self.most:
            raise OSError(errno.EMFILE, "too many open files", path)
        file = super().open(path, write=write, create=create)
        self.open_now += 1
        close = file.close

        def closed() -> None:
            self.open_now -= 1
            close()

        file.close = closed  # type: ignore[method-assign]
        return file


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


def test_files_that_are_only_kept_open_give_way_to_others() -> None:
    disk = CountedFiles()
    log = filled(disk, SMALL)
    disk.most = disk.open_now + 1
    for number in range(20, 100):
        put(log, b"%d" % number)
    assert values_in(log) == [b"%d" % each for each in range(100)]


def test_a_low_limit_of_open_files_leaves_some_to_flushes_and_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    for limit, most in ((40, FEWEST_FILES), (128, 32)):
        monkeypatch.setattr("oncelog.server.topics.open_files_limit", lambda limit=limit: limit)
        disk = CountedFiles()
        topics = open_topics(Path("data"), disk)
        for partition in topics.create("many", 60, {}, topics_support.NOW).partitions:
            topics_support.append(partition)
        assert disk.open_now == most


def test_a_round_of_flushes_that_cannot_open_a_file_is_made_good_by_the_next_round_of_all() -> None:
    disk, checkpointer = FewDescriptors(), Checkpointer()
    log = open_log(disk, SMALL, checkpointer=checkpointer)
    put(log, b"0")
    disk.error_number = errno.EMFILE
    checkpointer.begin(NOW, everything=True).run()
    assert log.is_behind and log.offline is None
    disk.error_number = 0
    assert checkpointer.begin(NOW).plans == [], "it is in no hurry"
    checkpointer.begin(NOW, everything=True).run()
    assert not log.is_behind
    assert values_in(open_log(disk.crash())) == [b"0"]
    assert checkpointer.begin(NOW, everything=True).plans == []
