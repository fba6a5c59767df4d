"""With flush=every nothing that may be lost is below the high watermark."""

from dataclasses import replace

import pytest

from oncelog.log.config import Flush
from oncelog.log.errors import OffsetOutOfRange
from oncelog.log.partition import PartitionLog
from tests.log.memory_disk import MemoryDisk
from tests.log.support import LEASED, SMALL, open_log, put, values_in

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
