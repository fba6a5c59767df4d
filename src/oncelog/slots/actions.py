"""The actions of a partition: small functions, one for each entry of the table.

Each is told the partition, the time, and what the event is about. Where its work leads to another
event, it returns that one, and the table says what follows. None of them sets the partition's state.

Sending again in the same slots is always safe, whatever may still be under way: a slot is filled once. Three things end
that: a batch in the middle is given up, the broker disagrees about the sequence, or the lease ends. Then what remains
needs new slots, which is safe only when no old attempt can be stored any more:

- nothing is in doubt: it moves at once (`move`);
- something is in doubt: the log is asked (`ask`). With leases the question itself fences, so the answer is final.
  Without them "not there" counts only when it was asked `settle_ms` after the last request was lost.
"""

from collections import deque
from typing import Final

from oncelog.error_codes import ErrorCodes as Code
from oncelog.producers.sequences import SEQUENCE_MASK, SEQUENCE_WINDOW, sequence_after
from oncelog.slots.batch import Batch
from oncelog.slots.lease import FOREVER_MS
from oncelog.slots.messages import BatchAnswer, Found, LookUp
from oncelog.slots.partition import Partition
from oncelog.slots.stamping import cut, go_on_behind, raise_generation, stamp_all, stamp_anew
from oncelog.slots.standing import deliver, filled_since, not_beyond, report_found, stands_twice
from oncelog.slots.states import Event
from oncelog.slots.tenure import Tenure

LEASE_ENDED: Final = "the lease ended before its producer was saved under a new one"
NOT_KNOWABLE: Final = "it was sent, no answer came, and the log cannot tell"
SLOT_LOST: Final = "a slot of this saved producer stays empty, so what follows cannot be placed"
PARTLY_THERE: Final = "the log holds a part of a batch that is sent as a whole or not at all"
TWICE: Final = (
    "slots {first} to {last} of producer {pid} stand twice, the second time from offset {offset} on: they were sent so "
    "long after they had been taken that the broker had forgotten who filled them first. Nothing more is written"
)


def nothing(partition: Partition, now_ms: int, *about: object) -> None:
    """The state says it all."""


# --- a batch's request has ended


def acknowledge(partition: Partition, now_ms: int, batch: Batch, answer: BatchAnswer) -> Event | None:
    batch.is_flying = False
    partition.flying -= 1
    tenure, base_offset = partition.tenure, answer.base_offset
    if tenure is not None:
        if tenure.is_shared and partition.may_be_passed(tenure, now_ms):
            # The broker that accepted it may have forgotten that others had filled these slots. So look from before it.
            batch.in_doubt = partition.is_late = True
            return Event.LATE
        behind = (batch.first_sequence + batch.record_count) & SEQUENCE_MASK  # not `end_sequence`: a call more a batch
        # A later batch may be acknowledged first; it could only be stored behind the earlier ones.
        if (behind - tenure.acknowledged) & SEQUENCE_MASK < SEQUENCE_WINDOW:
            tenure.acknowledged = behind
            if not tenure.is_leased:
                tenure.proven_timestamp_ms = batch.max_timestamp_ms
                # When it was appended is not known: its answer may have lain unread while this process slept.
                if batch.created_ms > tenure.known_at_ms:
                    tenure.known_at_ms = batch.created_ms
    partition.failures = 0
    is_first = partition.open[0] is batch
    if is_first:
        partition.open.popleft()
    else:
        partition.open.remove(batch)
    if base_offset >= 0:
        end_offset = base_offset + batch.record_count
        if is_first:
            partition.from_offset = end_offset
        if end_offset > partition.next_offset:
            partition.next_offset = end_offset
    if not batch.is_reported:
        deliver(partition, batch, base_offset, answer.append_time_ms)
    return None


def try_again(partition: Partition, now_ms: int, batch: Batch, answer: BatchAnswer) -> None:
    partition.landed(batch)
    partition.back_off(now_ms, answer)
    batch.attempts += 1
    if batch.attempts > partition.context.limits.retries:
        _abandon(partition, batch, answer.error_code, answer.message)


def doubt(partition: Partition, now_ms: int, batch: Batch, answer: BatchAnswer) -> None:
    batch.in_doubt = True
    try_again(partition, now_ms, batch, answer)


def lose(partition: Partition, now_ms: int, batch: Batch, answer: BatchAnswer) -> None:
    """A batch that was sent may be stored, or come to be stored even now."""
    partition.lost_at_ms = now_ms
    _ask_before_the_next(partition)
    doubt(partition, now_ms, batch, answer)


def hold_back(partition: Partition, now_ms: int, batch: Batch, answer: BatchAnswer) -> None:
    partition.landed(batch)
    partition.back_off(now_ms, answer)


