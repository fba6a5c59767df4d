"""A group's way from state to state and from generation to generation, and its members meanwhile."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from weakref import ref

from oncelog.clock import Now
from oncelog.server.errors import ErrorCode
from oncelog.server.groups.deadlines import JOIN_PHASE, SYNC_PHASE, Deadlines
from oncelog.server.groups.member import Member, Members, new_member, restored_member
from oncelog.server.groups.messages import (
    NO_LEADER,
    Assigned,
    GroupLimits,
    JoinAnswer,
    JoinedMember,
    JoinRequest,
    Replaced,
    Store,
    StoredGroup,
    SyncAnswer,
    Waiter,
)
from oncelog.server.groups.outbox import Outbox
from oncelog.server.groups.state import TRANSITIONS, Event, State
from oncelog.server.groups.subscription import CONSUMER_PROTOCOL, subscribed_topics


@dataclass(slots=True)
class InitialDelay:
    """A group that was empty waits for more members (KIP-134), longer while more come, up to the rebalance timeout."""

    delay_ms: int
    remaining_ms: int
    somebody_came: bool = False


class Rebalance:
    def __init__(self, limits: GroupLimits, now: Now) -> None:
        self.state = State.EMPTY
        self.state_since_wall_ms = now.wall_ms
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.leader: str | None = None
        self.members = Members()
        self.deadlines = Deadlines(self.members)
        self.outbox = Outbox(self.members)
        self._limits = limits
        self._unsynced: set[str] = set()
        self._is_shared_out = False  # by the leader of this generation, who may say it again before it is stored
        self._initial: InitialDelay | None = None

    def restore(self, stored: StoredGroup, now: Now) -> None:
        """Restore the group as it was last stored. The members have one session timeout to be heard of."""
        self.state = State.STABLE if stored.members else State.EMPTY
        self.state_since_wall_ms = stored.state_since_wall_ms if stored.state_since_wall_ms >= 0 else now.wall_ms
        self.generation = stored.generation
        self.protocol_type = stored.protocol_type or None
        self.protocol_name = stored.protocol_name
        self.leader = stored.leader if stored.members else None
        for stored_member in stored.members:
            member = restored_member(stored_member, stored.protocol_name)
            self.members.add(member)
            self.deadlines.begin_session(member, now)
        is_unled = self.leader is None and bool(stored.members)  # since it came from KIP-848
        if is_unled or len(self.members) > self._limits.max_members:
            self._prepare_rebalance(now)

    def take_over(self, generation: int, members: Iterable[Member], now: Now) -> None:
        """Members that have their shares."""
        self.state = State.STABLE
        self.generation, self.protocol_type = generation, CONSUMER_PROTOCOL
        for member in members:
            self.members.add(member)
            self.deadlines.begin_session(member, now)
            self.leader = self.leader or member.member_id
        self.protocol_name = self.members.vote()

    # From state to state

    def _move(self, event: Event, now: Now) -> None:
        self.state = TRANSITIONS[self.state][event]
        self.state_since_wall_ms = now.wall_ms

    def rebalance_or_complete(self, now: Now) -> None:
        if Event.REBALANCE in TRANSITIONS[self.state]:
            self._prepare_rebalance(now)
        else:
            self.complete_join_if_all_are_here(now)

    def _prepare_rebalance(self, now: Now) -> None:
        if self.state is State.COMPLETING_REBALANCE:
            self._share_out({}, ErrorCode.rebalance_in_progress, now)
        self._unsynced.clear()
        self.deadlines.clear_sync()
        was_empty = self.state is State.EMPTY
        self._move(Event.REBALANCE, now)
        if was_empty:
            delay_ms = self._limits.initial_rebalance_delay_ms
            self._initial = InitialDelay(delay_ms, max(self._rebalance_timeout_ms() - delay_ms, 0))
            self.deadlines.set_join(now.monotonic_ms + delay_ms)
        elif self._all_are_here():
            self._complete_join(now)
        else:
            self.deadlines.set_join(now.monotonic_ms + self._rebalance_timeout_ms())

    def complete_join_if_all_are_here(self, now: Now) -> None:
        """Complete the join if all are here, but not before the initial delay is over: then it is that which everybody
        waits for."""
        if self.state is State.PREPARING_REBALANCE and self._initial is None and self._all_are_here():
            self._complete_join(now)

    def _join_phase_is_over(self, now: Now) -> None:
        initial = self._initial
        if initial is not None and initial.somebody_came and initial.remaining_ms > 0:
            delay_ms = min(self._limits.initial_rebalance_delay_ms, initial.remaining_ms)
            self._initial = InitialDelay(delay_ms, max(initial.remaining_ms - initial.delay_ms, 0))
            self.deadlines.set_join(now.monotonic_ms + delay_ms)
        else:
            self._complete_join(now)

    def _complete_join(self, now: Now) -> None:
        """Complete the join. A member that did not join again is out; a static member stays until its session ends."""
        self.deadlines.clear_join()
        self._initial = None
        for member in self.members:
            if member.join_waiter is None and member.instance_id is None:
                self.remove(member.member_id)
        if not self.members:
            self._begin_empty_generation(now)
        elif self._leader_has_joined():
            self._begin_generation(now)
        else:  # only static members are left, and none of them joined
            self.deadlines.set_join(now.monotonic_ms + self._rebalance_timeout_ms())

    def _begin_empty_generation(self, now: Now) -> None:
        self.generation += 1
        self.protocol_name = None
        self._move(Event.NOBODY_JOINED, now)
        self.outbox.put(Store(self.to_store()))

    def _begin_generation(self, now: Now) -> None:
        self.generation += 1
        self._is_shared_out = False
        self.protocol_name = self.members.vote()
        self._move(Event.ALL_JOINED, now)
        for member in self.members:
            self.outbox.answer_join(member, self.current_generation(member, for_leader=True))
            member.is_new = False
            member.knows_its_id = True
            self.deadlines.begin_session(member, now)
            self._unsynced.add(member.member_id)
        self.deadlines.set_sync(now.monotonic_ms + self._rebalance_timeout_ms())

    def _sync_phase_is_over(self, now: Now) -> None:
        """The sync phase is over. A member that joined but never asked for its share is out, and the others share
        anew."""
        self.deadlines.clear_sync()
        for member_id in sorted(self._unsynced):
            self.remove(member_id)
        self._prepare_rebalance(now)

    def share_out(self, assignments: Mapping[str, bytes]) -> None:
        """The leader's word, once: all hear the first, and the log must not have another one behind it."""
        if not self._is_shared_out:
            self._is_shared_out = True
            pending = Assigned(self.generation, dict(assignments))
            self.outbox.put(Store(self.to_store(pending.assignments), pending))

    def assigned(self, pending: Assigned, error: ErrorCode, now: Now) -> None:
        if self.state is not State.COMPLETING_REBALANCE or pending.generation != self.generation:
            return  # the group went on while the assignment was being stored
        if error is ErrorCode.none:
            self._share_out(pending.assignments, ErrorCode.none, now)
            self._move(Event.ASSIGNED, now)
        else:
            self._share_out({}, error, now)
            self._prepare_rebalance(now)

    def _share_out(self, assignments: Mapping[str, bytes], error: ErrorCode, now: Now) -> None:
        for member in self.members:
            member.assignment = assignments.get(member.member_id, b"")
            if member.sync_waiter is not None:
                answer = self.share_of(member) if error is ErrorCode.none else SyncAnswer(error=error)
                self.outbox.answer_sync(member, answer)
                self.deadlines.begin_session(member, now)

    def _leader_has_joined(self) -> bool:
        """A leader that did not join again hands over to the first member that did."""
        joined = [member.member_id for member in self.members if member.join_waiter is not None]
        if self.leader not in joined and joined:
            self.leader = joined[0]
        return bool(joined)

    # Joining

    def add(self, request: JoinRequest, member_id: str, waiter: Waiter, now: Now) -> None:
        self.deadlines.forget_id(member_id)
        if self._initial is not None:
            self._initial.somebody_came = True
        if not self.members:
            self.protocol_type = request.protocol_type
        member = new_member(request, member_id)
        self.members.add(member)
        self.members.set_join_waiter(member, waiter)
        if self.leader is None:
            self.leader = member_id
        self.deadlines.begin_session(member, now, self._limits.new_member_join_timeout_ms)
        self.rebalance_or_complete(now)

    def replace(self, former_id: str, request: JoinRequest, waiter: Waiter, now: Now) -> None:
        """A static member came back without its id: it goes on as before under a new one, and the old one is fenced."""
        former_leader = self.leader or ""
        former = self.members.remove(former_id)
        if former is None:
            raise ValueError(f"the instance {request.instance_id} has no member {former_id}")
        self.outbox.answer_removed(former, ErrorCode.fenced_instance_id)
        member = new_member(request, request.fresh_id)
        member.is_new = False
        member.assignment = former.assignment
        self.members.add(member)
        self.members.set_join_waiter(member, waiter)
        if self.leader == former_id:
            self.leader = member.member_id
        if former_id in self._unsynced:
            self._unsynced.discard(former_id)
            self._unsynced.add(member.member_id)
        self.deadlines.begin_session(member, now)
        if self.state is State.STABLE and self.members.vote() == self.protocol_name:
            pending = Replaced(member.member_id, request.may_skip_assignment, former_leader)
            self.outbox.put(Store(self.to_store(), pending))
        else:
            # While the leader computes shares the old id is among those that it was given, so all must join again.
            self.rebalance_or_complete(now)

    def replaced(self, pending: Replaced, error: ErrorCode, now: Now) -> None:
        member = self.members.get(pending.member_id)
        if member is None or self.state is not State.STABLE:
            return  # a rebalance began meanwhile, which answers this join too
        if error is not ErrorCode.none:
            self.outbox.answer_join(member, JoinAnswer(error=error))
            return
        answer = self.current_generation(member, for_leader=pending.may_skip_assignment, skip_assignment=True)
        if not pending.may_skip_assignment:
            # Before KIP-814 a member that was named leader computed shares, so it is told the former leader's name.
            answer = answer._replace(leader=pending.former_leader)
        self.outbox.answer_join(member, answer)
        self.deadlines.begin_session(member, now)

    def join_again(self, member: Member, request: JoinRequest, waiter: Waiter, now: Now) -> None:
        self.members.update(member, request)
        self.outbox.answer_join(member, JoinAnswer(error=ErrorCode.rebalance_in_progress, member_id=member.member_id))
        self.members.set_join_waiter(member, waiter)
        self.rebalance_or_complete(now)

    def synced(self, member: Member) -> None:
        """The member has asked for its share."""
        self._unsynced.discard(member.member_id)
        if not self._unsynced:
            self.deadlines.clear_sync()

    def end(self, error: ErrorCode) -> None:
        """The group is deleted, or the server stops: nobody waits for it any longer."""
        for member in self.members:
            self.outbox.answer_join(member, JoinAnswer(error=error, member_id=member.member_id))
            self.outbox.answer_sync(member, SyncAnswer(error=error))
        if self.state is not State.DEAD:
            self.state = TRANSITIONS[self.state][Event.DELETED]
        self.deadlines.never_wake()

    # Members

    def _all_are_here(self) -> bool:
        return self.members.all_are_joining and not self.deadlines.ids_ms

    def remove(self, member_id: str) -> None:
        self.deadlines.forget_id(member_id)
        self._unsynced.discard(member_id)
        member = self.members.remove(member_id)
        if member is None:
            return
        self.outbox.answer_removed(member, ErrorCode.unknown_member_id)
        if self.leader == member_id:
            eldest = self.members.eldest
            self.leader = None if eldest is None else eldest.member_id

    def after_removal(self, now: Now) -> None:
        if self.state is not State.EMPTY:
            self.rebalance_or_complete(now)

    def _rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self.members), default=0)

    @property
    def topics(self) -> frozenset[str] | None:
        """The topics that this generation is subscribed to."""
        return _topics(ref(self, _let_go), self.generation)

    # Answers

    def current_generation(self, member: Member, *, for_leader: bool, skip_assignment: bool = False) -> JoinAnswer:
        """The answer to a member that joins this generation; the list of all goes to the leader only."""
        listed = for_leader and member.member_id == self.leader
        return JoinAnswer(  # for each of thousands at a time: names would take as long again
            ErrorCode.none,
            member.member_id,
            self.generation,
            self.protocol_type,
            self.protocol_name,
            self.leader or NO_LEADER,
            self._joined_members() if listed else (),
            listed and skip_assignment,
        )

    def _joined_members(self) -> tuple[JoinedMember, ...]:
        name = self.protocol_name or ""
        return tuple(JoinedMember(m.member_id, m.instance_id, m.protocols.get(name, b"")) for m in self.members)

    def share_of(self, member: Member) -> SyncAnswer:
        return SyncAnswer(ErrorCode.none, self.protocol_type, self.protocol_name, member.assignment)

    def to_store(self, assignments: Mapping[str, bytes] | None = None) -> StoredGroup:
        return StoredGroup(
            protocol_type=self.protocol_type or "",
            generation=self.generation,
            protocol_name=self.protocol_name,
            leader=self.leader,
            state_since_wall_ms=self.state_since_wall_ms,
            members=tuple(
                member.stored(
                    self.protocol_name,
                    member.assignment if assignments is None else assignments.get(member.member_id, b""),
                )
                for member in self.members
            ),
        )

    # Deadlines

    def expire_passed(self, now: Now) -> None:
        """Expire what has passed, in that order."""
        for deadline_ms, member_id in self.deadlines.take_passed(now.monotonic_ms):
            self._expire(deadline_ms, member_id, now)

    def _expire(self, deadline_ms: int, member_id: str, now: Now) -> None:
        """A deadline has passed, unless an earlier one has moved it."""
        if member_id == JOIN_PHASE:
            if self.deadlines.join_ms == deadline_ms:
                self._join_phase_is_over(now)
        elif member_id == SYNC_PHASE:
            if self.deadlines.sync_ms == deadline_ms:
                self._sync_phase_is_over(now)
        elif self.deadlines.ids_ms.get(member_id) == deadline_ms:
            self.remove(member_id)
            self.complete_join_if_all_are_here(now)
        else:
            self._expire_session(deadline_ms, member_id, now)

    def _expire_session(self, deadline_ms: int, member_id: str, now: Now) -> None:
        member = self.members.get(member_id)
        if member is None or member.session_deadline_ms != deadline_ms:
            return
        self.deadlines.end_session(member)
        if member.is_waiting and not member.is_new:
            return  # it waits for us, so it is alive; its session begins anew with the answer
        self.remove(member_id)
        self.after_removal(now)


@lru_cache(maxsize=1)
def _topics(of: "ref[Rebalance]", generation: int) -> frozenset[str] | None:
    """Looked for when somebody asks, and kept of one group alone, as long as it lives: names take many times the memory
    of the bytes that they are read from, and each piece of what a group has committed asks for the same ones."""
    rebalance = of()
    assert rebalance is not None
    name = rebalance.protocol_name or ""
    return subscribed_topics(rebalance.protocol_type, (each.protocols.get(name, b"") for each in rebalance.members))


def _let_go(gone: "ref[Rebalance]") -> None:
    _topics.cache_clear()
