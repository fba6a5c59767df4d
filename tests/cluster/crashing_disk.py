"""A disk whose process dies before its n-th step; a write may be torn first. What was done stays done."""

from collections.abc import Sequence

from oncelog.log.disk import Disk, File
from oncelog.records.header import Buffer


class Crash(BaseException):
    """The process is gone: nothing may catch this and go on."""


class Steps:
    def __init__(self, crash_at: int) -> None:
        self.taken = 0
        self.crash_at = crash_at

    def step(self) -> None:
        self.taken += 1
        if self.taken >= self.crash_at:
            raise Crash


class CrashingFile:
    def __init__(self, file: File, steps: Steps) -> None:
        self._file = file
        self._steps = steps

    def pread(self, size_bytes: int, position: int) -> bytes:
        return self._file.pread(size_bytes, position)

    def pwritev(self, buffers: Sequence[Buffer], position: int) -> int:
        try:
            self._steps.step()
        except Crash:
            whole = b"".join(bytes(buffer) for buffer in buffers)
            self._file.pwritev([whole[: len(whole) // 2]], position)
            raise
        return self._file.pwritev(buffers, position)

    def fdatasync(self) -> None:
        self._steps.step()
        self._file.fdatasync()

    def truncate(self, size_bytes: int) -> None:
        self._steps.step()
        self._file.truncate(size_bytes)

    def size(self) -> int:
        return self._file.size()

    def close(self) -> None:
        self._file.close()


class CrashingDisk:
    def __init__(self, disk: Disk, crash_at: int) -> None:
        self._disk = disk
        self.steps = Steps(crash_at)

    def open(self, path: str, *, write: bool = False, create: bool = False) -> File:
        if create:
            self.steps.step()
        return CrashingFile(self._disk.open(path, write=write, create=create), self.steps)

    def rename(self, old: str, new: str) -> None:
        self.steps.step()
        self._disk.rename(old, new)

    def unlink(self, path: str) -> None:
        self.steps.step()
        self._disk.unlink(path)

    def rmdir(self, folder: str) -> None:
        self.steps.step()
        self._disk.rmdir(folder)

    def mkdir(self, folder: str) -> None:
        self.steps.step()
        self._disk.mkdir(folder)

    def sync_folder(self, folder: str) -> None:
        self.steps.step()
        self._disk.sync_folder(folder)

    def listdir(self, folder: str) -> list[str]:
        return self._disk.listdir(folder)

    def exists(self, path: str) -> bool:
        return self._disk.exists(path)

    def size(self, path: str) -> int:
        return self._disk.size(path)

    def free_bytes(self, folder: str) -> int:
        return self._disk.free_bytes(folder)
