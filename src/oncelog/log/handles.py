"""Open files, bounded. Two thousand partitions need no more descriptors than the few that are in use.

Belongs to one thread: the one that appends and reads. What flushes in another thread opens files of its own.
"""

import errno
from array import array
from typing import NamedTuple

from oncelog.clock import Now
from oncelog.log.disk import Disk, File
from oncelog.log.errors import NO_DESCRIPTORS
from oncelog.log.room import Room

READ_ONLY_ERRORS = (errno.EROFS, errno.EACCES, errno.EPERM)
MAX_FILES = 512
MAX_PAGES = 256  # of indexes; 12 KiB each
LARGE_SEGMENT_BYTES = 2**20  # Kafka's least; only what is smaller can be closed by the thousand


class Page(NamedTuple):
    """The part of an index that was looked into last."""

    first_entry: int
    columns: "tuple[array[int], array[int], array[int]]"


class Pace:
    """A limit on closing small segments, all logs together: two files for each batch would hold everybody up."""

    def __init__(self, burst: int, pause_ms: int) -> None:
        self._ahead_ms = (burst - 1) * pause_ms
        self._pause_ms = pause_ms
        self._due_ms = 0  # when the next one would be due at an even pace

    def allows(self, size_bytes: int, now: Now) -> bool:
        if size_bytes >= LARGE_SEGMENT_BYTES:
            return True
        due_ms = max(self._due_ms, now.monotonic_ms)
        if due_ms - now.monotonic_ms > self._ahead_ms:
            return False
        self._due_ms = due_ms + self._pause_ms
        return True


class Handles:
    def __init__(self, disk: Disk, limit: int = MAX_FILES, pace: Pace | None = None) -> None:
        self.disk = disk
        self.pace = pace  # none: as often as they are full
        self.room = Room(disk)
        self._limit = limit
        self._files: dict[str, File] = {}
        self._pages: dict[str, Page] = {}
        self._by_folder: dict[str, set[str]] = {}  # the paths of both

    def get(self, path: str, *, create: bool = False) -> File:
        file = self._files.get(path)
        if file is None:
            try:
                file = self._open(path, create)
            except OSError as error:
                if error.errno not in NO_DESCRIPTORS or not self._files:
                    raise
                self._close_down_to(len(self._files) // 2)  # others in this process need some, too
                file = self._open(path, create)
            self._close_down_to(self._limit - 1)
            self._files[path] = file
            self._note(path)
        return file

    def _close_down_to(self, count: int) -> None:
        """The oldest first."""
        while len(self._files) > count:
            oldest = next(iter(self._files))
            self._files.pop(oldest).close()
            self._let_go(oldest)

    def forget(self, path: str) -> None:
        self._pages.pop(path, None)
        file = self._files.pop(path, None)
        if file is not None:
            file.close()
        self._let_go(path)

    def forget_folder(self, folder: str) -> None:
        for path in list(self._by_folder.get(folder, ())):
            self.forget(path)

    def page(self, path: str) -> Page | None:
        return self._pages.get(path)

    def keep_page(self, path: str, page: Page) -> None:
        self._pages.pop(path, None)
        while len(self._pages) >= MAX_PAGES:
            self.drop_page(next(iter(self._pages)))
        self._pages[path] = page
        self._note(path)

    def drop_page(self, path: str) -> None:
        self._pages.pop(path, None)
        self._let_go(path)

    def _note(self, path: str) -> None:
        self._by_folder.setdefault(_folder(path), set()).add(path)

    def _let_go(self, path: str) -> None:
        if path in self._files or path in self._pages:
            return
        folder = _folder(path)
        paths = self._by_folder.get(folder, set())
        paths.discard(path)
        if not paths:
            self._by_folder.pop(folder, None)

    def close(self) -> None:
        for path in [*self._files, *self._pages]:
            self.forget(path)

    def _open(self, path: str, create: bool) -> File:
        try:
            return self.disk.open(path, write=True, create=create)
        except OSError as error:
            if error.errno not in READ_ONLY_ERRORS or not self.disk.exists(path):
                raise
            return self.disk.open(path)


def _folder(path: str) -> str:
    return path.rpartition("/")[0]
