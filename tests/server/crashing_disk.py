"""A disk in a temporary folder on which the server dies before its nth change, or which refuses all from then on."""

import errno
from collections.abc import Callable, Sequence
from typing import TypeVar

from oncelog.log.disk import RealDisk, RealFile
from oncelog.records.header import Buffer

T = TypeVar("T")


def nothing() -> None:
    """What a flush does here: a process that dies takes nothing along that the system has."""


class Died(BaseException):
    """Not an Exception, so that nothing on the way tidies up: a dead process does not either."""


class CrashingDisk(RealDisk):
    """`changes` counts what was written, created, renamed, removed or flushed."""

    def __init__(self, die_at: int | None = None, refuse_at: int | None = None) -> None:
        self.changes = 0
        self.die_at = die_at
        self.refuse_at = refuse_at

    def change(self, work: Callable[[], T]) -> T:
        if self.die_at is not None and self.changes >= self.die_at:
            raise Died
        if self.refuse_at is not None and self.changes >= self.refuse_at:
            raise OSError(errno.ENOSPC, "No space left on device")
        self.changes += 1
        return work()

    def open(self, path: str, *, write: bool = False, create: bool = False) -> RealFile:
        if create and not self.exists(path):
            self.change(lambda: super(CrashingDisk, self).open(path, create=True).close())
        real = super().open(path, write=write or create)
        file = CrashingFile(real.fd)
        file.disk = self
        return file

    def mkdir(self, folder: str) -> None:
        if not self.exists(folder):
            self.change(lambda: super(CrashingDisk, self).mkdir(folder))

    def rename(self, old: str, new: str) -> None:
        self.change(lambda: super(CrashingDisk, self).rename(old, new))

    def unlink(self, path: str) -> None:
        self.change(lambda: super(CrashingDisk, self).unlink(path))

    def rmdir(self, folder: str) -> None:
        self.change(lambda: super(CrashingDisk, self).rmdir(folder))

    def sync_folder(self, folder: str) -> None:
        self.change(nothing)


class CrashingFile(RealFile):
    disk: CrashingDisk

    def pwritev(self, buffers: Sequence[Buffer], position: int) -> int:
        return self.disk.change(lambda: super(CrashingFile, self).pwritev(buffers, position))

    def fdatasync(self) -> None:
        self.disk.change(nothing)

    def truncate(self, size_bytes: int) -> None:
        self.disk.change(lambda: super(CrashingFile, self).truncate(size_bytes))
