"""A disk that is full, read-only or broken: the log stays readable and whole, and says so once."""

import errno
import logging
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from oncelog.log.checkpoint import Checkpointer
from oncelog.log.config import LogConfig
from oncelog.log.disk import RealDisk, RealFile, replace_file
from oncelog.log.errors import LogStorageError
from oncelog.log.partition import PartitionLog
from oncelog.producers import Decision
from oncelog.records.header import check_produced
from tests.log.memory_disk import MemoryDisk
from tests.log.support import LEASED, NOW, SMALL, batch, open_log, put, seed, values_in

LARGE = LogConfig(retention_ms=-1)


def filled(disk: MemoryDisk, config: LogConfig = SMALL, checkpointer: Checkpointer | None = None) -> PartitionLog:
    log = open_log(disk, config, checkpointer=checkpointer)
    for number in range(20):
        put(log, b"%d" % number, pid=LEASED, sequence=number)
    return log


def check_unharmed(log: PartitionLog) -> None:
    assert values_in(log) == [b"%d" % number for number in range(20)]
    assert log.producers.highwater(LEASED) == (0, 19)
    assert (log.next_offset, log.high_watermark) == (20, 20)


def fill_up(disk: MemoryDisk) -> None:
    disk.capacity_bytes = 1 << 40
    disk.capacity_bytes -= disk.free_bytes("data")
    disk.capacity_bytes += 30  # less than a batch, so that a part of one still fits


FAULTS: dict[str, Callable[[MemoryDisk], None]] = {
    "full": fill_up,
    "read-only": lambda disk: disk.fail("pwritev truncate open rename unlink mkdir", errno.EROFS),
    "broken": lambda disk: disk.fail("pwritev", errno.EIO),
}


@pytest.mark.parametrize("config", [SMALL, LARGE], ids=["rolling", "one-segment"])
@pytest.mark.parametrize("fault", FAULTS)
def test_a_refused_append_leaves_everything_as_it_was_and_is_said_once(
    fault: str, config: LogConfig, caplog: pytest.LogCaptureFixture
) -> None:
    disk = MemoryDisk(seed())
    log = filled(disk, config)
    FAULTS[fault](disk)
    with caplog.at_level(logging.INFO):
        for _ in range(3):
            made = [batch(b"x" * 100, pid=LEASED, sequence=20 + number) for number in range(8)]
            for each in made:
                log.stage(each, check_produced(each), NOW)
            with pytest.raises(LogStorageError):
                log.commit()
            check_unharmed(log)
    assert sum(record.levelno == logging.ERROR for record in caplog.records) == 1
    assert log.offline is None
    disk.heal()
    caplog.clear()
    with caplog.at_level(logging.INFO):
        assert put(log, b"20", pid=LEASED, sequence=20).decision is Decision.APPEND
        put(log, b"21", pid=LEASED, sequence=21)
    assert "appends work again" in caplog.text
    log = open_log(disk.crash(keep_all=True), config)
    assert values_in(log) == [b"%d" % number for number in range(22)]
    assert log.producers.highwater(LEASED) == (0, 21)


def test_a_torn_write_that_cannot_be_cut_off_ends_the_appends_but_not_the_reads() -> None:
    disk = MemoryDisk()
    log = filled(disk, LARGE)
    fill_up(disk)
    disk.fail("truncate", errno.EIO)
    with pytest.raises(LogStorageError):
        put(log, b"x" * 100)
    assert log.offline is not None and "cannot be cut off" in log.offline
    check_unharmed(log)
    disk.heal()
    with pytest.raises(LogStorageError):
        put(log, b"x")
    log = open_log(disk.crash(keep_all=True), LARGE)
    check_unharmed(log)


def test_after_a_failed_flush_nothing_is_appended_and_everything_readable_stays_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    disk = MemoryDisk()
    log = filled(disk)
    disk.fail("fdatasync", errno.EIO)
    with pytest.raises(LogStorageError):
        log.flush()
    with pytest.raises(LogStorageError):
        put(log, b"x")
    check_unharmed(log)
    assert caplog.text.count("is offline") == 1


def test_a_log_on_a_read_only_disk_can_be_read() -> None:
    disk = MemoryDisk()
    filled(disk).close()
    FAULTS["read-only"](disk)
    log = open_log(disk)
    check_unharmed(log)
    with pytest.raises(LogStorageError):
        put(log, b"x")
    check_unharmed(log)


def test_a_log_with_a_torn_tail_on_a_read_only_disk_can_be_read() -> None:
    disk = MemoryDisk()
    log = filled(disk)
    active = log.segments.active
    disk.open(active.log_path, write=True).pwritev([b"torn" * 30], active.size_bytes)
    FAULTS["read-only"](disk)
    log = open_log(disk)
    check_unharmed(log)
    assert log.offline is not None and "cannot be cut off" in log.offline


