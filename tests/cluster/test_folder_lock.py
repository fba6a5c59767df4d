"""One server per data folder, whatever became of the last one."""

import errno
import fcntl
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from oncelog.clock import ManualClock
from oncelog.cluster import DamagedFolder, FileCluster, FolderInUse, FolderLock
from oncelog.cluster.folder_lock import no_server_in
from oncelog.log.disk import RealDisk
from tests.logged import messages

HOLDER = """
import sys
from oncelog.cluster import FolderLock
lock = FolderLock(sys.argv[1])
print("held", flush=True)
sys.stdin.read()
lock.release()
"""


@contextmanager
def another_process_with_the_lock(folder: Path) -> Iterator["subprocess.Popen[str]"]:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    )
    with holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        try:
            yield holder
        finally:
            holder.kill()


def open_cluster(folder: Path) -> FileCluster:
    return FileCluster.open(RealDisk(), str(folder), ManualClock(), node_id=1, lease_lifetime_ms=1000)


def test_a_second_server_is_refused_and_told_the_process_id_of_the_first(tmp_path: Path) -> None:
    with another_process_with_the_lock(tmp_path) as holder:
        with pytest.raises(FolderInUse, match=f"in use by process {holder.pid}") as refused:
            open_cluster(tmp_path)
        assert refused.value.process_id == holder.pid
        assert not (tmp_path / "server.meta").exists(), "nothing was touched"


def test_a_lock_whose_file_was_removed_is_held_on(tmp_path: Path) -> None:
    """Two servers would write over each other's records."""
    with another_process_with_the_lock(tmp_path) as holder:
        (tmp_path / ".lock").unlink()
        for _ in range(2):  # the first has made the file anew
            with pytest.raises(FolderInUse, match="in use by another process: stop that first, or name another folder"):
                open_cluster(tmp_path)
        with pytest.raises(FolderInUse), no_server_in(str(tmp_path)):
            raise AssertionError("it runs")
        holder.kill()
        holder.wait(30)
        open_cluster(tmp_path).close()


@pytest.mark.parametrize("number", [errno.EBADF, errno.ENOLCK])
def test_where_only_files_can_be_locked_the_file_is_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """As over NFS."""
    flock = fcntl.flock

    def of_files_only(fd: int, kind: int) -> None:
        if stat.S_ISDIR(os.fstat(fd).st_mode):
            raise OSError(number, os.strerror(number))
        flock(fd, kind)

    monkeypatch.setattr(fcntl, "flock", of_files_only)
    first = open_cluster(tmp_path)
    with pytest.raises(FolderInUse):
        open_cluster(tmp_path)
    first.close()
    open_cluster(tmp_path).close()


def test_on_a_full_disk_the_lock_is_taken_and_nobody_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", full)
        lock = FolderLock(str(tmp_path))
    with pytest.raises(FolderInUse, match="in use by another process"):
        FolderLock(str(tmp_path))
    lock.release()


def test_after_kill_9_the_next_server_starts(tmp_path: Path) -> None:
    with another_process_with_the_lock(tmp_path) as holder:
        holder.send_signal(signal.SIGKILL)
        holder.wait(30)
        assert (tmp_path / ".lock").read_text() == f"{holder.pid}\n", "its file is left behind, and in nobody's way"
        open_cluster(tmp_path).close()


def test_two_servers_in_one_process_do_not_share_a_folder_either(tmp_path: Path) -> None:
    first = open_cluster(tmp_path)
    with pytest.raises(FolderInUse, match=f"process {os.getpid()}"):
        open_cluster(tmp_path)
    first.close()
    open_cluster(tmp_path).close()


def test_a_start_that_fails_gives_the_lock_back(tmp_path: Path) -> None:
    (tmp_path / "server.meta").write_text("{")
    for _ in range(2):
        with pytest.raises(DamagedFolder):
            open_cluster(tmp_path)


def test_a_holder_that_has_not_written_its_process_id_yet_is_called_another_process(tmp_path: Path) -> None:
    lock = FolderLock(str(tmp_path))
    (tmp_path / ".lock").write_text("")
    with pytest.raises(FolderInUse, match="in use by another process"):
        FolderLock(str(tmp_path))
    lock.release()


def test_nothing_of_the_last_holders_process_id_is_left(tmp_path: Path) -> None:
    (tmp_path / ".lock").write_text("12345678901234567890\n")
    lock = FolderLock(str(tmp_path))
    assert (tmp_path / ".lock").read_text() == f"{os.getpid()}\n"
    lock.release()
    assert (tmp_path / ".lock").read_text() == ""


def test_a_lock_is_released_once(tmp_path: Path) -> None:
    lock = FolderLock(str(tmp_path))
    lock.release()
    lock.release()
    FolderLock(str(tmp_path)).release()


def test_a_program_started_from_the_server_does_not_keep_the_lock(tmp_path: Path) -> None:
    lock = FolderLock(str(tmp_path))
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        lock.release()
        FolderLock(str(tmp_path)).release()
        child.kill()


def test_the_data_folder_is_made_where_there_is_none(tmp_path: Path) -> None:
    open_cluster(tmp_path / "deep" / "down").close()
    assert (tmp_path / "deep" / "down" / "server.meta").exists()


def test_a_new_data_folder_is_for_its_owner_alone_and_one_that_others_may_read_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    before = os.umask(0o022)
    try:
        FolderLock(str(tmp_path / "new")).release()
        (tmp_path / "older").mkdir()
    finally:
        os.umask(before)
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o700 and not messages(caplog, "oncelog.cluster")
    FolderLock(str(tmp_path / "older")).release()
    assert f"other users of this machine may read {tmp_path / 'older'}, records and all" in caplog.text
