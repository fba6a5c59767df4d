"""The one place where a batch's sequence is chosen.

A batch that was never sent gets the next slot of its partition's tenure (`_stamp_first`). One that was sent keeps its
slot for as long as it may be stored there. Only what provably is not stored is stamped anew (`stamp_anew`), and only
where nobody else fills the same slots. A batch that is cut stays in the same slots (`cut`).
"""

from typing import Final

from oncelog.producers.sequences import SEQUENCE_MASK, sequence_after
from oncelog.slots.batch import Batch
from oncelog.slots.identity import Identity
from oncelog.slots.partition import Partition
from oncelog.slots.states import Event
from oncelog.slots.tenure import Tenure

NOT_NOW: Final = (None, None)


def take(partition: Partition, now_ms: int) -> Batch | Event | None:
    """The next batch to send, stamped and counted as in flight; or what must happen before one may go."""
    flying = partition.flying
    if partition.state or flying >= partition.max_in_flight:
        return None
    if flying < len(partition.open):
        batch = partition.open[flying]
        if partition.is_idempotent:
            is_due, event = _may_go_again(partition, batch, now_ms)
            if not is_due:
                return event
        partition.context.counters.retries += 1
    elif not partition.waiting:
        return None
    elif partition.is_idempotent:
        tenure, event = tenure_for_new(partition, now_ms)
        if tenure is None:
            return event
        if tenure.next_sequence == 0:
            partition.context.wake_at(tenure.renew_at_ms)  # only a lease that is used is renewed
        batch = _stamp_first(partition, tenure)
    else:
        batch = partition.waiting.popleft()
        partition.open.append(batch)
    batch.is_flying = True
    partition.flying = flying + 1
    return batch


def _stamp_first(partition: Partition, tenure: Tenure) -> Batch:
    batch = partition.waiting.popleft()
    batch.stamp(tenure.identity, tenure.next_sequence)
    tenure.next_sequence = (tenure.next_sequence + batch.record_count) & SEQUENCE_MASK
    partition.open.append(batch)
    return batch


def tenure_for_new(partition: Partition, now_ms: int) -> tuple[Tenure | None, Event | None]:
    """The tenure that a batch without a stamp may go under now; or what must happen first. An old identity finishes
    what it began before a new one starts: were both in flight, what fails of the old would land behind what the new one
    brings."""
    tenure = partition.tenure
    if partition.renewed is not None and not partition.is_pinned:
        if partition.open:
            return NOT_NOW
        tenure = partition.adopt_renewed()
    if tenure is None:
        return NOT_NOW
    if tenure.is_over(now_ms):
        return NOT_NOW if partition.open else (None, Event.LEASE_LEFT)
    if tenure.is_shared and partition.may_be_passed(tenure, now_ms):
        return NOT_NOW if partition.open else (None, Event.SILENCE)
    if partition.flying and tenure.proven_timestamp_ms <= partition.context.remembered_since_ms(now_ms):
        return NOT_NOW  # a pid's first batch travels alone
    return tenure, None


def _may_go_again(partition: Partition, batch: Batch, now_ms: int) -> tuple[bool, Event | None]:
    """Whether it may, in its slot; or what must happen first."""
    tenure = partition.tenure
    assert tenure is not None
    if tenure.is_over(now_ms):
        return False, None if partition.flying else Event.LEASE_OVER
    if tenure.is_leased:
        return True, None
    is_unknown = tenure.is_shared and partition.may_be_passed(tenure, now_ms)
    if is_unknown or (batch.in_doubt and partition.is_forgettable(now_ms)):
        return False, None if partition.flying else Event.SILENCE
    is_proven = tenure.proven_timestamp_ms > partition.context.remembered_since_ms(now_ms)
    return is_proven or not partition.flying, None


def stamp_all(partition: Partition, tenure: Tenure) -> None:
    """Stamp all that waits, so that what another process has sent of it is found."""
    while partition.waiting:
        _stamp_first(partition, tenure)


def stamp_anew(partition: Partition, tenure: Tenure, now_ms: int, *, keeps_identity: bool) -> None:
    """Put the open batches back to the front of those that wait: none is stored or can come to be stored."""
    while partition.open:
        batch = partition.open.pop()
        if batch.is_reported:
            continue
        batch.unstamp()
        partition.waiting.appendleft(batch)
        partition.context.counters.restamps += 1
    if tenure.is_over(now_ms):
        return  # `take` sees it
    if keeps_identity:
        tenure.next_sequence = tenure.acknowledged
    elif tenure.is_leased:
        partition.tenure = None
    else:
        partition.context.counters.epoch_bumps += 1
        partition.spent_pid = tenure.identity.pid  # until it turns out that there is a next epoch, which then is held
        partition.tenure = tenure.bumped(now_ms)


def go_on_behind(partition: Partition, tenure: Tenure) -> None:
    """Open batches keep their slots; the next record gets the slot behind them, or behind the last acknowledged one."""
    tenure.next_sequence = partition.open[-1].end_sequence if partition.open else tenure.acknowledged


def raise_generation(tenure: Tenure, generation: int, last_sequence: int) -> None:
    """Our own fence did, so what follows goes on behind what it found."""
    tenure.identity = Identity(tenure.identity.pid, generation, tenure.identity.expires_at_ms)
    tenure.acknowledged = sequence_after(last_sequence)


def cut(partition: Partition, batch: Batch, records: int) -> tuple[Batch, Batch]:
    """Two batches in the place of one, in the same slots, so that nothing behind them has to move."""
    at = partition.open.index(batch)
    first, second = partition.context.split(batch, records)
    for part in (first, second):
        part.in_doubt = batch.in_doubt
        part.is_reported = batch.is_reported
        part.attempts = batch.attempts
    if batch.first_sequence >= 0:
        first.stamp(batch.identity, batch.first_sequence)
        second.stamp(batch.identity, first.end_sequence)
    partition.open[at] = first
    partition.open.insert(at + 1, second)
    partition.context.counters.splits += 1
    return first, second
