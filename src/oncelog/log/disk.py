"""The one seam to the disk. Nothing else in oncelog opens a file of a log.

Paths are plain strings with "/" between names. Every method raises `OSError` when the disk refuses; the log turns that
into `LogStorageError`. The tests' `MemoryDisk` is the twin that loses, tears and refuses writes.
"""

import errno
import os
import stat
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from typing import Protocol

from oncelog.records.header import Buffer

MAX_BUFFERS = 1024  # IOV_MAX on Linux and macOS
MOST_WHOLE_BYTES = 2**30


class File(Protocol):
    def pread(self, size_bytes: int, position: int) -> bytes:
        """Fewer bytes than asked for only at the end of the file."""
        ...

    def send_to(self, socket_fd: int, size_bytes: int, position: int) -> int:
        """Give bytes to a socket that does not block; how many it took, and 0 where it has no room or the file ends.

        An `OSError` may be the disk's or the socket's: `pread` tells which.
        """
        ...

    def pwritev(self, buffers: Sequence[Buffer], position: int) -> int:
        """Write at most MAX_BUFFERS buffers; answers how many bytes were taken, which may be fewer."""
        ...

    def fdatasync(self) -> None: ...

    def truncate(self, size_bytes: int) -> None: ...

    def size(self) -> int: ...

    def close(self) -> None: ...


class Disk(Protocol):
    def open(self, path: str, *, write: bool = False, create: bool = False) -> File:
        """`create` implies `write`; without it the file must be there. IsADirectoryError for whatever is no file."""
        ...

    def listdir(self, folder: str) -> list[str]: ...

    def mkdir(self, folder: str) -> None:
        """Parents too; no complaint when it is there. A new one is for this user alone."""
        ...

    def rename(self, old: str, new: str) -> None:
        """Replaces `new` when it is there."""
        ...

    def unlink(self, path: str) -> None: ...

    def rmdir(self, folder: str) -> None: ...

    def exists(self, path: str) -> bool: ...

    def size(self, path: str) -> int: ...

    def sync_folder(self, folder: str) -> None:
        """Make creations, renames and removals in this folder survive a power failure."""
        ...

    def make_private(self, path: str) -> None:
        """Leave the file to its owner alone, where the file system knows owners."""
        ...

    def free_bytes(self, folder: str) -> int: ...

    def boot_id(self) -> str:
        """Another one after each start of the machine, with which goes what never came to the disk itself; empty where
        the system does not tell."""
        ...


class RealFile:
    __slots__ = ("fd", "path")

    def __init__(self, fd: int, path: str = "") -> None:
        self.fd = fd
        self.path = path

    def pread(self, size_bytes: int, position: int) -> bytes:
        try:
            data = os.pread(self.fd, size_bytes, position)
            # One call hands out at most 2 GiB, and a signal or an odd file system may shorten it.
            while 0 < len(data) < size_bytes:
                more = os.pread(self.fd, size_bytes - len(data), position + len(data))
                if not more:
                    break
                data += more
        except OSError as error:
            raise self._named(error) from None
        return data

    def _named(self, error: OSError) -> OSError:
        """The system names a file only where it opens one."""
        error.filename = self.path
        return error

    def send_to(self, socket_fd: int, size_bytes: int, position: int) -> int:
        try:
            return os.sendfile(socket_fd, self.fd, position, size_bytes)
        except BlockingIOError:
            return 0

    def pwritev(self, buffers: Sequence[Buffer], position: int) -> int:
        try:
            return os.pwritev(self.fd, buffers, position)
        except OSError as error:
            raise self._named(error) from None

    def fdatasync(self) -> None:
        try:
            os.fdatasync(self.fd)
        except OSError as error:
            raise self._named(error) from None

    def truncate(self, size_bytes: int) -> None:
        try:
            os.ftruncate(self.fd, size_bytes)
        except OSError as error:
            raise self._named(error) from None

    def size(self) -> int:
        return os.fstat(self.fd).st_size

    def close(self) -> None:
        if self.fd >= 0:
            fd, self.fd = self.fd, -1
            os.close(fd)