def check_first(partition: Partition, now_ms: int, batch: Batch, answer: BatchAnswer) -> None:
    """Connect, check, send: nothing that was known before the connection counts on it."""
    partition.landed(batch)
    _ask_before_the_next(partition)


def _ask_before_the_next(partition: Partition) -> None:
    tenure = partition.tenure
    if tenure is not None and tenure.is_shared:
        tenure.known_at_ms = -FOREVER_MS


def dispute(partition: Partition, now_ms: int, batch: Batch, answer: BatchAnswer) -> None:
    """A gap behind something that failed is a consequence, and the slot may be filled later. Otherwise broker and
    producer disagree about what is stored."""
    if partition.open[0] is batch:
        partition.is_refused = True
        try_again(partition, now_ms, batch, answer)
    else:
        partition.landed(batch)


def land(partition: Partition, now_ms: int, batch: Batch, answer: BatchAnswer) -> None:
    partition.landed(batch)


def fence_off(partition: Partition, now_ms: int, batch: Batch, answer: BatchAnswer) -> None:
    partition.landed(batch)
    partition.stopped_by = answer.error_code, answer.message
    stop(partition, now_ms)


def cut_in_half(partition: Partition, now_ms: int, batch: Batch, answer: BatchAnswer) -> None:
    if batch.record_count == 1 or batch.is_reported or not partition.cuts:
        refuse(partition, now_ms, batch, answer)
    else:
        partition.landed(batch)
        cut(partition, batch, batch.record_count // 2)


def refuse(partition: Partition, now_ms: int, batch: Batch, answer: BatchAnswer) -> None:
    partition.landed(batch)
    _abandon(partition, batch, answer.error_code, answer.message)


def refuse_doubtful(partition: Partition, now_ms: int, batch: Batch, answer: BatchAnswer) -> None:
    batch.in_doubt = True
    refuse(partition, now_ms, batch, answer)


def give_up(partition: Partition, now_ms: int, batch: Batch, answer: BatchAnswer) -> None:
    _abandon(partition, batch, answer.error_code, answer.message)


def _abandon(partition: Partition, batch: Batch, code: int, message: str | None) -> None:
    """Reports an open batch as failed. It leaves when it provably is not stored, or else stays as a ghost."""
    maybe_stored = batch.in_doubt or batch.is_flying
    if not batch.is_reported:
        batch.is_reported = True
        partition.context.fail(batch, code, message, maybe_stored)
    if not maybe_stored:
        partition.open.remove(batch)
        partition.has_gap = True


# --- what is open is judged


def judge(partition: Partition, now_ms: int) -> Event:
    """Judge whether all open batches may be sent again as they are, since nothing is in flight."""
    tenure = partition.tenure
    if tenure is None:
        partition.open = deque(batch for batch in partition.open if not batch.is_reported)
        partition.has_gap = False
        return Event.IN_PLACE
    is_over = bool(partition.open) and tenure.is_over(now_ms)
    if partition.is_late:
        return Event.DOUBTFUL
    if not (partition.has_gap or partition.has_ghosts or partition.is_refused or is_over):
        return Event.IN_PLACE
    if partition.has_doubts or (tenure.is_shared and not partition.has_gap):
        return Event.DOUBTFUL
    return Event.SPENT if partition.is_refused else Event.MOVABLE


def ask(partition: Partition, now_ms: int) -> None:
    tenure = partition.tenure
    assert tenure is not None
    if tenure.is_shared and not partition.open:
        stamp_all(partition, tenure)
    partition.looked_at_ms = now_ms
    partition.context.counters.look_ups += 1
    partition.context.actions.append(
        LookUp(partition.place, tenure.identity, partition.from_offset, tenure.is_leased, tenure.acknowledged)
    )


def wait_for_the_end(partition: Partition, now_ms: int) -> None:
    partition.settle_at_ms = _settled_at_ms(partition)
    partition.context.wake_at(partition.settle_at_ms)


def _settled_at_ms(partition: Partition) -> int:
    return partition.lost_at_ms + partition.context.limits.settle_ms


def take_note(partition: Partition, now_ms: int, found: Found) -> Event:
    """Take in what the log holds of the identity."""
    tenure = partition.tenure
    assert tenure is not None
    partition.is_late = False
    twice = None if tenure.is_leased else stands_twice(found.spans)
    if twice is not None:
        first, last, offset = twice
        words = TWICE.format(first=first, last=last, offset=offset, pid=tenure.identity.pid)
        partition.stopped_by = Code._INCONSISTENT, words
        return Event.TWICE
    if found.last_sequence >= 0:
        made_progress = report_found(partition, found)
        reached = sequence_after(found.last_sequence)
        if _is_partly_there(partition, found):
            partition.stopped_by = Code.OUT_OF_ORDER_SEQUENCE_NUMBER, PARTLY_THERE
            return Event.UNFILLED
        tenure.acknowledged = not_beyond(tenure, reached)
    else:
        made_progress = False
        reached = tenure.acknowledged
    if reached == tenure.acknowledged and now_ms - partition.looked_at_ms < partition.context.remembered_ms:
        tenure.known_at_ms = now_ms  # else what comes next is there already, too; or nobody was awake in between
    if made_progress:
        partition.is_refused = False
        partition.failures, partition.not_before_ms = 0, now_ms  # the refusal came of another process that is further
    return _after_fence(partition, tenure, found) if tenure.is_leased else _after_reading(partition, tenure, now_ms)


def _is_partly_there(partition: Partition, found: Found) -> bool:
    return bool(partition.open) and bool(filled_since(found.last_sequence, partition.open[0].first_sequence))


def _after_fence(partition: Partition, tenure: Tenure, found: Found) -> Event:
    """No older generation is let in any more. Where no fence was possible, since the pid is unknown there by now,
    nothing of it is let in at all."""
    clear_doubts(partition)
    if found.generation == tenure.identity.generation:
        return Event.SPENT
    raise_generation(tenure, found.generation, found.last_sequence)
    return Event.MOVABLE


def _after_reading(partition: Partition, tenure: Tenure, now_ms: int) -> Event:
    # Where others write too, what was in the way may have been cut from the log since.
    goes_on = partition.is_contiguous(tenure) and (not partition.is_refused or tenure.is_shared)
    if goes_on and not partition.is_forgettable(now_ms):
        return Event.IN_PLACE
    if not tenure.is_shared and partition.looked_at_ms < _settled_at_ms(partition) and partition.has_doubts:
        return Event.EARLY
    clear_doubts(partition)
    return Event.IN_PLACE if goes_on else Event.SPENT


def go_on_in_place(partition: Partition, now_ms: int) -> None:
    tenure = partition.tenure
    assert tenure is not None
    partition.has_gap = partition.is_refused = False
    go_on_behind(partition, tenure)


def clear_doubts(partition: Partition) -> None:
    partition.open = deque(batch for batch in partition.open if not batch.is_reported)
    for batch in partition.open:
        batch.in_doubt = False


def report_unknowable(partition: Partition, now_ms: int) -> Event:
    for batch in partition.open:
        if batch.in_doubt and not batch.is_reported:
            batch.is_reported = True
            partition.context.fail(batch, Code._FAIL, NOT_KNOWABLE, True)
    partition.is_late = False
    clear_doubts(partition)
    return Event.SPENT


def move(partition: Partition, now_ms: int) -> Event | None:
    return _move(partition, now_ms, keeps_identity=True)


def move_to_another_identity(partition: Partition, now_ms: int) -> Event | None:
    return _move(partition, now_ms, keeps_identity=False)


def _move(partition: Partition, now_ms: int, *, keeps_identity: bool) -> Event | None:
    """Place the open batches anew: none of them is stored or can come to be stored. But not where others fill
    these slots with the same records, or count on the identity."""
    tenure = partition.tenure
    assert tenure is not None
    is_over = tenure.is_over(now_ms)
    if tenure.is_shared or (partition.is_pinned and not keeps_identity and not is_over):
        partition.stopped_by = Code.OUT_OF_ORDER_SEQUENCE_NUMBER, SLOT_LOST
        return Event.UNFILLED
    stamp_anew(partition, tenure, now_ms, keeps_identity=keeps_identity)
    partition.has_gap = partition.is_refused = False
    return Event.LEASE_LEFT if is_over else None


# --- leases, users, ends


def leave_lease(partition: Partition, now_ms: int) -> None:
    """Leave a lease under which nothing is open."""
    if not partition.is_pinned:
        partition.tenure = None
        return
    while partition.waiting:
        partition.context.fail(partition.waiting.popleft(), Code.UNKNOWN_PRODUCER_ID, LEASE_ENDED, False)


def resume(partition: Partition, now_ms: int, tenure: Tenure, next_offset: int) -> None:
    partition.tenure, partition.renewed = tenure, None
    partition.next_offset = partition.from_offset = next_offset
    partition.is_pinned = partition.is_pinned or tenure.is_shared
    partition.is_late = partition.has_gap = partition.is_refused = False


def stop(partition: Partition, now_ms: int) -> None:
    """Stop: another process has taken over, or the slots cannot be filled as they must be. Nothing more is sent
    here."""
    code, message = partition.stopped_by
    for batch in partition.open:
        if not batch.is_reported:
            batch.is_reported = True
            partition.context.fail(batch, code, message, batch.in_doubt or batch.is_flying)
    while partition.waiting:
        partition.context.fail(partition.waiting.popleft(), code, message, False)
    clear(partition, now_ms)


def clear(partition: Partition, now_ms: int) -> None:
    if not partition.flying:
        partition.open.clear()
