"""What a staged batch is answered with, and the bytes of a fence."""

from typing import NamedTuple

from oncelog.producers import Decision
from oncelog.records.build import build_batch

# A control record's key is its version and its type. Kafka's clients skip control batches whatever the type says; this
# one is far from those that Kafka gives out one by one.
_FENCE_KEY = b"\x00\x00\x4f\x4c"
_FENCE_VALUE = b"\x00\x00"


class Staged(NamedTuple):
    decision: Decision
    base_offset: int  # what a producer is told; -1 where nothing was appended or it is no longer known
    append_time_ms: int = -1  # with message.timestamp.type=LogAppendTime
    dropped_records: int = 0  # the first n records were in the log already
    end_offset: int = 0  # the answer is true once the high watermark has reached this


class Fenced(NamedTuple):
    decision: Decision
    generation: int  # as it stands now; -1 for a pid that is unknown
    last_sequence: int  # -1 when nothing was accepted yet
    offset: int  # of the control batch; -1 when none was appended


def fence_batch(pid: int, generation: int, timestamp_ms: int) -> bytearray:
    return build_batch(
        [(_FENCE_KEY, _FENCE_VALUE, (), timestamp_ms)],
        producer_id=pid,
        producer_epoch=generation,
        timestamp_ms=timestamp_ms,
        is_control=True,
    )
