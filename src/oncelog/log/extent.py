"""Where a log begins and ends, and how much of it counts: the high watermark, below which nothing is lost.

What moves the watermark is one of three. In a log that no follower copies it is the append itself or, where producers
wait for the disk, the flush. In a replicated one it is what the followers have, and only that.
"""

from oncelog.log.config import Flush, LogConfig
from oncelog.log.errors import OffsetOutOfRange


class Extent:
    def __init__(self, config: LogConfig, *, replicated: bool) -> None:
        self._replicated = replicated
        self.log_start_offset = 0
        self.next_offset = 0
        self.high_watermark = 0
        self.appended_bytes = 0  # since the start; retention, compaction and cuts take nothing of it
        self._flushed_offset = 0
        self.cuts = 0  # how often the end moved back, so that a flush begun before does not count
        self.configure(config)

    def configure(self, config: LogConfig) -> None:
        self._follows_appends = not self._replicated and config.flush is not Flush.EVERY
        self._follows_flushes = not self._replicated and config.flush is Flush.EVERY
        self._waits_for_flushes = config.flush is Flush.EVERY

    def opened(self, log_start_offset: int, next_offset: int, high_watermark: int) -> None:
        """What a start has found counts, but where others decide about it: there, what they had decided before."""
        self.log_start_offset = log_start_offset
        self.next_offset = next_offset
        self.high_watermark = max(log_start_offset, high_watermark) if self._replicated else next_offset

    def appended(self, next_offset: int, size_bytes: int) -> None:
        self.appended_bytes += size_bytes
        self.next_offset = next_offset
        if self._follows_appends:
            self.high_watermark = next_offset

    def flushed(self, next_offset: int, cuts: int) -> None:
        """The log is flushed up to here; both as they were when the flush began."""
        if cuts == self.cuts:
            self._flushed_offset = max(self._flushed_offset, next_offset)
            if self._follows_flushes:
                self.high_watermark = max(self.high_watermark, next_offset)

    @property
    def safe_offset(self) -> int:
        """The end of what others may be told that this log has."""
        return self._flushed_offset if self._waits_for_flushes else self.next_offset

    def advance_high_watermark(self, offset: int) -> None:
        """Only ever forward, and only over what is there."""
        self.high_watermark = max(self.high_watermark, min(offset, self.next_offset))

    def start_at(self, offset: int) -> None:
        self.log_start_offset = offset

    def begin_cut(self) -> None:
        self.cuts += 1

    def cut_to(self, offset: int) -> None:
        self.next_offset = offset
        self._flushed_offset = min(self._flushed_offset, offset)
        self.high_watermark = min(self.high_watermark, offset)
        self.log_start_offset = min(self.log_start_offset, offset)

    def begin_at(self, offset: int) -> None:
        self.log_start_offset = self.next_offset = self.high_watermark = offset

    def check(self, offset: int) -> None:
        if not self.log_start_offset <= offset <= self.next_offset:
            raise OffsetOutOfRange(offset, self.log_start_offset, self.next_offset)
