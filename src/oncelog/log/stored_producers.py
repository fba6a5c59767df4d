"""The producers of a log by what is stored of it: the newest good snapshot, and the headers behind it.

That is how they are known again after a failed append or a cut, and as they were at an earlier offset.
"""

from collections.abc import Callable, Sequence

from oncelog.clock import Now
from oncelog.log import snapshots
from oncelog.log.batch_replay import replaying
from oncelog.log.disk import Disk
from oncelog.log.segment import Segment
from oncelog.log.segments import Segments
from oncelog.log.work_steps import Steps, at_once
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
        start = self._adopt_snapshot(self._map, self._segments[0].base_offset, next_offset, now)
        at_once(replaying(self._map, self._segments, start, next_offset, now))

    def _adopt_snapshot(self, producers: ProducerMap, base_offset: int, up_to_offset: int, now: Now) -> int:
        """The offset up to which the snapshot knows the producers."""
        producers.clear()
        for snapshot in snapshots.newest_first(self._disk, self._folder, up_to_offset):
            try:
                producers.decode(snapshot.producers, now)
            except CorruptSnapshot:
                continue
            return snapshot.point.offset
        return base_offset

    def restore(self, next_offset: int, now: Now) -> None:
        """The producers of before an append that failed. Those that fail next find the log's end still there, and need
        not read it."""
        if self._at_end is None:
            self.restore_anew(next_offset, now)
        else:
            self._map.decode(self._at_end, now)

    def restore_anew(self, next_offset: int, now: Now) -> None:
        self.rebuild(next_offset, now)
        self._at_end = self._map.encode(now)

    def end_moved(self) -> None:
        self._at_end = None

    def encoding_end_of(
        self, segments: Sequence[Segment], still_holds: Callable[[], bool], now: Now
    ) -> Steps[bytes | None]:
        """The producers as they were at the end of the log's first segments; None where these no longer are the first
        ones. They are found in a map of their own: others append meanwhile."""
        producers, end_offset = self._map.another(), segments[-1].end_offset
        starts: list[int] = []
        encoded: list[bytes] = []
        yield lambda: starts.append(self._adopt_snapshot(producers, segments[0].base_offset, end_offset, now))
        pauses = replaying(producers, segments, starts[0], end_offset, now)
        while still_holds():
            try:
                yield next(pauses)
            except StopIteration:
                yield lambda: encoded.append(producers.encode(now))
                return encoded[0]
        return None
