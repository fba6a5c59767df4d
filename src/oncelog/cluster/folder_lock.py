"""One server per data folder.

The lock is the kernel's, on an open file, so it ends with its process however that dies, and nothing stale is ever in
the way. The file's contents only tell a second server whom to name. The folder itself is locked, too, where its file
system can do that: somebody may remove the file, and a second server would make another one.
"""

import errno
import fcntl
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress

LOCK_FILE = ".lock"
OTHERS_READ = 0o007

logger = logging.getLogger(__name__)


class FolderInUse(Exception):
    def __init__(self, folder: str, process_id: int | None) -> None:
        holder = f"process {process_id}" if process_id is not None else "another process"
        super().__init__(f"the data folder {folder} is in use by {holder}: stop that first, or name another folder")
        self.folder = folder
        self.process_id = process_id


class FolderLock:
    """Taken when made, held until released. A lock of the same process counts as another's."""

    def __init__(self, folder: str) -> None:
        os.makedirs(folder, 0o700, exist_ok=True)
        _warn_of_others(folder)
        # O_CLOEXEC: a program that is started from here must not keep the lock alive.
        self._fd = os.open(os.path.join(folder, LOCK_FILE), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        self._folder_fd = -1
        try:
            _lock(folder, self._fd, fcntl.LOCK_EX)
            self._folder_fd = _locked_folder(folder, fcntl.LOCK_EX)
        except BaseException:
            os.close(self._fd)
            raise
        with suppress(OSError):  # on a full disk nobody is named
            os.ftruncate(self._fd, 0)
            os.pwrite(self._fd, f"{os.getpid()}\n".encode(), 0)

    @property
    def descriptors(self) -> tuple[int, ...]:
        """A process that is given these holds the lock, too, until it ends."""
        return self._fd, self._folder_fd

    def release(self) -> None:
        """The file stays: to remove it could take it from under a server that starts at this moment."""
        if self._fd >= 0:
            os.ftruncate(self._fd, 0)
            os.close(self._folder_fd)
            os.close(self._fd)
            self._fd = -1


@contextmanager
def no_server_in(folder: str) -> Iterator[None]:
    """Keep servers out for as long as it lasts, without writing; raises `FolderInUse` where one runs."""
    try:
        fd = os.open(os.path.join(folder, LOCK_FILE), os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:  # a copy without it, perhaps
        fd = -1
    try:
        if fd >= 0:
            _lock(folder, fd, fcntl.LOCK_SH)
        folder_fd = _locked_folder(folder, fcntl.LOCK_SH)
        try:
            yield
        finally:
            os.close(folder_fd)
    finally:
        if fd >= 0:
            os.close(fd)


def _warn_of_others(folder: str) -> None:
    """One that was there before keeps what its owner has allowed."""
    if os.stat(folder).st_mode & OTHERS_READ:
        logger.warning("other users of this machine may read %s, records and all: chmod 700 %s", folder, folder)


def _lock(folder: str, fd: int, kind: int) -> None:
    try:
        fcntl.flock(fd, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        raise FolderInUse(folder, _process_id_in(fd)) from None


def _locked_folder(folder: str, kind: int) -> int:
    """A descriptor that holds the lock, or none where the file system locks files only."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        raise FolderInUse(folder, None) from None
    except OSError as error:
        if error.errno not in (errno.EBADF, errno.EINVAL, errno.ENOTSUP, errno.ENOLCK, errno.ENOSYS):
            os.close(fd)
            raise
    return fd


def _process_id_in(fd: int) -> int | None:
    text = os.pread(fd, 32, 0).strip()
    return int(text) if text.isdigit() else None