def _check_is_file(facts: os.stat_result, path: str) -> None:
    if not stat.S_ISREG(facts.st_mode):
        raise IsADirectoryError(errno.EISDIR, "it is no file", path)


class RealDisk:
    def open(self, path: str, *, write: bool = False, create: bool = False) -> RealFile:
        # Not to wait for who writes to it, where it is a pipe.
        flags = os.O_CLOEXEC | os.O_NONBLOCK | (os.O_RDWR if write or create else os.O_RDONLY)
        fd = os.open(path, flags | (os.O_CREAT if create else 0), 0o644)
        try:
            _check_is_file(os.fstat(fd), path)
        except OSError:
            os.close(fd)
            raise
        return RealFile(fd, path)

    def listdir(self, folder: str) -> list[str]:
        return os.listdir(folder)

    def mkdir(self, folder: str) -> None:
        os.makedirs(folder, 0o700, exist_ok=True)

    def rename(self, old: str, new: str) -> None:
        os.replace(old, new)

    def unlink(self, path: str) -> None:
        os.unlink(path)

    def rmdir(self, folder: str) -> None:
        os.rmdir(folder)

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def size(self, path: str) -> int:
        facts = os.stat(path)
        _check_is_file(facts, path)
        return facts.st_size

    def sync_folder(self, folder: str) -> None:
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def make_private(self, path: str) -> None:
        with suppress(OSError):  # what knows no owners may refuse it
            os.chmod(path, 0o600)

    def free_bytes(self, folder: str) -> int:
        facts = os.statvfs(folder)
        return facts.f_bavail * facts.f_frsize

    def boot_id(self) -> str:
        return _boot_id()


@cache  # no process outlives it, and it is asked for with each note
def _boot_id() -> str:
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            return file.read().strip()
    except OSError:
        return ""


def read_whole(disk: Disk, path: str) -> bytes:
    """Read a file that is never large. A large one was not written here, and would take all memory."""
    file = disk.open(path)
    try:
        size_bytes = file.size()
        if size_bytes > MOST_WHOLE_BYTES:
            raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), path)
        return file.pread(size_bytes, 0)
    finally:
        file.close()


def write_all(file: File, buffers: Sequence[Buffer], position: int) -> int:
    """Every byte of the buffers, however short the single writes are; answers how many bytes that were."""
    start = position
    pending = list(buffers)
    while pending:
        taken = file.pwritev(pending[:MAX_BUFFERS], position)
        if taken <= 0 and any(len(buffer) for buffer in pending[:MAX_BUFFERS]):
            raise OSError(5, "the disk takes no bytes and gives no reason")
        position += taken
        pending = _rest(pending, taken)
    return position - start


def _rest(buffers: list[Buffer], taken: int) -> list[Buffer]:
    for at, buffer in enumerate(buffers):
        if taken < len(buffer):
            return [memoryview(buffer)[taken:], *buffers[at + 1 :]]
        taken -= len(buffer)
        if taken == 0:
            return buffers[at + 1 :]
    return []


def replace_file(disk: Disk, path: str, data: Buffer, *, durable: bool = True, is_private: bool = False) -> None:
    """Put `data` under `path` so that a reader sees the old contents or the new, never half of them."""
    temporary = path + ".tmp"
    try:
        _write_file(disk, temporary, data, durable, is_private)
        disk.rename(temporary, path)
    except OSError:
        if disk.exists(temporary):
            disk.unlink(temporary)
        raise
    if durable:
        disk.sync_folder(path.rpartition("/")[0])


def _write_file(disk: Disk, path: str, data: Buffer, durable: bool, is_private: bool) -> None:
    file = disk.open(path, create=True)
    try:
        if is_private:
            disk.make_private(path)
        file.truncate(0)
        write_all(file, [data], 0)
        if durable:
            file.fdatasync()
    finally:
        file.close()
