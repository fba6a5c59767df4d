"""Brokers that break one rule each. A cluster in memory that notices none of it would show nothing, so each is caught,
by name."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final
from unittest.mock import patch

from oncelog.log import follower_beginning, snapshots
from oncelog.log.appender import Appender
from oncelog.log.epochs import LeaderEpochs
from oncelog.log.errors import OffsetOutOfRange
from oncelog.log.partition import End, Fate, PartitionLog
from oncelog.log.parts import Parts
from oncelog.producers import Decision, ProducerMap
from oncelog.producers.leases import GrantHistory
from oncelog.replication import following, leadership
from oncelog.replication.following import Answer, NextFetch, Records, Refusal
from oncelog.replication.leader import Leader, Proposal
from oncelog.replication.leadership import Leadership, needs_leader
from oncelog.replication.replica import Fetching, Replica
from tests.replication.broker import Broker
from tests.replication.chances import EAGER, FULL, LEASES, MOVING, OLD, POWER, ROUGH, USUAL, Chances
from tests.replication.promises import Violation
from tests.replication.tree import Tree

REFUSED: Final = (Violation, OffsetOutOfRange)
Change = Callable[[Any], Any]  # what stands there -> what stands there instead


@dataclass(frozen=True)
class Mutant:
    what: str
    changes: tuple[tuple[Any, str, Change], ...]
    chances: Chances = USUAL
    breaks: tuple[type[Exception], ...] = (Violation,)  # or what a log refuses by itself
    since: int = 0  # histories before this one did not catch it when they were last looked at

    def __str__(self) -> str:
        return self.what

    @contextmanager
    def applied(self) -> Iterator[None]:
        patches = [patch.object(where, name, change(getattr(where, name))) for where, name, change in self.changes]
        for each in patches:
            each.start()
        try:
            yield
        finally:
            for each in reversed(patches):
                each.stop()


def _over_the_proposed_set_only(_: Any) -> Any:
    def high_watermark(self: Leader, end: int) -> int:
        if not self.has_enough or self.state.eligible:
            return -1
        state = self.state if self.proposed is None else self.proposed.state
        return min([end, *(self._end_of(broker) for broker in state.in_sync if broker != self._me)])

    return high_watermark


def _below_min_in_sync(before: Any) -> Any:
    def high_watermark(self: Leader, end: int) -> int:
        with patch.object(Leader, "has_enough", True):
            self.state, state = self.state._replace(eligible=()), self.state
            try:
                return int(before(self, end))
            finally:
                self.state = state

    return high_watermark


def _without_any_end(before: Any) -> Any:
    """In sync as soon as it has asked."""

    def is_in(self: Leader, broker: int, peers: Any, high_watermark: int, now_ms: int) -> bool:
        follower = self._followers.get(broker)
        if follower is None:
            return False
        end, follower.end = follower.end, 1 << 60
        try:
            return bool(before(self, broker, peers, high_watermark, now_ms))
        finally:
            follower.end = end

    return is_in


def _without_a_check_of_the_epoch(before: Any) -> Any:
    def refusal(log: Any, asked: NextFetch) -> Refusal | None:
        found: Refusal | None = before(log, asked._replace(last_epoch=-1))
        return found

    return refusal


def _cut_to_the_watermark(before: Any) -> Any:
    def follow_epoch(self: PartitionLog, leader_epoch: int) -> None:
        before(self, leader_epoch)
        if self._parts.replicated:
            self.truncate_to(self.high_watermark)

    return follow_epoch


def _without_broker_epochs(before: Any) -> Any:
    def set_(self: Tree, proposal: Proposal) -> bool | None:
        done: bool | None = before(self, proposal._replace(epochs=()))
        return done

    return set_


def _unconditionally(_: Any) -> Any:
    def set_(self: Tree, proposal: Proposal) -> bool | None:
        self.state = proposal.state._replace(version=max(self.state.version + 1, proposal.state.version))
        return True

    return set_


def _as_if_clean(before: Any) -> Any:
    def made(self: Any, me: int, log: Any, rules: Any, *, is_clean: bool) -> None:
        before(self, me, log, rules, is_clean=True)

    return made


def _with_a_phantom_epoch(_: Any) -> Any:
    def open_epoch(self: PartitionLog, latest: int, opened: Any) -> None:
        self.begin_epoch(max(latest + 1, opened.epoch))

    return open_epoch


def _epochs_kept(_: Any) -> Any:
    def follow_from(self: LeaderEpochs, epoch: int, next_offset: int) -> None:
        self.current = max(self.current, epoch)

    return follow_from


def _answered_at_once(_: Any) -> Any:
    def fate(self: Broker, end: End) -> Fate:
        return Fate.SAFE

    return fate


def _by_the_offset_alone(_: Any) -> Any:
    def fate(self: Broker, end: End) -> Fate:
        return Fate.SAFE if self.log.high_watermark >= end.offset else Fate.WAITS

    return fate


def _diverging_and_counted(before: Any) -> Any:
    def fetched(self: Replica, fetching: Fetching, now_ms: int) -> Refusal | None:
        broker, broker_epoch, asked = fetching
        if self.leader is not None and asked.leader_epoch == self.log.leader_epoch:
            self.leader.fetched(broker, broker_epoch, asked.offset, self.log.next_offset, now_ms)
            self.move_high_watermark()
        refused: Refusal | None = before(self, fetching, now_ms)
        return refused

    return fetched


def _old_epoch_after_a_restart(_: Any) -> Any:
    """Leads on as the tree says, without an election."""

    def see(self: Replica, state: Leadership, now_ms: int) -> None:
        if self.state is not None and state.version <= self.state.version:
            return
        self.state, self._change = state, None
        if state.leader != self._me:
            self.leader = None
            self.log.follow_epoch(state.epoch)
        elif self.leader is None or self.leader.state.epoch != state.epoch:
            self._lead(state, now_ms)
        else:
            self.leader.seen(state)

    return see


def _records_of_any_epoch(before: Any) -> Any:
    def take(self: Replica, asked: NextFetch, answered: Answer, now: Any) -> None:
        if self.leader is None and isinstance(answered, Records):
            following.take(self.log, following.ask(self.log), answered, now)
        else:
            before(self, asked, answered, now)

    return take


def _anybody_elected(_: Any) -> Any:
    def should_lead(self: Replica, state: Leadership, peers: Any, now_ms: int) -> bool:
        return state.leader == self._me or needs_leader(state, peers)

    return should_lead


def _moved_at_once(_: Any) -> Any:
    return property(lambda state: bool(state.adding or state.removing))


def _led_on_without_an_election(before: Any) -> Any:
    def only(state: Leadership, replicas: tuple[int, ...]) -> Leadership:
        changed: Leadership = before(state, replicas)
        return changed._replace(leader=state.leader if state.leader in replicas else changed.leader)

    return only


def _without_producers(before: Any) -> Any:
    def encoded(log: Parts, now: Any) -> bytes:
        snapshot = snapshots.decode(before(log, now))
        assert snapshot is not None
        return snapshots.encode(snapshot._replace(producers=ProducerMap().encode(now)))

    return encoded


def _dated_at_sight(before: Any) -> Any:
    def read(self: GrantHistory, next_pid: int, began_ms: int) -> Any:
        return before(self._replace(read_ms=began_ms), next_pid, began_ms)

    return read


def _whoever_was_faster(_: Any) -> Any:
    def take_pids(self: Tree, next_pid: int, end_pid: int) -> bool:
        self.next_pid = end_pid
        return True

    return take_pids


def _fences_at_once(before: Any) -> Any:
    def fence(self: Appender, pid: int, generation: int, now: Any) -> Any:
        return before(self, pid, generation, now)._replace(offset=-1)

    return fence


def _duplicates_at_once(before: Any) -> Any:
    def stage_replay(self: Appender, decision: Any, *rest: Any) -> Any:
        staged = before(self, decision, *rest)
        return staged._replace(end_offset=0) if decision is Decision.DUPLICATE else staged

    return stage_replay


def _as_if_it_had_room(_: Any) -> Any:
    return property(lambda replica: replica.log.offline is not None)


def _to_nobody(before: Any) -> Any:
    def gives_way(self: Replica, state: Leadership, peers: Any, now_ms: int) -> bool:
        return bool(before(self, state, peers, now_ms)) or (self.log.refuses and state.leader == self._me)

    return gives_way


MUTANTS: Final = (
    Mutant("watermark over the proposed set only", ((Leader, "high_watermark", _over_the_proposed_set_only),)),
    Mutant("watermark below min.insync.replicas", ((Leader, "high_watermark", _below_min_in_sync),), ROUGH),
    Mutant("grown at any end", ((Leader, "is_in", _without_any_end),), ROUGH, since=200),
    Mutant("no check of the last epoch", ((following, "refusal", _without_a_check_of_the_epoch),)),
    Mutant("cut to the watermark", ((PartitionLog, "follow_epoch", _cut_to_the_watermark),)),
    Mutant("no epochs of brokers", ((Tree, "set", _without_broker_epochs),), POWER, since=200),
    Mutant("unconditional write", ((Tree, "set", _unconditionally),)),
    Mutant("unclean broker kept", ((Replica, "__init__", _as_if_clean),)),
    Mutant("phantom epoch", ((PartitionLog, "open_epoch", _with_a_phantom_epoch),)),
    Mutant(
        "epochs kept that hold nothing",
        ((LeaderEpochs, "follow_from", _epochs_kept),),
        ROUGH,
        (Violation, OffsetOutOfRange),
        since=170,
    ),
    Mutant("answered above the watermark", ((Broker, "fate", _answered_at_once),)),
    Mutant("answered by the offset alone", ((Broker, "fate", _by_the_offset_alone),), MOVING, since=260),
    Mutant("a fetch that diverges counts", ((Replica, "fetched", _diverging_and_counted),), EAGER, since=120),
    Mutant("led on after a restart", ((Replica, "see", _old_epoch_after_a_restart),)),
    Mutant(
        "records of another fetch taken",
        ((Replica, "take", _records_of_any_epoch),),
        USUAL,
        (Violation, OffsetOutOfRange),
    ),
    Mutant("no snapshot at a new start", ((follower_beginning, "encoded", _without_producers),), OLD, since=90),
    Mutant("blocks dated at sight", ((GrantHistory, "read", _dated_at_sight),), LEASES),
    Mutant("pids taken unconditionally", ((Tree, "take_pids", _whoever_was_faster),), LEASES),
    Mutant("fence answered above the watermark", ((Appender, "fence", _fences_at_once),), ROUGH),
    Mutant("duplicate answered above the watermark", ((Appender, "stage_replay", _duplicates_at_once),), EAGER),
    Mutant("moved before all are in sync", ((Leadership, "is_moved", _moved_at_once),), MOVING),
    Mutant(
        "led on where a replica is dropped", ((leadership, "only_of", _led_on_without_an_election),), MOVING, since=580
    ),
    Mutant("followed with a full disk", ((Replica, "takes_nothing", _as_if_it_had_room),), FULL),
    Mutant("gives way where nobody else is in sync", ((Replica, "gives_way", _to_nobody),), FULL),
    Mutant("anybody elected", ((Replica, "should_lead", _anybody_elected),)),
)
