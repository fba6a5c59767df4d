"""With flush=every nothing that may be lost is below the high watermark."""

import threading
from collections.abc import Callable
from dataclasses import replace

import pytest

from oncelog.log.config import Flush
from oncelog.log.errors import OffsetOutOfRange
from oncelog.log.notes import read_flushed
from oncelog.log.partition import PartitionLog
from tests.log.memory_disk import MemoryDisk, MemoryFile
from tests.log.support import FOLDER, LEASED, SMALL, open_log, put, values_in

EVERY = replace(SMALL, flush=Flush.EVERY)


def test_between_the_high_watermark_and_the_end_there_is_nothing_yet_but_no_error_either() -> None:
    log = open_log(MemoryDisk(), EVERY)
    put(log, b"0")
    assert (log.high_watermark, log.next_offset) == (0, 1)
    assert log.read(1, 100) == b""
    with pytest.raises(OffsetOutOfRange):
        log.read(2, 100)


def test_names_that_change_while_a_flush_runs_are_brought_to_the_disk_by_the_next_one() -> None:
    class Rolling(MemoryDisk):
        log: PartitionLog | None = None

        def sync_folder(self, folder: str) -> None:
            super().sync_folder(folder)
            log, self.log = self.log, None
            if log is not None:
                log.segments.roll()

    disk = Rolling()
    log = open_log(disk, EVERY)
    put(log, b"0")
    disk.log = log
    log.flush()
    put(log, b"1")
    log.flush()
    assert log.high_watermark == 2
    assert values_in(open_log(disk.crash())) == [b"0", b"1"]


def test_what_a_kill_left_unflushed_is_on_the_disk_before_anybody_sees_it() -> None:
    for number in range(20):
        disk = MemoryDisk(number)
        log = open_log(disk, EVERY)
        log.flush()
        put(log, b"0", pid=LEASED, sequence=0)
        # The process is gone, the machine lives on, and then it does not.
        assert open_log(disk, EVERY).high_watermark == 1
        assert values_in(open_log(disk.crash(), EVERY)) == [b"0"]


class Meanwhile(MemoryDisk):
    """While this disk works for somebody, once, something else is done."""

    def __init__(self, operation: str) -> None:
        super().__init__()
        self._operation = operation
        self.work: Callable[[], object] | None = None

    def step(self, operation: str, path: str) -> bool:
        if operation == self._operation and self.work is not None:
            work, self.work = self.work, None
            work()
        return super().step(operation, path)


def test_what_a_flush_notes_is_of_one_moment() -> None:
    disk = Meanwhile("fdatasync")
    log = open_log(disk, EVERY)
    put(log, b"0")
    size_bytes = log.segments.active.size_bytes
    last_crc = log.segments.active.last_crc

    def grow() -> None:
        while len(log.segments) < 3:
            put(log, b"more")

    disk.work = grow
    log.flush()
    assert read_flushed(disk, FOLDER) == (1, 0, size_bytes, last_crc)
    assert log.high_watermark == 1 < log.next_offset
    log.flush()
    active = log.segments.active
    assert read_flushed(disk, FOLDER) == (log.next_offset, active.base_offset, active.size_bytes, active.last_crc)
    assert open_log(disk.crash(), EVERY).offline is None


@pytest.mark.parametrize("operation", ["sync_folder", "truncate", "fdatasync"])
def test_a_flush_that_is_begun_in_the_midst_of_a_cut_does_not_count(operation: str) -> None:
    disk = Meanwhile(operation)
    log = open_log(disk, EVERY, replicated=True)
    for number in range(40):
        put(log, b"%d" % number)
    log.flush()
    put(log, b"40")
    disk.work = log.flush
    log.truncate_to(25)
    assert disk.work is None
    assert (log.next_offset, log.safe_offset <= 25) == (25, True)
    log.flush()
    assert log.safe_offset == 25
    again = open_log(disk.crash(keep_all=True), EVERY, replicated=True)
    assert (again.offline, again.next_offset) == (None, 25)


def test_a_flush_that_ends_behind_a_cut_in_the_midst_of_which_it_was_begun_does_not_count() -> None:
    class Slow(MemoryDisk):
        """The flush that is begun by the first removal waits for the disk until the cut is over."""

        log: PartitionLog | None = None
        flush: threading.Thread | None = None
        syncs, is_cut = threading.Event(), threading.Event()

        def unlink(self, path: str) -> None:
            log, self.log = self.log, None
            if log is not None:
                self.flush = threading.Thread(target=log.flush)
                self.flush.start()
                assert self.syncs.wait(60)
            super().unlink(path)

        def open(self, path: str, *, write: bool = False, create: bool = False) -> MemoryFile:
            if threading.current_thread() is self.flush:
                self.syncs.set()
                assert self.is_cut.wait(60)
            return super().open(path, write=write, create=create)

    disk = Slow()
    log = open_log(disk, EVERY, replicated=True)
    for number in range(40):
        put(log, b"%d" % number)
    log.flush()
    disk.log = log
    log.truncate_to(25)
    disk.is_cut.set()
    assert disk.flush is not None
    disk.flush.join()
    assert log.safe_offset <= 25
    again = open_log(disk.crash(keep_all=True), EVERY, replicated=True)
    assert (again.offline, again.next_offset) == (None, 25)


def test_a_flush_of_a_log_that_is_let_go_notes_nothing_for_the_one_that_has_its_folder_then() -> None:
    disk = Meanwhile("fdatasync")
    log = open_log(disk, EVERY)
    put(log, b"0")

    def begin_another() -> None:
        log.abandon()
        for name in disk.listdir(FOLDER):
            disk.unlink(f"{FOLDER}/{name}")
        open_log(disk, EVERY)

    disk.work = begin_another
    log.flush()
    assert disk.work is None and not disk.exists(f"{FOLDER}/flushed")
    assert open_log(disk.crash(keep_all=True), EVERY, stayed_up=True).offline is None
