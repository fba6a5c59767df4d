"""What follows when the slots of a partition no longer go on as they began.

Sending again in the same slots is always safe, whatever may still be under way: a slot is filled once. Three things end
that: a batch in the middle is given up, the broker disagrees about the sequence, or the lease ends. Then what remains
needs new slots, which is safe only when no old attempt can be stored any more:

- nothing is in doubt: stamp anew, at once (`_restamp`);
- something is in doubt: ask the log (`look_up`). With leases the question itself fences, so the answer is final.
  Without them "not there" counts only when it was asked `settle_ms` after the last request was lost.
"""

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING

from oncelog.client.error_codes import ErrorCodes as Code
from oncelog.client.sending.actions import Found, LookUp, StoredSpan
from oncelog.client.sending.batch import Batch
from oncelog.client.sending.states import State
from oncelog.client.sending.tenure import Tenure
from oncelog.producers.sequences import SEQUENCE_MASK, SEQUENCE_WINDOW, records_behind, sequence_after
from oncelog.slots import Identity

if TYPE_CHECKING:
    from oncelog.client.sending.partition import Partition

LEASE_ENDED = "the lease ended before its producer was saved under a new one"
NOT_KNOWABLE = "it was sent, no answer came, and the log cannot tell"
SLOT_LOST = "a slot of this saved producer stays empty, so what follows cannot be placed"


def regroup(lane: "Partition", now_ms: int) -> None:
    """Nothing is in flight: shall all that is open be sent again as it is?"""
    lane.state = State.SENDING
    tenure = lane.tenure
    if tenure is None:
        lane.open = deque(batch for batch in lane.open if not batch.is_reported)
        lane.has_gap = False
        return
    in_doubt = any(batch.in_doubt for batch in lane.open)
    has_ghost = any(batch.is_reported for batch in lane.open)
    is_over = bool(lane.open) and now_ms >= tenure.expires_at_ms
    if not (lane.has_gap or has_ghost or lane.is_refused or is_over):
        return
    if in_doubt or (tenure.is_shared and not lane.has_gap):
        look_up(lane, now_ms)
    else:
        _restamp(lane, now_ms, keeps_identity=not lane.is_refused)


def is_forgettable(lane: "Partition", now_ms: int) -> bool:
    """Whether the broker may have stored what is in doubt and forgotten who wrote it: sent again, it would be there
    twice. Stock Kafka goes by the records' timestamps."""
    tenure = lane.tenure
    if tenure is None or tenure.is_leased:
        return False
    since_ms = lane.context.remembered_since_ms(now_ms)
    return any(batch.in_doubt and batch.max_timestamp_ms <= since_ms for batch in lane.open)


def may_be_passed(lane: "Partition", tenure: Tenure, now_ms: int) -> bool:
    """Whether another process may have filled the slots that are next here, so long ago that the broker has forgotten
    it and would take them again. Only where slots are shared, and only after a silence: with old timestamps a broker
    may forget at any time, but who never stops is told of it by the sequences."""
    context = lane.context
    silent_ms = now_ms - tenure.known_at_ms
    if silent_ms >= context.remembered_ms:
        return True
    return silent_ms >= context.limits.settle_ms and tenure.proven_timestamp_ms <= context.remembered_since_ms(now_ms)


def look_up(lane: "Partition", now_ms: int) -> None:
    tenure = lane.tenure
    assert tenure is not None
    lane.state = State.LOOKING_UP
    lane.looked_at_ms = now_ms
    lane.context.counters.look_ups += 1
    lane.context.actions.append(
        LookUp(lane.place, tenure.identity, lane.from_offset, tenure.is_leased, tenure.acknowledged)
    )


def looked_up(lane: "Partition", found: Found | None, now_ms: int) -> None:
    tenure = lane.tenure
    if lane.state != State.LOOKING_UP or tenure is None:
        return  # stopped meanwhile
    lane.state = State.SENDING
    if found is None:
        _cannot_know(lane, now_ms)
        return
    if found.last_sequence >= 0:
        made_progress = _report_found(lane, found)
        reached = sequence_after(found.last_sequence)
        tenure.acknowledged = _not_beyond(tenure, reached)
    else:
        made_progress = False
        reached = tenure.acknowledged
    if reached == tenure.acknowledged and now_ms - lane.looked_at_ms < lane.context.remembered_ms:
        tenure.known_at_ms = now_ms  # else what comes next is there already, too; or nobody was awake in between
    if made_progress:
        lane.is_refused = False
        lane.failures, lane.not_before_ms = 0, now_ms  # the refusal came of another process that is further
    if tenure.is_leased:
        _after_fence(lane, tenure, found, now_ms)
    else:
        _after_reading(lane, tenure, now_ms)


def _not_beyond(tenure: Tenure, sequence: int) -> int:
    """Another process that fills the same slots may be further than this one."""
    ahead = (sequence - tenure.next_sequence) & SEQUENCE_MASK
    return tenure.next_sequence if 0 < ahead < SEQUENCE_WINDOW else sequence


def _after_fence(lane: "Partition", tenure: Tenure, found: Found, now_ms: int) -> None:
    """No older generation is let in any more. Where no fence was possible, since the pid is unknown there by now,
    nothing of it is let in at all."""
    is_ours = found.generation != tenure.identity.generation
    if is_ours:
        tenure.identity = Identity(tenure.identity.pid, found.generation)
        tenure.acknowledged = sequence_after(found.last_sequence)
    _clear_doubts(lane)
    _restamp(lane, now_ms, keeps_identity=is_ours)


