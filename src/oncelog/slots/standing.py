"""Where it is decided that a record stands in the log already.

A slot is filled when it is not beyond H, the last slot of its identity that the log or the broker has. So everything
here is arithmetic on sequences: how many slots were filled since one (`filled_since`), whether a batch fills slots that
one before it has filled (`stands_twice`), and which open batches are stored by that (`report_found`).
"""

from collections.abc import Sequence
from typing import Final

from oncelog.producers.sequences import NO_SEQUENCE, SEQUENCE_MASK, SEQUENCE_WINDOW, records_behind
from oncelog.slots.batch import Batch
from oncelog.slots.messages import Delivered, Found, StoredSpan
from oncelog.slots.partition import Partition
from oncelog.slots.stamping import cut
from oncelog.slots.tenure import Tenure

_new: Final = tuple.__new__


def filled_since(last_sequence: int, next_sequence: int) -> int | None:
    """How many slots from `next_sequence` on are filled where the last one is `last_sequence`; None where that lies
    before `next_sequence`, so that something which was filled is not any more."""
    ahead = records_behind(last_sequence, next_sequence)
    return ahead if ahead < SEQUENCE_WINDOW else None


def stands_twice(spans: Sequence[StoredSpan]) -> StoredSpan | None:
    """The first batch, in the order of the log, with a slot that one before it has filled."""
    last = NO_SEQUENCE
    for span in spans:
        if last != NO_SEQUENCE and filled_since(last, span.first_sequence):
            return span
        last = span.last_sequence
    return None


def not_beyond(tenure: Tenure, sequence: int) -> int:
    """Another process that fills the same slots may be further than this one."""
    return tenure.next_sequence if filled_since(sequence - 1, tenure.next_sequence) else sequence


def report_found(partition: Partition, found: Found) -> bool:
    """Reports what lies at or below H; the batch that H cuts is cut there. Says whether there was anything."""
    is_any = False
    while partition.open:
        batch = partition.open[0]
        records = filled_since(found.last_sequence, batch.first_sequence)
        if not records or (records < batch.record_count and not partition.cuts):
            break
        batch.in_doubt = True
        if records < batch.record_count:
            batch, _ = cut(partition, batch, records)
        partition.open.popleft()
        is_any = True
        base_offset = _offset_of(batch, found.spans)
        if base_offset >= 0:
            partition.from_offset = partition.next_offset = base_offset + batch.record_count
        if not batch.is_reported:
            deliver(partition, batch, base_offset)
    return is_any


def deliver(partition: Partition, batch: Batch, base_offset: int, append_time_ms: int = -1) -> None:
    context = partition.context
    context.counters.batches_delivered += 1
    context.actions.append(_new(Delivered, (batch, base_offset, append_time_ms, batch.in_doubt)))


def _offset_of(batch: Batch, spans: Sequence[StoredSpan]) -> int:
    for first, last, base_offset in spans:
        ahead = (batch.first_sequence - first) & SEQUENCE_MASK
        if ahead <= (last - first) & SEQUENCE_MASK:
            return base_offset + ahead
    return -1
