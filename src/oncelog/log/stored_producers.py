"""The producers of a log by what is stored of it: the newest good snapshot, and the headers behind it.

That is how they are known again after a failed append or a cut, and as they were at an earlier offset.
"""

from oncelog.clock import Now
from oncelog.log import snapshots
from oncelog.log.disk import Disk
from oncelog.log.replay import replay_segments
from oncelog.log.segments import Segments
from oncelog.producers import CorruptSnapshot, ProducerMap


class StoredProducers:
    def __init__(self, disk: Disk, folder: str, segments: Segments, producers: ProducerMap) -> None:
        self._disk = disk
        self._folder = folder
        self._segments = segments
        self._map = producers
        self._at_end: bytes | None = None  # the map as it is at the log's end, kept while appends fail

    def rebuild(self, next_offset: int, now: Now) -> None:
        """The map as it was there."""
        producers = self._map
        producers.clear()
        start = self._segments[0].base_offset
        for snapshot in snapshots.newest_first(self._disk, self._folder, next_offset):
            try:
                producers.decode(snapshot.producers, now)
            except CorruptSnapshot:
                continue
            start = snapshot.point.offset
            break
        replay_segments(producers, self._segments, start, next_offset, now)

    def restore(self, next_offset: int, now: Now) -> None:
        """After an append that failed. Those that fail next find the log's end still there, and need not read it."""
        if self._at_end is None:
            self.restore_anew(next_offset, now)
        else:
            self._map.decode(self._at_end, now)

    def restore_anew(self, next_offset: int, now: Now) -> None:
        self.rebuild(next_offset, now)
        self._at_end = self._map.encode(now)

    def end_moved(self) -> None:
        self._at_end = None

    def encoded_at(self, offset: int, now: Now) -> bytes:
        """As they were at an earlier offset. The map is lent for it."""
        as_of_now = self._map.encode(now)
        try:
            self.rebuild(offset, now)
            return self._map.encode(now)
        finally:  # also where the disk cannot be read: a producer that is missing would be taken for a new one
            self._map.decode(as_of_now, now)
