"""The segments of one partition, in order. The last one is active: it alone is appended to."""

from bisect import bisect_right
from collections.abc import Iterator

from oncelog.log.disk import Disk
from oncelog.log.handles import Handles
from oncelog.log.segment import Segment
from oncelog.log.unsynced import Unsynced


class Segments:
    def __init__(
        self,
        disk: Disk,
        folder: str,
        handles: Handles,
        unsynced: Unsynced,
        segments: list[Segment],
        log_start_offset: int,
        has_gaps: bool,
    ) -> None:
        """An empty list of segments means one that is in memory alone until `add`."""
        self._disk = disk
        self._folder = folder
        self._handles = handles
        self._segments = segments
        self._bases = [segment.base_offset for segment in segments]
        self._unsynced = unsynced
        self._closed_bytes: int | None = None  # where it is known
        self.changes = 0  # how often segments went
        self._has_gaps = has_gaps  # what is appended comes from a leader that may have compacted it
        self.active = segments[-1] if segments else Segment(handles, folder, log_start_offset)

    def __len__(self) -> int:
        return len(self._segments)

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._segments)

    def __getitem__(self, number: int) -> Segment:
        return self._segments[number]

    @property
    def closed(self) -> list[Segment]:
        return self._segments[:-1]

    @property
    def first_offset(self) -> int:
        return self._bases[0] if self._bases else self.active.base_offset

    def first(self, count: int) -> list[Segment]:
        return self._segments[:count]

    @property
    def bases(self) -> list[int]:
        return list(self._bases)

    @property
    def size_bytes(self) -> int:
        if self._closed_bytes is None:
            self._closed_bytes = sum(segment.size_bytes for segment in self.closed)
        return self._closed_bytes + (self._segments[-1].size_bytes if self._segments else 0)

    def number_of(self, offset: int) -> int:
        """The segment that holds the offset, if any does."""
        return max(0, bisect_right(self._bases, offset) - 1)

    def add(self, base_offset: int) -> None:
        """A new, empty, active segment. A file of that name is a remainder of an append that failed."""
        segment = self._new(base_offset)
        self._unsynced.note_name()
        self.active = segment

    def roll(self) -> None:
        """Close the active segment and begin another one at its end."""
        full = self.active
        full.close_index()
        full.index.write()
        segment = self._new(full.end_offset)
        # In this order: see `Unsynced.sync`.
        self._unsynced.note_closed([full])
        self._unsynced.note_name()
        self.active = segment

    def _new(self, base_offset: int) -> Segment:
        segment = Segment(self._handles, self._folder, base_offset)
        segment.has_gaps = self._has_gaps
        self._handles.get(segment.log_path, create=True).truncate(0)
        segment.index.cut_to_entries(0)
        if self._closed_bytes is not None and self._segments:
            self._closed_bytes += self._segments[-1].size_bytes
        self._segments.append(segment)
        self._bases.append(base_offset)
        return segment

    def remove_first(self, count: int) -> None:
        """The oldest first, so that a crash in between leaves a log without holes."""
        self._change()
        gone = 0
        try:
            for segment in self._segments[:count]:
                self._unlink(segment)
                gone += 1
        finally:
            del self._segments[:gone], self._bases[:gone]

    def keep_first(self, count: int) -> None:
        """The last of them is active again, even where not all of the others could be removed."""
        self._change()
        if count:
            self.active = self._segments[count - 1]
        while len(self._segments) > count:
            self._unlink(self._segments[-1])
            del self._segments[-1], self._bases[-1]

    def begin_at(self, base_offset: int) -> None:
        """Their files are gone."""
        self._change()
        for segment in self._segments:
            segment.forget_handles()
        self._segments.clear()
        self._bases.clear()
        self.add(base_offset)

    def replace(self, old: list[Segment], by: Segment) -> None:
        """The new segment takes the place of the old ones, whose files a compaction has swapped."""
        self._change()
        first = self._segments.index(old[0])
        for segment in old:
            segment.forget_handles()
        self._segments[first : first + len(old)] = [by]
        self._bases[first : first + len(old)] = [by.base_offset]

    def _change(self) -> None:
        self._closed_bytes = None
        self.changes += 1

    def _unlink(self, segment: Segment) -> None:
        segment.forget_handles()
        if self._disk.exists(segment.index.path):
            self._disk.unlink(segment.index.path)
        self._disk.unlink(segment.log_path)
