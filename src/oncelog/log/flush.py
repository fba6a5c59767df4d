"""Bringing one partition to the disk, from any thread.

A flush opens files of its own, so it never meets the appending thread over a descriptor. What it must bring to the disk
is noted by the appending thread in an order that a flush running at the same time can rely on: see `sync`.
"""

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from oncelog.log.disk import Disk
from oncelog.log.snapshots import Snapshot, drop_old, write_snapshot


class Flusher:
    def __init__(self, disk: Disk, folder: str) -> None:
        self._disk = disk
        self._folder = folder
        self._one_at_a_time = threading.Lock()
        self.closed_files: deque[str] = deque()  # of segments that are full and not on the disk yet
        # Counted, because a flag that one thread lowers while the other raises it is lost.
        self.name_changes = 0  # files were created, renamed or removed
        self.new_folder = False  # raised before the first flush only
        self._synced_changes = 0
        self.point_offset = -1  # where the newest recovery point stands

    def sync(self, active_path: str, *also: str) -> None:
        """`active_path` was read before this call; a roll appends to `closed_files` before it changes that."""
        with self._one_at_a_time:
            closed = list(self.closed_files)
            name_changes = self.name_changes
            for path in (*closed, active_path, *also):
                self._sync_file(path)
            if name_changes != self._synced_changes:
                self._disk.sync_folder(self._folder)
                self._synced_changes = name_changes
            if self.new_folder:
                self._disk.sync_folder(self._folder.rpartition("/")[0] or ".")
                self.new_folder = False
            for _ in closed:
                self.closed_files.popleft()

    def _sync_file(self, path: str) -> None:
        try:
            file = self._disk.open(path, write=True)
        except FileNotFoundError:
            return  # retention or compaction took it away in the meantime
        try:
            file.fdatasync()
        finally:
            file.close()


@dataclass(slots=True)
class FlushPlan:
    """What the appending thread hands to the one that waits for the disk."""

    disk: Disk
    folder: str
    flusher: Flusher
    snapshot: Snapshot
    log_path: str
    index_path: str
    segment_bases: list[int]
    still_holds: Callable[[], bool]  # False once the log was cut back or closed

    def sync(self) -> None:
        self.flusher.sync(self.log_path, self.index_path)

    def write_snapshot(self) -> None:
        if self.snapshot.point.offset < self.flusher.point_offset:
            return  # a later plan was faster, and compaction may have changed what this one's positions mean
        write_snapshot(self.disk, self.folder, self.snapshot)
        self.flusher.point_offset = self.snapshot.point.offset
        drop_old(self.disk, self.folder, self.segment_bases)
