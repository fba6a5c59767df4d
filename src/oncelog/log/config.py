"""The settings of one partition's log. Replaceable at run time: `PartitionLog.configure(changed)`."""

from dataclasses import dataclass, field
from enum import StrEnum

from oncelog.clock import DAY_MS

MIB = 1024 * 1024
NO_BOUND = 2**63 - 1
NEVER_SURE = -(2**64)  # less than what is between any two times
MOST_INTERVAL_BYTES = 256 * 1024


class TimestampType(StrEnum):
    CREATE = "CreateTime"
    LOG_APPEND = "LogAppendTime"


class Flush(StrEnum):
    """The one that waits until the disk has what was appended."""

    OS = "os"  # nobody: the operating system writes when it likes, as in Kafka
    INTERVAL = "interval"  # nobody, but the server flushes every oncelog.flush.interval.ms
    EVERY = "every"  # the producer: what is not flushed is not below the high watermark


@dataclass(frozen=True, slots=True, kw_only=True)
class LogConfig:
    segment_bytes: int = 1024 * MIB
    segment_ms: int = 7 * DAY_MS
    index_interval_bytes: int = 4096
    retention_ms: int = 7 * DAY_MS  # -1: for ever
    retention_bytes: int = -1  # -1: without end
    cleanup_policy: tuple[str, ...] = ("delete",)  # "delete", "compact", or both
    delete_retention_ms: int = DAY_MS
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = NO_BOUND
    message_timestamp_type: TimestampType = TimestampType.CREATE
    message_timestamp_before_max_ms: int = NO_BOUND  # how far behind the clock a record's own time may be
    message_timestamp_after_max_ms: int = NO_BOUND
    max_message_bytes: int = MIB + 12
    flush: Flush = Flush.OS
    key_map_limit: int = 500_000  # keys that one pass of a compaction remembers
    # Made of the above once, since each batch asks for it.
    behind_max_ms: int = field(init=False, repr=False)  # both without a bound where the log's clock is what counts
    ahead_max_ms: int = field(init=False, repr=False)
    must_be_looked_into: bool = field(init=False, repr=False)  # a batch's header alone cannot say that it may come in
    sure_ahead_ms: int = field(init=False, repr=False)  # it can, up to this far ahead of the clock

    def __post_init__(self) -> None:
        keeps_time = self.message_timestamp_type is TimestampType.CREATE
        behind_max_ms = self.message_timestamp_before_max_ms if keeps_time else NO_BOUND
        ahead_max_ms = self.message_timestamp_after_max_ms if keeps_time else NO_BOUND
        must_be_looked_into = self.compacts or behind_max_ms < NO_BOUND
        object.__setattr__(self, "behind_max_ms", behind_max_ms)
        object.__setattr__(self, "ahead_max_ms", ahead_max_ms)
        object.__setattr__(self, "must_be_looked_into", must_be_looked_into)
        object.__setattr__(self, "sure_ahead_ms", NEVER_SURE if must_be_looked_into else ahead_max_ms)

    @property
    def least_interval_bytes(self) -> int:
        """The distance of two entries of an index; an entry for each batch is the most there can be. It is at most what
        is walked over in no time: each read looks at this number of headers."""
        return min(max(self.index_interval_bytes, 1), MOST_INTERVAL_BYTES)

    @property
    def deletes(self) -> bool:
        return "delete" in self.cleanup_policy

    @property
    def compacts(self) -> bool:
        return "compact" in self.cleanup_policy
