"""The answer to a staged batch, and the bytes of a fence."""

from enum import Enum
from typing import NamedTuple

from oncelog.producers import Decision
from oncelog.producers.fence import fence_key, fence_value
from oncelog.records.build import build_batch


class End(NamedTuple):
    """The offset up to which a log must be safe for an answer to be true, and the leader's epoch: under another one,
    other records may stand there."""

    offset: int
    epoch: int


class Fate(Enum):
    """The fate of the records that were appended up to an end."""

    SAFE = "below the high watermark"
    WAITS = "above it"
    LOST = "not to be known here: the log went offline, or its leader's time is over"


class Staged(NamedTuple):
    decision: Decision
    base_offset: int  # what a producer is told; -1 where nothing was appended or it is no longer known
    append_time_ms: int = -1  # with message.timestamp.type=LogAppendTime
    dropped_records: int = 0  # the first n records were in the log already
    end_offset: int = 0  # the answer is true once the high watermark has reached this,
    epoch: int = 0  # in this epoch of a leader

    @property
    def end(self) -> End:
        return End(self.end_offset, self.epoch)


class Fenced(NamedTuple):
    decision: Decision
    generation: int  # as it stands now; -1 for a pid that is unknown
    last_sequence: int  # -1 when nothing was accepted yet
    offset: int  # of the control batch; -1 when none was appended
    epoch: int = 0  # in which it was


class Marked(NamedTuple):
    decision: Decision
    end_offset: int  # the answer is true once the high watermark has reached this,
    epoch: int  # in this epoch of a leader

    @property
    def end(self) -> End:
        return End(self.end_offset, self.epoch)


def fence_batch(pid: int, generation: int, timestamp_ms: int) -> bytearray:
    return build_batch(
        [(fence_key(), fence_value(pid, generation), (), timestamp_ms)],
        producer_id=pid,
        producer_epoch=generation,
        timestamp_ms=timestamp_ms,
        is_control=True,
    )
