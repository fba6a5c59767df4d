"""The effect of a stored batch on its producer. Replay and replication never refuse: the log has decided already."""

from collections.abc import Callable, Iterable, Iterator
from functools import partial

from oncelog.clock import Now
from oncelog.log.aborted import Aborted
from oncelog.log.markers import marker_of
from oncelog.log.segment import Segment
from oncelog.log.work_steps import Pauses
from oncelog.producers import FIRST_KAFKA_PID, ProducerMap
from oncelog.producers.markers import Marker
from oncelog.records.header import CONTROL, TRANSACTIONAL, BatchHeader, Buffer

BATCHES_IN_A_STEP = 500  # a millisecond or two


def replay_batch(producers: ProducerMap, header: BatchHeader, read: Callable[[], Buffer], now: Now) -> Aborted | None:
    """`read` reads the batch: of a control batch the header does not say all. The answer is what it aborted."""
    pid = header.producer_id
    if pid <= 0:
        return None
    if header.attributes & CONTROL:
        return _replay_control(producers, header, read, now)
    is_transactional = header.attributes & TRANSACTIONAL
    if header.base_sequence >= 0 or is_transactional:
        accept = producers.accept_in_transaction if is_transactional else producers.accept
        # Compaction takes records out of a batch and leaves its last offset delta, so that tells the last sequence.
        accept(
            pid,
            header.producer_epoch,
            header.base_sequence,
            header.last_offset_delta + 1,
            header.base_offset,
            header.max_timestamp,
            now,
        )
    return None


def replay_whole(producers: ProducerMap, header: BatchHeader, batch: Buffer, now: Now) -> Aborted | None:
    return replay_batch(producers, header, lambda: batch, now)


def _replay_control(
    producers: ProducerMap, header: BatchHeader, read: Callable[[], Buffer], now: Now
) -> Aborted | None:
    pid, epoch, offset = header.producer_id, header.producer_epoch, header.base_offset
    if pid < FIRST_KAFKA_PID:
        producers.fence(pid, epoch, now)
        return None
    marker = marker_of(read())
    if marker is None:
        return None
    producers.end_transaction(pid, epoch, marker, offset, header.max_timestamp, now)
    return aborted_by(pid, marker, offset)


def aborted_by(pid: int, marker: Marker, marker_offset: int) -> Aborted | None:
    """None for a transaction that was committed, and for one without a record here."""
    if marker.is_commit or marker.first_offset < 0:
        return None
    return Aborted(pid, marker.first_offset, marker_offset)


def aborted_of(header: BatchHeader, batch: Buffer) -> Aborted | None:
    """The aborted transaction that a batch ends; None where it ends none."""
    if not header.attributes & CONTROL or header.producer_id < FIRST_KAFKA_PID:
        return None
    marker = marker_of(batch)
    return None if marker is None else aborted_by(header.producer_id, marker, header.base_offset)


def aborted_within(segments: Iterable[Segment], to_offset: int) -> Iterator[Aborted]:
    """The aborted transactions that the markers before the offset end."""
    for segment in segments:
        for position, header in segment.walk():
            if header.base_offset >= to_offset:
                return
            if header.attributes & CONTROL:
                found = aborted_of(header, segment.batch(position, header.size_bytes))
                if found is not None:
                    yield found


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
        for position, header in segment.walk(found[0]):
            if header.base_offset >= to_offset:
                return
            replay_batch(producers, header, partial(segment.batch, position, header.size_bytes), now)
            count += 1
            if count % BATCHES_IN_A_STEP == 0:
                yield
