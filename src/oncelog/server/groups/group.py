"""One group of members that share the partitions of some topics: Kafka's classic protocol, as a pure state machine.

A message and the time go in; answers and things to store come out. Nothing here reads a clock, sets a timer or waits:
`wake_ms` says when `tick` wants to be called next, and an answer names the waiter that it is for. The states and what
leads from one to the next are in `state.py` and `rebalance.py`; here is what each message does.

Beside the original protocol this keeps KIP-62 (rebalance timeout), KIP-134 (initial delay), KIP-345 (static members),
KIP-394 (members must know their id), KIP-559 (protocol type and name), KIP-814 (a static leader may skip the
assignment). KIP-429 (cooperative rebalancing) happens between the clients.
"""

from collections.abc import Iterable

from oncelog.clock import Now
from oncelog.server.errors import ErrorCode
from oncelog.server.groups.member import Member
from oncelog.server.groups.messages import (
    MEMBER_BYTES,
    NO_MEMBER_ID,
    Answer,
    Assigned,
    Effect,
    GroupLimits,
    JoinAnswer,
    JoinRequest,
    Leaving,
    Left,
    Replaced,
    StoredGroup,
    SyncAnswer,
    SyncRequest,
    Waiter,
)
from oncelog.server.groups.rebalance import Rebalance
from oncelog.server.groups.state import HEARTBEAT_ANSWERS, State
from oncelog.server.groups.subscription import CONSUMER_PROTOCOL


