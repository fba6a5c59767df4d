"""How a group goes from state to state: the part of the group that no message reaches directly."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from oncelog.clock import Now
from oncelog.server.errors import ErrorCode
from oncelog.server.groups.member import Member, Members
from oncelog.server.groups.messages import (
    NO_LEADER,
    Answer,
    Assigned,
    Effect,
    GroupLimits,
    JoinAnswer,
    JoinedMember,
    Store,
    StoredGroup,
    SyncAnswer,
)
from oncelog.server.groups.state import TRANSITIONS, Event, State
from oncelog.server.groups.subscription import subscribed_topics

JOIN_PHASE = ""  # where a member's id stands in a deadline: the group's own deadlines
SYNC_PHASE = "\0"


@dataclass(slots=True)
class InitialDelay:
    """A group that was empty waits for more members (KIP-134), longer while more come, up to the rebalance timeout."""

    delay_ms: int
    remaining_ms: int
    somebody_came: bool = False


class Rebalance:
    def __init__(self, group_id: str, limits: GroupLimits, now: Now) -> None:
        self.group_id = group_id
        self.state = State.EMPTY
        self.state_since_wall_ms = now.wall_ms
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.leader: str | None = None
        self.members = Members()
        self.topics: frozenset[str] | None = None
        self.wake_ms: int | None = None  # no later than the first deadline; a heartbeat moves a deadline but not this
        self._limits = limits
        self._id_deadlines_ms: dict[str, int] = {}  # ids handed out that nobody has joined with yet
        self._unsynced: set[str] = set()
        self._join_deadline_ms: int | None = None
        self._sync_deadline_ms: int | None = None
        self._initial: InitialDelay | None = None
        self._effects: list[Effect] = []

    # From state to state

    def _move(self, event: Event, now: Now) -> None:
        self.state = TRANSITIONS[self.state][event]
        self.state_since_wall_ms = now.wall_ms

    def _rebalance_or_complete(self, now: Now) -> None:
        if Event.REBALANCE in TRANSITIONS[self.state]:
            self._prepare_rebalance(now)
        else:
            self._complete_join_if_all_are_here(now)

    def _prepare_rebalance(self, now: Now) -> None:
        if self.state is State.COMPLETING_REBALANCE:
            self._share_out({}, ErrorCode.rebalance_in_progress, now)
        self._unsynced.clear()
        self._sync_deadline_ms = None
        was_empty = self.state is State.EMPTY
        self._move(Event.REBALANCE, now)
        if was_empty:
            delay_ms = self._limits.initial_rebalance_delay_ms
            self._initial = InitialDelay(delay_ms, max(self._rebalance_timeout_ms() - delay_ms, 0))
            self._set_join_deadline(now, delay_ms)
        elif self._all_are_here():
            self._complete_join(now)
        else:
            self._set_join_deadline(now, self._rebalance_timeout_ms())

    def _complete_join_if_all_are_here(self, now: Now) -> None:
        """Not before the initial delay is over: then it is the delay that everybody waits for."""
        if self.state is State.PREPARING_REBALANCE and self._initial is None and self._all_are_here():
            self._complete_join(now)

    def _join_phase_is_over(self, now: Now) -> None:
        initial = self._initial
        if initial is not None and initial.somebody_came and initial.remaining_ms > 0:
            delay_ms = min(self._limits.initial_rebalance_delay_ms, initial.remaining_ms)
            self._initial = InitialDelay(delay_ms, max(initial.remaining_ms - initial.delay_ms, 0))
            self._set_join_deadline(now, delay_ms)
        else:
            self._complete_join(now)

    def _complete_join(self, now: Now) -> None:
        """Who did not join again is out; a static member stays until its session ends."""
        self._join_deadline_ms = None
        self._initial = None
        for member in self.members:
            if member.join_waiter is None and member.instance_id is None:
                self._remove(member.member_id)
        if not self.members:
            self._begin_empty_generation(now)
        elif self._leader_has_joined():
            self._begin_generation(now)
        else:  # only static members are left, and none of them joined
            self._set_join_deadline(now, self._rebalance_timeout_ms())

    def _begin_empty_generation(self, now: Now) -> None:
        self.generation += 1
        self.protocol_name = None
        self._note_topics()
        self._move(Event.NOBODY_JOINED, now)
        self._effects.append(Store(self.to_store()))

    def _begin_generation(self, now: Now) -> None:
        self.generation += 1
        self.protocol_name = self.members.vote()
        self._note_topics()
        self._move(Event.ALL_JOINED, now)
        for member in self.members:
            self._answer_join(member, self.current_generation(member, for_leader=True))
            member.is_new = False
            member.knows_its_id = True
            self._begin_session(member, now)
            self._unsynced.add(member.member_id)
        self._sync_deadline_ms = now.monotonic_ms + self._rebalance_timeout_ms()
        self._wake_at(self._sync_deadline_ms)

    def _sync_phase_is_over(self, now: Now) -> None:
        """Who joined but never asked for its share is out, and the others share anew."""
        self._sync_deadline_ms = None
        for member_id in sorted(self._unsynced):
            self._remove(member_id)
        self._prepare_rebalance(now)

    def _assigned(self, pending: Assigned, error: ErrorCode, now: Now) -> None:
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
                answer = self._share_of(member) if error is ErrorCode.none else SyncAnswer(error=error)
                self._answer_sync(member, answer)
                self._begin_session(member, now)

    def _leader_has_joined(self) -> bool:
        """A leader that did not join again hands over to the first member that did."""
        joined = [member.member_id for member in self.members if member.join_waiter is not None]
        if self.leader not in joined and joined:
            self.leader = joined[0]
        return bool(joined)

    # Members

    def _all_are_here(self) -> bool:
        return self.members.all_are_joining and not self._id_deadlines_ms

    def _remove(self, member_id: str) -> None:
        self._id_deadlines_ms.pop(member_id, None)
        self._unsynced.discard(member_id)
        member = self.members.remove(member_id)
        if member is None:
            return
        self._answer_removed(member, ErrorCode.unknown_member_id)
        if self.leader == member_id:
            self.leader = next((other.member_id for other in self.members), None)

    def _after_removal(self, now: Now) -> None:
        if self.state is not State.EMPTY:
            self._rebalance_or_complete(now)

    def _rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self.members), default=0)

    def _note_topics(self) -> None:
        name = self.protocol_name or ""
        self.topics = subscribed_topics(self.protocol_type, [m.protocols.get(name, b"") for m in self.members])

    # Answers

    def current_generation(self, member: Member, *, for_leader: bool, skip_assignment: bool = False) -> JoinAnswer:
        """What a member is told of this generation; the list of all goes to the leader only."""
        listed = for_leader and member.member_id == self.leader
        return JoinAnswer(
            member_id=member.member_id,
            generation=self.generation,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol_name,
            leader=self.leader or NO_LEADER,
            members=self._joined_members() if listed else (),
            skip_assignment=listed and skip_assignment,
        )

    def _joined_members(self) -> tuple[JoinedMember, ...]:
        name = self.protocol_name or ""
        return tuple(JoinedMember(m.member_id, m.instance_id, m.protocols.get(name, b"")) for m in self.members)

    def _share_of(self, member: Member) -> SyncAnswer:
        return SyncAnswer(
            protocol_type=self.protocol_type, protocol_name=self.protocol_name, assignment=member.assignment
        )

    def _answer_join(self, member: Member, answer: JoinAnswer) -> None:
        waiter = self.members.set_join_waiter(member, None)
        if waiter is not None:
            self._effects.append(Answer(waiter, answer))

    def _answer_sync(self, member: Member, answer: SyncAnswer) -> None:
        if member.sync_waiter is not None:
            self._effects.append(Answer(member.sync_waiter, answer))
            member.sync_waiter = None

    def _answer_removed(self, member: Member, error: ErrorCode) -> None:
        """The member is no longer among the members, whose counts `_answer_join` keeps."""
        if member.join_waiter is not None:
            member_id = member.member_id if error is ErrorCode.fenced_instance_id else ""
            self._effects.append(Answer(member.join_waiter, JoinAnswer(error=error, member_id=member_id)))
            member.join_waiter = None
        self._answer_sync(member, SyncAnswer(error=error))

    def _taken_effects(self) -> list[Effect]:
        effects, self._effects = self._effects, []
        return effects

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

    def _begin_session(self, member: Member, now: Now, timeout_ms: int | None = None) -> None:
        span_ms = member.session_timeout_ms if timeout_ms is None else timeout_ms
        member.session_deadline_ms = now.monotonic_ms + span_ms
        self._wake_at(member.session_deadline_ms)

    def _set_join_deadline(self, now: Now, span_ms: int) -> None:
        self._join_deadline_ms = now.monotonic_ms + span_ms
        self._wake_at(self._join_deadline_ms)

    def _wake_at(self, deadline_ms: int) -> None:
        if self.wake_ms is None or deadline_ms < self.wake_ms:
            self.wake_ms = deadline_ms

    def _deadlines(self) -> Iterator[tuple[int, str]]:
        if self._join_deadline_ms is not None:
            yield self._join_deadline_ms, JOIN_PHASE
        if self._sync_deadline_ms is not None:
            yield self._sync_deadline_ms, SYNC_PHASE
        for member_id, deadline_ms in self._id_deadlines_ms.items():
            yield deadline_ms, member_id
        for member in self.members:
            if member.session_deadline_ms is not None:
                yield member.session_deadline_ms, member.member_id

    def _expire(self, deadline_ms: int, member_id: str, now: Now) -> None:
        """One deadline that has passed, unless what passed before it has moved it."""
        if member_id == JOIN_PHASE:
            if self._join_deadline_ms == deadline_ms:
                self._join_phase_is_over(now)
        elif member_id == SYNC_PHASE:
            if self._sync_deadline_ms == deadline_ms:
                self._sync_phase_is_over(now)
        elif self._id_deadlines_ms.get(member_id) == deadline_ms:
            self._remove(member_id)
            self._complete_join_if_all_are_here(now)
        else:
            self._expire_session(deadline_ms, member_id, now)

    def _expire_session(self, deadline_ms: int, member_id: str, now: Now) -> None:
        member = self.members.get(member_id)
        if member is None or member.session_deadline_ms != deadline_ms:
            return
        member.session_deadline_ms = None
        if member.is_waiting and not member.is_new:
            return  # it waits for us, so it is alive; its session begins anew with the answer
        self._remove(member_id)
        self._after_removal(now)
