"""One server per data folder.

The lock is the kernel's, on an open file, so it ends with its process however that dies, and nothing stale is ever in
the way. The file's contents only tell a second server whom to name.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager

LOCK_FILE = ".lock"


class FolderInUse(Exception):
    def __init__(self, folder: str, process_id: int | None) -> None:
        holder = f"process {process_id}" if process_id is not None else "another process"
        super().__init__(f"the data folder {folder} is in use by {holder}")
        self.folder = folder
        self.process_id = process_id


class FolderLock:
    """Taken when made, held until released. A lock of the same process counts as another's."""

    def __init__(self, folder: str) -> None:
        os.makedirs(folder, exist_ok=True)
        # O_CLOEXEC: a program that is started from here must not keep the lock alive.
        self._fd = os.open(os.path.join(folder, LOCK_FILE), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            process_id = _process_id_in(self._fd)
            os.close(self._fd)
            raise FolderInUse(folder, process_id) from None
        except OSError:
            os.close(self._fd)
            raise
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, f"{os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        """The file stays: to remove it could take it from under a server that starts at this moment."""
        if self._fd >= 0:
            os.ftruncate(self._fd, 0)
            os.close(self._fd)
            self._fd = -1


@contextmanager
def no_server_in(folder: str) -> Iterator[None]:
    """Nothing is written. As long as it lasts no server can start there; raises `FolderInUse` where one runs."""
    try:
        fd = os.open(os.path.join(folder, LOCK_FILE), os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:  # a copy without it, perhaps; nobody runs there
        yield
        return
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            raise FolderInUse(folder, _process_id_in(fd)) from None
        yield
    finally:
        os.close(fd)


def _process_id_in(fd: int) -> int | None:
    text = os.pread(fd, 32, 0).strip()
    return int(text) if text.isdigit() else None
