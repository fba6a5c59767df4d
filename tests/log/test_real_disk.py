"""What stands in the place of a log's file and is none, or is none that was written here."""

import os
from pathlib import Path
from threading import Thread

import pytest

from oncelog.log.config import LogConfig
from oncelog.log.disk import RealDisk, read_whole
from oncelog.log.partition import PartitionLog
from oncelog.log.partition_checking import Checked, check_partition
from tests.log.support import NOW, note_end, open_log, put, values_in

LARGE = LogConfig(retention_ms=-1, index_interval_bytes=200)
A_TERABYTE = 2**40
PATIENCE_S = 120


def written(folder: Path) -> None:
    log = open_log(RealDisk(), LARGE, folder=str(folder))
    for number in range(10):
        put(log, b"%d" % number)
    log.flush()
    note_end(log)
    log.delete_before(3)
    log.checkpoint(NOW)
    log.abandon()


def opened(folder: Path) -> tuple[PartitionLog, Checked]:
    found: list[tuple[PartitionLog, Checked]] = []

    def start() -> None:
        checked = check_partition(RealDisk(), str(folder), stayed_up=True)
        found.append((open_log(RealDisk(), LARGE, folder=str(folder), stayed_up=True), checked))

    thread = Thread(target=start, daemon=True)
    thread.start()
    thread.join(PATIENCE_S)
    assert found, "it waits for ever"
    return found[0]


SMALL_FILES = ["leader-epoch", "log-start", "flushed", "written"]


@pytest.mark.parametrize("name", [*SMALL_FILES, "00000000000000000000.log", "00000000000000000000.index"])
def test_a_pipe_keeps_nobody_waiting(name: str, tmp_path: Path) -> None:
    folder = tmp_path / "orders-0"
    written(folder)
    (folder / name).unlink()
    os.mkfifo(folder / name)
    log, checked = opened(folder)
    assert log.offline is not None and ("it is no file" in log.offline or "has 0 bytes" in log.offline)
    assert checked.damage


def test_a_pipe_in_the_place_of_all_there_was_is_no_empty_log(tmp_path: Path) -> None:
    """Nothing else says that there were records."""
    folder = tmp_path / "orders-0"
    folder.mkdir()
    os.mkfifo(folder / "00000000000000000000.log")
    log, checked = opened(folder)
    assert log.offline is not None and "it is no file" in log.offline
    assert checked.damage


@pytest.mark.parametrize("name", SMALL_FILES)
def test_a_small_file_that_has_grown_takes_no_memory(name: str, tmp_path: Path) -> None:
    folder = tmp_path / "orders-0"
    written(folder)
    os.truncate(folder / name, A_TERABYTE)
    log, checked = opened(folder)
    assert log.offline is not None and "File too large" in log.offline
    assert checked.damage


def test_a_snapshot_that_has_grown_is_as_good_as_none(tmp_path: Path) -> None:
    folder = tmp_path / "orders-0"
    written(folder)
    os.truncate(folder / "00000000000000000010.producers", A_TERABYTE)
    log, _ = opened(folder)
    assert (log.offline, values_in(log)) == (None, [b"%d" % number for number in range(3, 10)])


def test_what_is_no_file_is_not_opened(tmp_path: Path) -> None:
    for path in (tmp_path, Path("/dev/null")):
        with pytest.raises(IsADirectoryError, match="it is no file"):
            read_whole(RealDisk(), str(path))


def test_an_offset_that_no_log_comes_to_is_not_believed(tmp_path: Path) -> None:
    folder = tmp_path / "orders-0"
    written(folder)
    (folder / "log-start").write_text(f"{2**63 - 1}\n")
    log, checked = opened(folder)
    assert log.offline is not None and "log-start is damaged" in log.offline
    assert checked.damage


def test_an_epoch_that_no_log_comes_to_is_not_believed(tmp_path: Path) -> None:
    folder = tmp_path / "orders-0"
    written(folder)
    (folder / "leader-epoch").write_text(f"{2**31 - 2}\n")
    for _ in range(3):
        log, _ = opened(folder)
        put(log, b"more")
        log.abandon()
    assert log.leader_epoch < 100
