"""The beginning and the end of a log, and how much of it counts: the high watermark, below which nothing is lost.

What moves the watermark is one of three. In a log that no follower copies it is the append itself or, where producers
wait for the disk, the flush. In a replicated one it is what the followers have, and only that.
"""

import threading

from oncelog.log.config import Flush, LogConfig
from oncelog.log.errors import OffsetOutOfRange
from oncelog.log.segment import Segment
from oncelog.log.verdict import NO_CRC, Written


class Extent:
    def __init__(self, config: LogConfig, *, replicated: bool) -> None:
        self._replicated = replicated
        self.log_start_offset = 0
        self.next_offset = 0
        self.high_watermark = 0
        self.appended_bytes = 0  # since the start; retention, compaction and cuts take nothing of it
        self.flushed_offset = 0  # in this life
        self.cuts = 0  # how often the end moved back, so that a flush begun before does not count
        self._end = (0, 0, 0, NO_CRC, 0)  # what `captured` answers, replaced as a whole: other threads read it
        self._counting = threading.Lock()
        self.configure(config)

    def configure(self, config: LogConfig) -> None:
        self._follows_appends = not self._replicated and config.flush is not Flush.EVERY
        self._follows_flushes = not self._replicated and config.flush is Flush.EVERY
        self._waits_for_flushes = config.flush is Flush.EVERY

    def opened(self, log_start_offset: int, active: Segment, high_watermark: int) -> None:
        """Take in what a start found. Where others decide about the high watermark, the one that they decided before
        counts."""
        self.log_start_offset = log_start_offset
        self.next_offset = next_offset = active.end_offset
        self._capture(active)
        self.high_watermark = max(log_start_offset, high_watermark) if self._replicated else next_offset

    def appended(self, next_offset: int, size_bytes: int, active: Segment) -> None:
        self.appended_bytes += size_bytes
        self.next_offset = next_offset
        if self._follows_appends:
            self.high_watermark = next_offset
        else:
            self._capture(active)

    def _capture(self, active: Segment) -> None:
        self._end = self.next_offset, active.base_offset, active.size_bytes, active.last_crc, self.cuts

    def captured(self) -> tuple[Written, int]:
        """The end of the log, and the number of cuts by then: both of one moment, for whichever thread asks. In the
        midst of a cut it is the earlier end, which does not count any more.

        Where each append moves the watermark nobody waits for flushes, and no place is captured.
        """
        if self._follows_appends:
            return Written(self.next_offset), self.cuts
        *place, cuts = self._end
        return Written(*place), cuts

    def flushed(self, next_offset: int, cuts: int) -> None:
        """The log is flushed up to here; both as they were when the flush began. From any thread."""
        with self._counting:
            if cuts != self.cuts:
                return
            self.flushed_offset = max(self.flushed_offset, next_offset)
            if self._follows_flushes:
                self.high_watermark = max(self.high_watermark, next_offset)

    @property
    def safe_offset(self) -> int:
        """The end of what others may be told that this log has."""
        return self.flushed_offset if self._waits_for_flushes else self.next_offset

    def advance_high_watermark(self, offset: int) -> None:
        """Advance the high watermark: only ever forward, and only over what is there."""
        self.high_watermark = max(self.high_watermark, min(offset, self.next_offset))

    def start_at(self, offset: int) -> None:
        self.log_start_offset = offset

    def begin_cut(self) -> None:
        with self._counting:
            self.cuts += 1

    def cut_to(self, offset: int, active: Segment) -> None:
        self.next_offset = offset
        self._capture(active)
        self.flushed_offset = min(self.flushed_offset, offset)
        self.high_watermark = min(self.high_watermark, offset)
        self.log_start_offset = min(self.log_start_offset, offset)

    def begin_at(self, offset: int, active: Segment) -> None:
        self.log_start_offset = self.next_offset = self.high_watermark = offset
        self.flushed_offset = min(self.flushed_offset, offset)
        self._capture(active)

    def check(self, offset: int) -> None:
        if not self.log_start_offset <= offset <= self.next_offset:
            raise OffsetOutOfRange(offset, self.log_start_offset, self.next_offset)
