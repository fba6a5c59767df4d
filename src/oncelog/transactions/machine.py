"""One transactional id: what each request makes of it. A request and the time go in; a refusal comes out, or what is to
be stored.

What is to be stored is a whole new `Transaction`; it counts once it is safe in the log. Until then the id is pending,
and a client that asks for another change is told to try again.
"""

from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from oncelog.transactions.states import DONE, Done, Event, Refusal, State, To, outcome_of

NO_PID: Final = -1
NO_EPOCH: Final = -1
NO_TIME: Final = -1
LAST_EPOCH: Final = 2**15 - 1
RAISES: Final = 2  # the version of transactions from which on each end raises the epoch (KIP-890)

TopicPartition = tuple[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Transaction:
    pid: int
    epoch: int = NO_EPOCH
    previous_pid: int = NO_PID
    next_pid: int = NO_PID  # that its producer has from the end of this transaction on
    last_epoch: int = NO_EPOCH  # by which the last initialisation may be asked for again
    timeout_ms: int
    state: State = State.EMPTY
    partitions: frozenset[TopicPartition] = frozenset()
    started_wall_ms: int = NO_TIME
    updated_wall_ms: int
    version: int = 0  # of transactions, as the client spoke that ended it

    @property
    def is_epoch_exhausted(self) -> bool:
        """The last one is left for a fence."""
        return self.epoch >= LAST_EPOCH - 1

    @property
    def is_decided(self) -> bool:
        return self.state in (State.PREPARE_COMMIT, State.PREPARE_ABORT)

    @property
    def is_commit(self) -> bool:
        return self.state is State.PREPARE_COMMIT

    def is_over_time(self, wall_ms: int) -> bool:
        return self.state is State.ONGOING and self.started_wall_ms + self.timeout_ms < wall_ms

    def is_idle_since(self, wall_ms: int) -> bool:
        """Nothing has happened since, so that it may expire."""
        is_at_rest = self.state in (State.EMPTY, State.COMPLETE_COMMIT, State.COMPLETE_ABORT)
        return is_at_rest and self.updated_wall_ms <= wall_ms


class Expected(NamedTuple):
    """The pid and epoch that a producer says it had."""

    pid: int
    epoch: int


Answer = Transaction | Refusal


def new(pid: int, timeout_ms: int, wall_ms: int) -> Transaction:
    """The transaction of an id that nobody has used."""
    return Transaction(pid=pid, timeout_ms=timeout_ms, updated_wall_ms=wall_ms)


def initialised(now: Transaction, timeout_ms: int, expected: Expected | None, wall_ms: int, fresh_pid: int) -> Answer:
    """`fresh_pid` is used where the epochs of the present one are used up (`is_epoch_exhausted`). To state
    PREPARE_EPOCH_FENCE, where a transaction is to be aborted first: it has the raised epoch, and is not stored."""
    if expected is not None and not _may_be(now, expected):
        return Refusal.FENCED
    outcome = outcome_of(Event.INIT, now.state)
    if not isinstance(outcome, To):
        return Refusal.CONCURRENT_TRANSACTIONS
    if outcome.state is State.PREPARE_EPOCH_FENCE:
        return fenced(now)
    if now.is_epoch_exhausted and (expected is None or expected.epoch == now.epoch):
        last_epoch = NO_EPOCH if expected is None else now.epoch
        return _begun(now, fresh_pid, 0, last_epoch, timeout_ms, wall_ms)
    if expected is None:
        return _begun(now, now.pid, now.epoch + 1, NO_EPOCH, timeout_ms, wall_ms)
    if now.epoch == NO_EPOCH or expected.epoch == now.epoch:
        return _begun(now, now.pid, now.epoch + 1, now.epoch, timeout_ms, wall_ms)
    if expected.epoch == now.last_epoch:  # asked again: nobody else was initialised since
        return _begun(now, now.pid, now.epoch, now.last_epoch, timeout_ms, wall_ms)
    return Refusal.FENCED


def fenced(now: Transaction) -> Transaction:
    """Asked again after a store that failed, it is the same epoch: `now` is what was stored."""
    return replace(now, epoch=now.epoch + 1, last_epoch=NO_EPOCH, state=State.PREPARE_EPOCH_FENCE)


def added(now: Transaction, pid: int, epoch: int, partitions: frozenset[TopicPartition], wall_ms: int) -> Answer | Done:
    refusal = _who(now, pid, epoch)
    outcome = outcome_of(Event.ADD, now.state)
    if refusal is not None or not isinstance(outcome, To):
        return refusal or Refusal.CONCURRENT_TRANSACTIONS
    if now.state is State.ONGOING:
        if partitions <= now.partitions:
            return DONE
        return replace(now, partitions=now.partitions | partitions, updated_wall_ms=wall_ms)
    return replace(
        now,
        state=State.ONGOING,
        previous_pid=now.pid,
        partitions=partitions,
        started_wall_ms=wall_ms,
        updated_wall_ms=wall_ms,
        version=0,
    )


def verified(now: Transaction, pid: int, epoch: int, partition: TopicPartition) -> Refusal | None:
    """Whether it was added, for a broker that is to append to it."""
    refusal = _who(now, pid, epoch)
    if refusal is not None:
        return refusal
    if outcome_of(Event.VERIFY, now.state) is not DONE:
        return Refusal.CONCURRENT_TRANSACTIONS
    return None if partition in now.partitions else Refusal.ABORTABLE


def ended(
    now: Transaction,
    pid: int,
    epoch: int,
    *,
    is_commit: bool,
    raises: bool,
    fresh_pid: int,
    wall_ms: int,
) -> Answer | Done:
    """`raises`: the client knows that each end raises the epoch. `fresh_pid` where the epochs are used up."""
    if not raises:
        refusal = _who(now, pid, epoch)
        event = Event.COMMIT if is_commit else Event.ABORT
    else:
        refusal, event = _how(now, pid, epoch, is_commit)
    if refusal is not None:
        return refusal
    outcome = outcome_of(event, now.state)
    if not isinstance(outcome, To):
        return outcome
    return _decided(now, outcome.state, fresh_pid if raises else NO_PID, wall_ms, raises=raises)


def aborted(fence: Transaction, wall_ms: int, *, raises: bool) -> Transaction:
    """The abort in the place of its producer, from PREPARE_EPOCH_FENCE on, by the epoch that fences it."""
    return replace(
        fence,
        previous_pid=fence.pid,
        next_pid=NO_PID,
        state=State.PREPARE_ABORT,
        updated_wall_ms=wall_ms,
        version=RAISES if raises else 0,
    )


def completed(now: Transaction, wall_ms: int) -> Transaction:
    """Every partition has its marker. Where a fresh pid follows, the last epoch stays the one that the producer knew:
    by it an initialisation may be asked for whose producer did not hear of the pid."""
    outcome = outcome_of(Event.MARKED, now.state)
    assert isinstance(outcome, To)
    pid, epoch = now.pid, now.epoch
    if now.version >= RAISES and now.next_pid != NO_PID:
        pid, epoch = now.next_pid, 0
    return replace(
        now,
        pid=pid,
        epoch=epoch,
        previous_pid=now.pid,
        next_pid=NO_PID,
        state=outcome.state,
        partitions=frozenset(),
        updated_wall_ms=wall_ms,
    )


def _decided(now: Transaction, state: State, fresh_pid: int, wall_ms: int, *, raises: bool) -> Transaction:
    began = now.started_wall_ms if now.state is State.ONGOING else wall_ms
    return replace(
        now,
        epoch=now.epoch + raises,
        last_epoch=now.epoch if raises else now.last_epoch,
        previous_pid=now.pid,
        next_pid=fresh_pid if raises and now.is_epoch_exhausted else NO_PID,
        state=state,
        partitions=now.partitions if now.state is State.ONGOING else frozenset(),
        started_wall_ms=began,
        updated_wall_ms=wall_ms,
        version=RAISES if raises else 0,
    )


def _who(now: Transaction, pid: int, epoch: int) -> Refusal | None:
    if pid != now.pid:
        return Refusal.INVALID_PID_MAPPING
    return None if _is_now(now, epoch) else Refusal.FENCED


def _is_now(now: Transaction, epoch: int) -> bool:
    """Whether it is the epoch of now. Nobody goes on by the last one: another fence would have none."""
    return epoch == now.epoch < LAST_EPOCH


def _how(now: Transaction, pid: int, epoch: int, is_commit: bool) -> tuple[Refusal | None, Event]:
    """Whether the end is asked for the first time or again, told by the epoch."""
    has_new_pid = pid == now.previous_pid and epoch == LAST_EPOCH - 1 and now.epoch == 0
    is_again = now.epoch == epoch + 1 or has_new_pid
    if is_again:
        event = Event.COMMIT_AGAIN if is_commit else Event.ABORT_AGAIN
    else:
        event = Event.COMMIT_RAISING if is_commit else Event.ABORT_RAISING
    if pid != now.pid and not has_new_pid:
        return Refusal.INVALID_PID_MAPPING, event
    return (None if is_again or _is_now(now, epoch) else Refusal.FENCED), event


def _may_be(now: Transaction, expected: Expected) -> bool:
    is_previous = expected.pid == now.previous_pid and expected.epoch >= LAST_EPOCH - 1
    return now.epoch == NO_EPOCH or expected.pid == now.pid or is_previous


def _begun(now: Transaction, pid: int, epoch: int, last_epoch: int, timeout_ms: int, wall_ms: int) -> Transaction:
    return Transaction(
        pid=pid,
        epoch=epoch,
        previous_pid=now.pid,
        last_epoch=last_epoch,
        timeout_ms=timeout_ms,
        updated_wall_ms=wall_ms,
    )
