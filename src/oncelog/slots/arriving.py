"""Arrivals for one partition, as events of the table: answers, losses, times, requests of its user."""

from oncelog.error_codes import ErrorCodes as Code
from oncelog.slots.actions import SLOT_LOST
from oncelog.slots.batch import Batch
from oncelog.slots.messages import BatchAnswer, Found
from oncelog.slots.partition import NO_LEADER, Partition
from oncelog.slots.stamping import take
from oncelog.slots.states import LOOKING_UP, SETTLING, STOPPED, STORED, Event
from oncelog.slots.table import end, happen, when_landed
from oncelog.slots.verdicts import verdict_of


def next_batch(partition: Partition, now_ms: int) -> Batch | None:
    """The batch that is to be sent now, if there is one."""
    found = take(partition, now_ms)
    while type(found) is Event:
        happen(partition, found, now_ms)
        found = take(partition, now_ms)
    return found  # type: ignore[return-value]


def answered(partition: Partition, batch: Batch, answer: BatchAnswer, now_ms: int) -> None:
    code = answer.error_code
    if code == 0:
        end(partition, STORED, now_ms, batch, answer)
    else:
        event, is_leader_stale = verdict_of(code)
        if event is STORED:
            batch.in_doubt = True
        if is_leader_stale:
            partition.failed_leader, partition.leader = partition.leader, NO_LEADER
        end(partition, event, now_ms, batch, answer)
    if partition.state:
        when_landed(partition, now_ms)


def ended(partition: Partition, batch: Batch, event: Event, code: int, now_ms: int, message: str | None = None) -> None:
    """A request is over without an answer."""
    end(partition, event, now_ms, batch, BatchAnswer(batch.topic, batch.partition, code, message=message))
    when_landed(partition, now_ms)


def looked_up(partition: Partition, found: Found | None, now_ms: int) -> None:
    if partition.state is not LOOKING_UP or partition.tenure is None:
        return  # stopped meanwhile, or another's
    if found is None:
        happen(partition, Event.UNKNOWABLE, now_ms)
    else:
        happen(partition, Event.FOUND, now_ms, found)


def time_passed(partition: Partition, now_ms: int) -> None:
    """Gives up what is older than delivery.timeout.ms, and says what was in its way; asks the log where that was put
    off until now."""
    trouble = partition.trouble if partition.failures else None
    deadline_ms = now_ms - partition.context.limits.patience_ms
    waiting = partition.waiting
    while waiting and waiting[0].created_ms <= deadline_ms:
        _fail_first(partition, Code._MSG_TIMED_OUT, trouble, now_ms)
    late = [each for each in partition.open if each.created_ms <= deadline_ms and not each.is_reported]
    _give_up(partition, late, Code._MSG_TIMED_OUT, now_ms, trouble)
    if partition.state is SETTLING and now_ms >= partition.settle_at_ms:
        happen(partition, Event.DUE, now_ms)


def give_up(partition: Partition, code: int, in_flight: bool, now_ms: int) -> None:
    fail_waiting(partition, code, None, now_ms)
    if in_flight:
        _give_up(partition, [each for each in partition.open if not each.is_reported], code, now_ms)


def _give_up(partition: Partition, batches: list[Batch], code: int, now_ms: int, message: str | None = None) -> None:
    for batch in batches:
        end(partition, Event.GIVEN_UP, now_ms, batch, BatchAnswer(batch.topic, batch.partition, code, message=message))
    when_landed(partition, now_ms)


def fail_waiting(partition: Partition, code: int, message: str | None, now_ms: int) -> None:
    while partition.waiting:
        _fail_first(partition, code, message, now_ms)


def _fail_first(partition: Partition, code: int, message: str | None, now_ms: int) -> None:
    """The first waiting batch. Where others fill the same slots, nothing may move up into its place."""
    partition.context.fail(partition.waiting.popleft(), code, message, False)
    if partition.tenure is not None and partition.tenure.is_shared and partition.state is not STOPPED:
        partition.stopped_by = code, SLOT_LOST
        happen(partition, Event.UNFILLED, now_ms)
