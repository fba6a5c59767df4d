"""Open files, bounded. Two thousand partitions need no more descriptors than the few that are in use.

Belongs to one thread: the one that appends and reads. What flushes in another thread opens files of its own.
"""

import errno
from array import array
from typing import NamedTuple

from oncelog.log.disk import Disk, File

READ_ONLY_ERRORS = (errno.EROFS, errno.EACCES, errno.EPERM)
MAX_PAGES = 256  # of indexes; 12 KiB each


class Page(NamedTuple):
    """The part of an index that was looked into last."""

    first_entry: int
    columns: "tuple[array[int], array[int], array[int]]"


class Handles:
    def __init__(self, disk: Disk, limit: int = 512) -> None:
        self.disk = disk
        self._limit = limit
        self._files: dict[str, File] = {}
        self._pages: dict[str, Page] = {}

    def get(self, path: str, *, create: bool = False) -> File:
        file = self._files.get(path)
        if file is None:
            file = self._open(path, create)
            while len(self._files) >= self._limit:
                self._files.pop(next(iter(self._files))).close()
            self._files[path] = file
        return file

    def forget(self, path: str) -> None:
        self._pages.pop(path, None)
        file = self._files.pop(path, None)
        if file is not None:
            file.close()

    def forget_folder(self, folder: str) -> None:
        for path in [path for path in self._files if path.startswith(folder + "/")]:
            self.forget(path)
        for path in [path for path in self._pages if path.startswith(folder + "/")]:
            del self._pages[path]

    def page(self, path: str) -> Page | None:
        return self._pages.get(path)

    def keep_page(self, path: str, page: Page) -> None:
        self._pages.pop(path, None)
        while len(self._pages) >= MAX_PAGES:
            del self._pages[next(iter(self._pages))]
        self._pages[path] = page

    def drop_page(self, path: str) -> None:
        self._pages.pop(path, None)

    def close(self) -> None:
        for path in list(self._files):
            self.forget(path)
        self._pages.clear()

    def _open(self, path: str, create: bool) -> File:
        try:
            return self.disk.open(path, write=True, create=create)
        except OSError as error:
            if error.errno not in READ_ONLY_ERRORS or not self.disk.exists(path):
                raise
            return self.disk.open(path)
