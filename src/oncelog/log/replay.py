"""What a stored batch meant for its producer. Replay and replication never refuse: the log has decided already."""

from collections.abc import Iterable

from oncelog.clock import Now
from oncelog.log.segment import Segment
from oncelog.log.steps import Pauses
from oncelog.producers import ProducerMap
from oncelog.records.header import CONTROL, BatchHeader

BATCHES_IN_A_STEP = 500  # a millisecond or two


def replay_header(producers: ProducerMap, header: BatchHeader, now: Now) -> None:
    pid = header.producer_id
    if pid <= 0:
        return
    if header.attributes & CONTROL:
        producers.fence(pid, header.producer_epoch, now)
    elif header.base_sequence >= 0:
        # Compaction takes records out of a batch and leaves its last offset delta, so that tells the last sequence.
        producers.accept(
            pid,
            header.producer_epoch,
            header.base_sequence,
            header.last_offset_delta + 1,
            header.base_offset,
            header.max_timestamp,
            now,
        )


def replaying(
    producers: ProducerMap, segments: Iterable[Segment], from_offset: int, to_offset: int, now: Now
) -> Pauses:
    """Every batch of the range, by headers alone."""
    count = 0
    for segment in segments:
        if segment.end_offset <= from_offset:
            continue
        found = segment.find(from_offset)
        if found is None:
            continue
        for _, header in segment.walk(found[0]):
            if header.base_offset >= to_offset:
                return
            replay_header(producers, header, now)
            count += 1
            if count % BATCHES_IN_A_STEP == 0:
                yield
