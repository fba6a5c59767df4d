"""The files and names of a partition that are not on the disk yet, and bringing them there, from any thread.

A flush opens files of its own, so it never meets the appending thread over a descriptor. What it must bring to the disk
is noted by the appending thread in an order that a flush running at the same time can rely on: see `sync`.
"""

import threading
from collections import deque
from collections.abc import Iterable

from oncelog.log.disk import Disk
from oncelog.log.segment import Segment


class Unsynced:
    def __init__(self, disk: Disk, folder: str) -> None:
        self._disk = disk
        self._folder = folder
        self._one_at_a_time = threading.Lock()
        self._closed_files: deque[str] = deque()
        # Counted, because a flag that one thread lowers while the other raises it is lost.
        self._name_changes = 0  # files were created, renamed or removed
        self._synced_changes = 0
        self._new_folder = False  # raised before the first flush only

    def note_folder(self) -> None:
        self._new_folder = True

    def note_name(self) -> None:
        self._name_changes += 1

    def note_closed(self, segments: Iterable[Segment]) -> None:
        """Note segments that are full, or were found behind the recovery point: nothing is appended to them any
        more."""
        for segment in segments:
            self._closed_files.extend((segment.log_path, segment.index.path))

    def sync(self, active_path: str, *also: str) -> None:
        """`active_path` was read before this call; a roll notes what it closes before it changes that."""
        with self._one_at_a_time:
            closed = list(self._closed_files)
            name_changes = self._name_changes
            for path in (*closed, active_path, *also):
                self._sync_file(path)
            if name_changes != self._synced_changes:
                self._disk.sync_folder(self._folder)
                self._synced_changes = name_changes
            if self._new_folder:
                self._disk.sync_folder(self._folder.rpartition("/")[0] or ".")
                self._new_folder = False
            for _ in closed:
                self._closed_files.popleft()

    def _sync_file(self, path: str) -> None:
        try:
            file = self._disk.open(path, write=True)
        except FileNotFoundError:
            return  # retention or compaction took it away in the meantime
        try:
            file.fdatasync()
        finally:
            file.close()