def _after_reading(lane: "Partition", tenure: Tenure, now_ms: int) -> None:
    # Where others write too, what was in the way may have been cut from the log since.
    goes_on = _is_contiguous(lane, tenure) and (not lane.is_refused or tenure.is_shared)
    if goes_on and not is_forgettable(lane, now_ms):
        _send_as_it_is(lane, tenure)
        return
    settled_at_ms = lane.lost_at_ms + lane.context.limits.settle_ms
    if not tenure.is_shared and lane.looked_at_ms < settled_at_ms and any(batch.in_doubt for batch in lane.open):
        lane.state = State.SETTLING
        lane.settle_at_ms = settled_at_ms
        lane.context.wake_at(settled_at_ms)
        return
    _clear_doubts(lane)
    if goes_on:
        _send_as_it_is(lane, tenure)
    else:
        _restamp(lane, now_ms, keeps_identity=False)


def _is_contiguous(lane: "Partition", tenure: Tenure) -> bool:
    expected = tenure.acknowledged
    for batch in lane.open:
        if batch.is_reported or batch.first_sequence != expected:
            return False
        expected = sequence_after(expected, batch.record_count)
    return True


def _send_as_it_is(lane: "Partition", tenure: Tenure) -> None:
    lane.has_gap = lane.is_refused = False
    last = lane.open[-1] if lane.open else None
    tenure.next_sequence = tenure.acknowledged if last is None else sequence_after(last.last_sequence)


def _clear_doubts(lane: "Partition") -> None:
    lane.open = deque(batch for batch in lane.open if not batch.is_reported)
    for batch in lane.open:
        batch.in_doubt = False


def _report_found(lane: "Partition", found: Found) -> bool:
    """Reports what lies at or below H; the batch that H cuts is cut there. Says whether there was anything."""
    is_any = False
    while lane.open:
        batch = lane.open[0]
        records = records_behind(found.last_sequence, batch.first_sequence)
        if records == 0 or records >= SEQUENCE_WINDOW:
            break
        batch.in_doubt = True
        if records < batch.record_count:
            batch, _ = lane.cut(batch, records)
        lane.open.popleft()
        is_any = True
        base_offset = _offset_of(batch, found.spans)
        if base_offset >= 0:
            lane.from_offset = lane.next_offset = base_offset + batch.record_count
        if not batch.is_reported:
            lane.deliver(batch, base_offset)
    return is_any


def _offset_of(batch: Batch, spans: Sequence[StoredSpan]) -> int:
    for first, last, base_offset in spans:
        ahead = (batch.first_sequence - first) & SEQUENCE_MASK
        if ahead <= (last - first) & SEQUENCE_MASK:
            return base_offset + ahead
    return -1


def _restamp(lane: "Partition", now_ms: int, *, keeps_identity: bool) -> None:
    """Nothing that is open is stored or can come to be stored, so it may be placed anew."""
    tenure = lane.tenure
    assert tenure is not None
    if tenure.is_shared:  # others fill these slots with the same records, so none may move
        stop(lane, Code.OUT_OF_ORDER_SEQUENCE_NUMBER, SLOT_LOST)
        return
    while lane.open:
        batch = lane.open.pop()
        if batch.is_reported:
            continue
        batch.unstamp()
        lane.waiting.appendleft(batch)
        lane.context.counters.restamps += 1
    lane.has_gap = lane.is_refused = False
    if now_ms >= tenure.expires_at_ms:
        leave_expired(lane)
    elif keeps_identity:
        tenure.next_sequence = tenure.acknowledged
    elif lane.is_pinned:
        stop(lane, Code.OUT_OF_ORDER_SEQUENCE_NUMBER, SLOT_LOST)
    elif tenure.is_leased:
        lane.tenure = None
    else:
        lane.context.counters.epoch_bumps += 1
        lane.spent_pid = tenure.identity.pid  # until it turns out that there is a next epoch, which then is held
        lane.tenure = tenure.bumped(now_ms)


def leave_expired(lane: "Partition") -> None:
    """Nothing is open under a lease that is over."""
    if lane.is_pinned:
        lane.fail_waiting(Code.UNKNOWN_PRODUCER_ID, LEASE_ENDED)
    else:
        lane.tenure = None


def _cannot_know(lane: "Partition", now_ms: int) -> None:
    for batch in lane.open:
        if batch.in_doubt and not batch.is_reported:
            batch.is_reported = True
            lane.context.fail(batch, Code._FAIL, NOT_KNOWABLE, True)
    _clear_doubts(lane)
    _restamp(lane, now_ms, keeps_identity=False)


def stop(lane: "Partition", code: int, message: str | None) -> None:
    """Nothing more is sent here: another process has taken over, or the slots cannot be filled as they must be."""
    lane.state = State.STOPPED
    lane.stopped_by = code, message
    for batch in lane.open:
        if not batch.is_reported:
            batch.is_reported = True
            lane.context.fail(batch, code, message, batch.in_doubt or batch.is_flying)
    lane.fail_waiting(code, message)
    if not lane.flying:
        lane.open.clear()
