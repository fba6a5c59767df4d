"""One server per data folder.

The lock is the kernel's, on an open file, so it ends with its process however that dies, and nothing stale is ever in
the way. The file's contents only tell a second server whom to name.
"""

import fcntl
import os

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
            process_id = self._read_process_id()
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

    def _read_process_id(self) -> int | None:
        text = os.pread(self._fd, 32, 0).strip()
        return int(text) if text.isdigit() else None