def test_a_recovery_point_that_cannot_be_written_costs_nothing_but_time(caplog: pytest.LogCaptureFixture) -> None:
    disk = MemoryDisk()
    checkpointer = Checkpointer()
    log = filled(disk, checkpointer=checkpointer)
    fill_up(disk)
    disk.capacity_bytes -= 30
    checkpointer.begin(NOW, everything=True).run()
    disk.heal()
    assert log.offline is None
    put(log, b"20", pid=LEASED, sequence=20)
    log = open_log(disk.crash(keep_all=True))
    assert values_in(log) == [b"%d" % number for number in range(21)]


@pytest.fixture
def small_file_system(tmp_path: Path) -> "list[str]":
    """The command that runs a program where only so much can be written, as far as this machine allows one."""
    place = tmp_path / "small"
    place.mkdir()
    script = 'mount -t tmpfs -o size=512k tmpfs "$0" && exec "$@"'
    mounting = ["unshare", "--mount", "--map-root-user", "sh", "-c", script, str(place)]
    if subprocess.run([*mounting, "true"], capture_output=True, check=False).returncode == 0:
        return mounting
    return []


PROGRAM = """
import sys
from tests.log.test_faults import write_until_full
write_until_full(sys.argv[1])
"""


def write_until_full(folder: str) -> None:
    """Runs where the disk is small: fill it, read everything, make room, go on, start anew."""
    log = open_log(RealDisk(), LogConfig(segment_bytes=100_000, retention_ms=-1), folder=f"{folder}/orders-0")
    assert log.offline is None, log.offline
    stored = 0
    try:
        while stored < 2000:
            put(log, b"x" * 1000, pid=LEASED, sequence=stored)
            stored += 1
    except LogStorageError as error:
        sys.stdout.write(str(error))
    assert 100 < stored < 2000, stored
    assert len(values_in(log)) == stored
    log.delete_before(stored // 2)
    for _ in range(20):
        put(log, b"x" * 1000, pid=LEASED, sequence=stored)
        stored += 1
    log.segments.active.handles.close()
    log = open_log(RealDisk(), LogConfig(segment_bytes=100_000, retention_ms=-1), folder=f"{folder}/orders-0")
    assert log.offline is None, log.offline
    assert log.next_offset == stored
    assert log.producers.highwater(LEASED) == (0, stored - 1)
    assert put(log, b"x" * 1000, pid=LEASED, sequence=stored - 1).decision is Decision.DUPLICATE


def test_a_really_full_disk_refuses_appends_until_there_is_room(tmp_path: Path, small_file_system: list[str]) -> None:
    program = [sys.executable, "-c", PROGRAM, str(tmp_path / "small")]
    if small_file_system:
        done = subprocess.run([*small_file_system, *program], capture_output=True, text=True, check=False)
        expected = "No space left"
    else:
        # Where nothing can be mounted a limit on the size of files does: the system refuses the write just the same.
        done = subprocess.run(program, capture_output=True, text=True, check=False, preexec_fn=_limit_files)
        expected = "too large"
    assert done.returncode == 0, done.stderr
    assert expected in done.stdout


def _limit_files() -> None:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (90_000, 90_000))


def test_a_log_that_cannot_tell_its_producers_after_a_cut_takes_no_more_appends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = filled(MemoryDisk())

    def fail(*_: object) -> None:
        log.producers.clear()
        raise LogStorageError("damaged")

    monkeypatch.setattr("oncelog.log.stored_producers.replaying", fail)
    with pytest.raises(LogStorageError):
        log.truncate_to(10)
    with pytest.raises(LogStorageError, match="cannot be cut back"):
        put(log, b"19", pid=LEASED, sequence=19)


def test_what_the_disk_refuses_names_the_file(tmp_path: Path) -> None:
    """The system does so only where it opens one; which disk is to be replaced is what the message is for."""
    path = str(tmp_path / "file")
    RealDisk().open(path, create=True).close()
    file, folder = RealDisk().open(path), RealFile(os.open(tmp_path, os.O_RDONLY), str(tmp_path))
    refused: list[tuple[Callable[[], object], str]] = [
        (lambda: file.pwritev([b"x"], 0), path),
        (lambda: file.truncate(5), path),
        (lambda: folder.pread(5, 0), str(tmp_path)),
    ]
    for work, name in refused:
        with pytest.raises(OSError) as caught:
            work()
        assert caught.value.filename == name


def test_the_disk_in_memory_is_used_by_many_threads_as_a_real_one_is() -> None:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        disk = MemoryDisk()
        disk.mkdir("data")
        with ThreadPoolExecutor(4) as threads:
            names = [f"data/{number}" for number in range(200)]
            list(threads.map(lambda path: replace_file(disk, path, b"contents"), names))
    finally:
        sys.setswitchinterval(before)
    found = disk.crash()
    assert all(found.exists(path) for path in names)