class Group:
    def __init__(self, group_id: str, limits: GroupLimits, now: Now, made_by: str = "") -> None:
        self.group_id = group_id
        self.made_by = made_by  # the host of the client, where it is known
        self._limits = limits
        self._rebalance = rebalance = Rebalance(limits, now)
        self._deadlines = rebalance.deadlines
        self._outbox = rebalance.outbox
        self.members = rebalance.members
        self._assigned_bytes = 0  # of the assignments that were last stored

    @classmethod
    def restore(cls, group_id: str, stored: StoredGroup, limits: GroupLimits, now: Now) -> "Group":
        group = cls(group_id, limits, now)
        group._rebalance.restore(stored, now)
        group.note_assigned(stored)
        return group

    @classmethod
    def moved(
        cls, group_id: str, generation: int, members: Iterable[Member], limits: GroupLimits, now: Now, made_by: str
    ) -> "Group":
        """The group as it was in the other protocol."""
        group = cls(group_id, limits, now, made_by)
        group._rebalance.take_over(generation, members, now)
        return group

    def note_assigned(self, stored: StoredGroup) -> None:
        self._assigned_bytes = stored.assigned_bytes

    def growth_bytes(self, stored: StoredGroup) -> int:
        """The bytes more that would be held with what is assigned there."""
        return stored.assigned_bytes - self._assigned_bytes

    # What others may ask without changing anything

    @property
    def state(self) -> State:
        return self._rebalance.state

    @property
    def state_since_wall_ms(self) -> int:
        return self._rebalance.state_since_wall_ms

    @property
    def generation(self) -> int:
        return self._rebalance.generation

    @property
    def protocol_type(self) -> str | None:
        return self._rebalance.protocol_type

    @property
    def protocol_name(self) -> str | None:
        return self._rebalance.protocol_name

    @property
    def leader(self) -> str | None:
        return self._rebalance.leader

    @property
    def topics(self) -> frozenset[str] | None:
        return self._rebalance.topics

    @property
    def wake_ms(self) -> int | None:
        """The time at which `tick` wants to be called next."""
        return self._deadlines.wake_ms

    @property
    def held_bytes(self) -> int:
        """The bytes that clients made it keep, about."""
        pending = MEMBER_BYTES * len(self._deadlines.ids_ms)
        return pending + (self.members.held_bytes + self._assigned_bytes if self.members else 0)

    @property
    def is_empty(self) -> bool:
        return self.state is State.EMPTY

    @property
    def tells_topics(self) -> bool:
        """Whether what is not among its topics is not read by its members."""
        is_known = self.protocol_type == CONSUMER_PROTOCOL and self.topics is not None
        return self.state is State.STABLE and is_known

    @property
    def has_pending_ids(self) -> bool:
        return bool(self._deadlines.ids_ms)

    @property
    def is_simple(self) -> bool:
        """Whether it has only offsets, committed by consumers that assign partitions to themselves."""
        return self.protocol_type is None

    def is_subscribed_to(self, topic: str) -> bool:
        if self.topics is not None:
            return topic in self.topics
        return self.protocol_type == CONSUMER_PROTOCOL  # unreadable subscriptions: take no risk

    def check_member(self, member_id: str, instance_id: str | None) -> ErrorCode:
        if instance_id is not None:
            known_as = self.members.id_of_instance(instance_id)
            if known_as is None:
                return ErrorCode.unknown_member_id
            if known_as != member_id:
                return ErrorCode.fenced_instance_id
        return ErrorCode.none if member_id in self.members else ErrorCode.unknown_member_id

    def check_delete_offsets(self) -> ErrorCode:
        """A group of consumers says which topics are in use; of others it is not known, so they must be empty."""
        if self.state is State.DEAD:
            return ErrorCode.group_id_not_found
        if self.state is State.EMPTY or self.protocol_type == CONSUMER_PROTOCOL:
            return ErrorCode.none
        return ErrorCode.non_empty_group

    def to_store(self) -> StoredGroup:
        return self._rebalance.to_store()

    # Messages

    def share_anew(self, now: Now) -> list[Effect]:
        self._rebalance.rebalance_or_complete(now)
        return self._outbox.take()

    def join(self, request: JoinRequest, waiter: Waiter, now: Now) -> list[Effect]:
        answer = self._join(request, waiter, now)
        if answer is not None:
            self._outbox.put(Answer(waiter, answer))
        return self._outbox.take()

    def sync(self, request: SyncRequest, waiter: Waiter, now: Now) -> list[Effect]:
        error = self._check_sync(request)
        if error is not ErrorCode.none:
            self._outbox.put(Answer(waiter, SyncAnswer(error=error)))
            return self._outbox.take()
        member = self.members[request.member_id]
        self._rebalance.synced(member)
        if self.state is State.STABLE:
            self._outbox.put(Answer(waiter, self._rebalance.share_of(member)))
        else:
            self._outbox.answer_sync(member, SyncAnswer(error=ErrorCode.rebalance_in_progress))
            self.members.set_sync_waiter(member, waiter)
            if member.member_id == self.leader:
                self._rebalance.share_out(request.assignments)
        return self._outbox.take()

    def heartbeat(self, member_id: str, instance_id: str | None, generation: int, now: Now) -> ErrorCode:
        if self.state is State.DEAD:
            return HEARTBEAT_ANSWERS[State.DEAD]
        error = self._check_generation(member_id, instance_id, generation)
        if error is not ErrorCode.none:
            return error
        self._deadlines.begin_session(self.members[member_id], now)
        return HEARTBEAT_ANSWERS[self.state]

    def check_commit(
        self, member_id: str, instance_id: str | None, generation: int, now: Now, places: object = None
    ) -> ErrorCode:
        """May these offsets be committed? A member that commits is alive."""
        if self.state is State.DEAD:
            return ErrorCode.coordinator_not_available
        if generation < 0 and self.state is State.EMPTY:
            return ErrorCode.none
        error = self._check_generation(member_id, instance_id, generation)
        if error is not ErrorCode.none:
            return error
        if self.state is State.COMPLETING_REBALANCE:
            return ErrorCode.rebalance_in_progress
        self._deadlines.begin_session(self.members[member_id], now)
        return ErrorCode.none

    def leave(self, leavings: Iterable[Leaving], now: Now) -> tuple[list[Left], list[Effect]]:
        members_before = len(self.members)
        left = [Left(leaving, self._leave(leaving)) for leaving in leavings]
        if len(self.members) < members_before:
            self._rebalance.after_removal(now)
        else:  # an id that was never joined with; those who waited for it may go on
            self._rebalance.complete_join_if_all_are_here(now)
        return left, self._outbox.take()

    def stored(self, pending: Assigned | Replaced, error: ErrorCode, now: Now) -> list[Effect]:
        """Take in that changes were stored, or could not be."""
        if isinstance(pending, Assigned):
            self._rebalance.assigned(pending, error, now)
        else:
            self._rebalance.replaced(pending, error, now)
        return self._outbox.take()

    def abandon(self, waiter: Waiter, now: Now) -> list[Effect]:
        """The client that waited has hung up. A member that knows its id may come back within a session timeout."""
        member = self.members.who_waits(waiter)
        if member is not None and member.join_waiter == waiter:
            self.members.set_join_waiter(member, None)
            if member.knows_its_id or member.instance_id is not None:
                self._deadlines.begin_session(member, now)
            else:
                self._rebalance.remove(member.member_id)
                self._rebalance.after_removal(now)
        elif member is not None:
            self.members.set_sync_waiter(member, None)
            self._deadlines.begin_session(member, now)
        return self._outbox.take()

    def tick(self, now: Now) -> list[Effect]:
        """The deadlines that have passed, in the order in which they passed; very many take several calls."""
        self._rebalance.expire_passed(now)
        return self._outbox.take()

    def kill(self, error: ErrorCode) -> list[Effect]:
        self._rebalance.end(error)
        return self._outbox.take()

    # Joining

    def _join(self, request: JoinRequest, waiter: Waiter, now: Now) -> JoinAnswer | None:
        """The answer, or None when it comes later."""
        member_id = request.member_id
        if self.state is State.DEAD:
            return JoinAnswer(error=ErrorCode.coordinator_not_available, member_id=member_id)
        if not self._has_room_for(member_id):
            self._rebalance.remove(member_id)
            self._rebalance.complete_join_if_all_are_here(now)
            return JoinAnswer(error=ErrorCode.group_max_size_reached)
        if not self._supports(request):
            return JoinAnswer(error=ErrorCode.inconsistent_group_protocol, member_id=member_id)
        if member_id == NO_MEMBER_ID:
            return self._join_without_id(request, waiter, now)
        if member_id in self._deadlines.ids_ms and request.instance_id is None:
            self._rebalance.add(request, member_id, waiter, now)
            return None
        error = self.check_member(member_id, request.instance_id)
        if error is not ErrorCode.none:
            return JoinAnswer(error=error, member_id=member_id)
        return self._join_again(self.members[member_id], request, waiter, now)

    def _join_without_id(self, request: JoinRequest, waiter: Waiter, now: Now) -> JoinAnswer | None:
        former_id = self.members.id_of_instance(request.instance_id)
        if former_id is not None:
            self._rebalance.replace(former_id, request, waiter, now)
            return None
        if request.instance_id is not None or not request.needs_known_id:
            self._rebalance.add(request, request.fresh_id, waiter, now)
            return None
        if len(self._deadlines.ids_ms) >= self._limits.max_pending_members:
            return JoinAnswer(error=ErrorCode.group_max_size_reached)
        self._deadlines.hand_out(request.fresh_id, now.monotonic_ms + request.session_timeout_ms)
        return JoinAnswer(error=ErrorCode.member_id_required, member_id=request.fresh_id)

    def _join_again(self, member: Member, request: JoinRequest, waiter: Waiter, now: Now) -> JoinAnswer | None:
        unchanged = member.has_protocols(request.protocols)
        if self.state is State.COMPLETING_REBALANCE and unchanged:
            return self._rebalance.current_generation(member, for_leader=True)  # it missed the answer the first time
        if self.state is State.STABLE and unchanged and member.member_id != self.leader:
            return self._rebalance.current_generation(member, for_leader=False)
        # A leader that joins again knows why: the topics may have changed.
        self._rebalance.join_again(member, request, waiter, now)
        return None

    def _has_room_for(self, member_id: str) -> bool:
        """Whether there is room. While members join again, those that waited longest keep their place; else those that
        are in the generation."""
        if self.state is State.EMPTY:
            return True
        member = self.members.get(member_id)
        if self.state is State.PREPARING_REBALANCE:
            is_waiting = member is not None and member.join_waiter is not None
            return is_waiting or self.members.joining < self._limits.max_members
        return member is not None or len(self.members) < self._limits.max_members

    def _supports(self, request: JoinRequest) -> bool:
        if self.state is State.EMPTY:
            return bool(request.protocol_type and request.protocols)
        same_type = self.protocol_type == request.protocol_type
        return same_type and self.members.have_in_common(name for name, _ in request.protocols)

    # Checks

    def _check_generation(self, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
        error = self.check_member(member_id, instance_id)
        if error is ErrorCode.none and generation != self.generation:
            return ErrorCode.illegal_generation
        return error

    def _check_sync(self, request: SyncRequest) -> ErrorCode:
        if self.state is State.DEAD:
            return ErrorCode.coordinator_not_available
        error = self._check_generation(request.member_id, request.instance_id, request.generation)
        if error is not ErrorCode.none:
            return error
        if request.protocol_type not in (None, self.protocol_type):
            return ErrorCode.inconsistent_group_protocol
        if self.state is State.PREPARING_REBALANCE:
            return ErrorCode.rebalance_in_progress  # after a move from KIP-848 it was told another protocol's name
        if request.protocol_name not in (None, self.protocol_name) and self.protocol_name is not None:
            return ErrorCode.inconsistent_group_protocol
        return ErrorCode.none

    # Leaving

    def _leave(self, leaving: Leaving) -> ErrorCode:
        member_id = leaving.member_id
        if self.state is State.DEAD:
            return ErrorCode.coordinator_not_available
        if member_id == NO_MEMBER_ID:  # an administrator removes a static member by its name
            known_as = self.members.id_of_instance(leaving.instance_id)
            if known_as is None:
                return ErrorCode.unknown_member_id
            member_id = known_as
        elif member_id not in self._deadlines.ids_ms:
            error = self.check_member(member_id, leaving.instance_id)
            if error is not ErrorCode.none:
                return error
        self._rebalance.remove(member_id)
        return ErrorCode.none
