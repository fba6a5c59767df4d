"""One group of KIP-848, as a pure state machine: its members say what they read and what they have, and the group says
who is to have what.

A heartbeat and the time go in; an answer comes out, and the changes that are to be stored before anybody hears of it
(`members.done`). Three epochs tell how far it is: the group's grows when its members or what they read change; the
target's is that of the group for which it was computed; a member's is that of the target that it has come to.
`reconciling.py` has how a member comes there.
"""

from collections.abc import Callable, Iterable
from itertools import islice

from oncelog.clock import Now
from oncelog.server.errors import ErrorCode, KafkaError
from oncelog.server.groups.consumer.classic import ClassicMembers
from oncelog.server.groups.consumer.place_sharing import Sharing
from oncelog.server.groups.consumer.topics import KnownTopics
from oncelog.server.groups.consumer.values import (
    JOINS,
    LEAVES,
    LEAVES_FOR_A_WHILE,
    NEW,
    Beat,
    BeatAnswer,
    ConsumerState,
    Current,
    LimitsOf,
    MemberCurrent,
    Place,
    Said,
)
from oncelog.server.groups.messages import Effect, Leaving, Left
from oncelog.server.groups.subscription import CONSUMER_PROTOCOL

FENCED_AT_A_TIME = 20  # members whose time is over: each is three records


class ConsumerGroup:
    protocol_type = CONSUMER_PROTOCOL
    leader: str | None = None  # it is the coordinator that says who is to have what
    is_simple = False
    has_pending_ids = False
    tells_topics = True

    def __init__(self, group_id: str, limits_of: LimitsOf, made_by: str = "") -> None:
        self.group_id = group_id
        self.made_by = made_by
        self.sharing = Sharing(group_id, limits_of)
        self.members = self.sharing.members
        self.classic = ClassicMembers(self.sharing)
        self._is_dead = False

    # What others may ask without changing anything

    @property
    def state(self) -> ConsumerState:
        if self._is_dead:
            return ConsumerState.DEAD
        if not self.members:
            return ConsumerState.EMPTY
        if self.members.epoch > self.members.target_epoch:
            return ConsumerState.ASSIGNING
        return ConsumerState.STABLE if self.members.is_reconciled else ConsumerState.RECONCILING

    @property
    def is_empty(self) -> bool:
        return not self.members

    @property
    def has_nothing(self) -> bool:
        """Whether the log has nothing of it that is to be taken out, beside offsets."""
        return not self.members and not self.members.epoch

    @property
    def state_since_wall_ms(self) -> int:
        return self.sharing.state_since_wall_ms

    @property
    def generation(self) -> int:
        return self.members.epoch

    @property
    def protocol_name(self) -> str:
        return self.sharing.assignor

    @property
    def topics(self) -> frozenset[str]:
        return self.members.topics

    def is_subscribed_to(self, topic: str) -> bool:
        return self.members.reads(topic)

    @property
    def held_bytes(self) -> int:
        return self.members.held_bytes

    @property
    def wake_ms(self) -> int | None:
        return self.sharing.sessions.wake_ms

    def is_classic(self, member_id: str) -> bool:
        """Whether it is a member that speaks the classic protocol."""
        said = self.members.said.get(member_id)
        return said is not None and said.classic is not None

    def check_commit(
        self, member_id: str, instance_id: str | None, epoch: int, now: Now, places: Callable[[], Iterable[Place]]
    ) -> ErrorCode:
        """Check a commit. A member that has not heard of its newer epoch yet may commit for what it has had since the
        one that it says (KIP-1251); `places` are looked at only then."""
        if epoch < 0 and not self.members:
            return ErrorCode.none
        error, current = self.check_fetch(member_id, epoch), self.members.current_of(member_id)
        if error in (ErrorCode.none, ErrorCode.unknown_member_id) or epoch > current.epoch:
            return error
        has_had = all(epoch >= current.since(place) for place in places())
        return ErrorCode.none if has_had else error

    def check_fetch(self, member_id: str | None, epoch: int) -> ErrorCode:
        if member_id is None or member_id not in self.members.said:
            return ErrorCode.unknown_member_id
        if self.members.current_of(member_id).epoch == epoch:
            return ErrorCode.none
        return ErrorCode.illegal_generation if self.is_classic(member_id) else ErrorCode.stale_member_epoch

    def check_delete_offsets(self) -> ErrorCode:
        return ErrorCode.none

    # Heartbeats

    def heartbeat(self, beat: Beat, topics: KnownTopics, now: Now) -> BeatAnswer:
        """Raises KafkaError; nothing is changed then."""
        if beat.epoch in (LEAVES, LEAVES_FOR_A_WHILE):
            return self._leave(beat, topics, now)
        if beat.member_id not in self.members.said and beat.instance_id not in self.members.instances:
            self.sharing.check_room(now, joins=beat.epoch == JOINS)
        former = self._member(beat)
        said = self._said(beat)
        current = self.sharing.come_on(beat.member_id, said, beat.owned, topics, now)
        self.sharing.watch(beat.member_id, said, former, current, now)
        is_told = beat.says_all or current.assigned.keys() != former.assigned.keys()
        return BeatAnswer(
            member_id=beat.member_id,
            epoch=current.epoch,
            heartbeat_interval_ms=self.sharing.limits.heartbeat_interval_ms,
            assigned=frozenset(current.assigned) if is_told else None,
        )

    def tick(self, now: Now) -> list[Effect]:
        return []

    def fence_late(self, topics: KnownTopics, now: Now) -> None:
        """Some of the members whose session is over, or who did not give up in time what they were to: `wake_ms` says
        when to look at the rest."""
        late = list(islice(self.sharing.sessions.passed(now.monotonic_ms), FENCED_AT_A_TIME))
        gone = [each for each in late if each in self.members.said]
        for member_id in late:
            if member_id not in self.members.said:
                self.sharing.sessions.end(member_id)  # its join could not be stored
        self.sharing.remove(gone, topics, now)

    def kill(self, error: ErrorCode) -> list[Effect]:
        self._is_dead = True
        return []

    # Who it is

    def _member(self, beat: Beat) -> Current:
        """The member as it stands before anything is done for it."""
        if beat.instance_id is None:
            if beat.member_id not in self.members.said:
                if beat.epoch == JOINS:
                    return NEW
                raise _unknown(beat.member_id, self.group_id)
            current = self.members.current_of(beat.member_id)
            _check_epoch(beat, current)
            return current
        known_as = self.members.instances.get(beat.instance_id)
        if beat.epoch == JOINS:
            return NEW if known_as is None else self._take_over(known_as, beat)
        self.members.check_instance(beat.instance_id, beat.member_id)
        current = self.members.current_of(beat.member_id)
        _check_epoch(beat, current)
        return current

    def _take_over(self, known_as: str, beat: Beat) -> Current:
        """A static member came back. Nobody waits for one of the classic protocol to say that it went."""
        current = self.members.current_of(known_as)
        if current.epoch != LEAVES_FOR_A_WHILE and self.members.said[known_as].classic is None:
            if known_as == beat.member_id:
                # It has not heard that it is a member, or was fenced. (Kafka refuses it, which ends it.)
                return current
            raise KafkaError(
                ErrorCode.unreleased_instance_id,
                f"Static member {beat.member_id} with instance id {beat.instance_id} cannot join the group because the "
                f"instance id is owned by {known_as} member.",
            )
        return self.sharing.take_over(known_as, beat.member_id)

    def _said(self, beat: Beat) -> Said:
        before = self.members.said.get(beat.member_id, Said())
        pattern = before.pattern if beat.pattern is None else beat.pattern or None
        return Said(
            instance_id=before.instance_id if beat.instance_id is None else beat.instance_id,
            rack_id=before.rack_id if beat.rack_id is None else beat.rack_id,
            client_id=beat.client_id,
            client_host=beat.client_host,
            topics=before.topics if beat.topics is None else tuple(sorted(set(beat.topics))),
            pattern=pattern,
            rebalance_timeout_ms=before.rebalance_timeout_ms
            if beat.rebalance_timeout_ms == -1
            else beat.rebalance_timeout_ms,
            assignor=before.assignor if beat.assignor is None else beat.assignor,
        )

    # Leaving

    def _leave(self, beat: Beat, topics: KnownTopics, now: Now) -> BeatAnswer:
        if beat.instance_id is not None:
            self.members.check_instance(beat.instance_id, beat.member_id)
        elif beat.member_id not in self.members.said:
            raise _unknown(beat.member_id, self.group_id)
        if beat.epoch == LEAVES_FOR_A_WHILE:
            current = self.members.current_of(beat.member_id)
            away = Current(
                epoch=LEAVES_FOR_A_WHILE,
                previous_epoch=current.previous_epoch,
                state=current.state,
                assigned=current.assigned,
                revoking={},
            )
            self.members.do(MemberCurrent(beat.member_id, away))
            self.sharing.sessions.acted(beat.member_id)
        else:
            self.sharing.remove([beat.member_id], topics, now)
        return BeatAnswer(member_id=beat.member_id, epoch=beat.epoch)

    def leave(self, leavings: Iterable[Leaving], topics: KnownTopics, now: Now) -> list[Left]:
        """Send members away, as an administrator does, who may know of a static member its name alone."""
        gone: dict[str, None] = {}
        left = []
        for each in leavings:
            known_as = each.member_id if each.instance_id is None else self.members.instances.get(each.instance_id)
            error = ErrorCode.none
            if known_as is None or known_as not in self.members.said or known_as in gone:
                error = ErrorCode.unknown_member_id
            elif each.member_id not in ("", known_as):
                error = ErrorCode.fenced_instance_id
            else:
                gone[known_as] = None
            left.append(Left(each, error))
        self.sharing.remove(gone, topics, now)
        return left


def _unknown(member_id: str, group_id: str) -> KafkaError:
    return KafkaError(ErrorCode.unknown_member_id, f"Member {member_id} is not a member of group {group_id}.")


def _check_epoch(beat: Beat, current: Current) -> None:
    """A member whose last answer was lost says the epoch before: only the places that it has tell whether it may go
    on."""
    if beat.epoch == current.epoch or beat.epoch == JOINS:
        return
    may_be_lost = beat.epoch == current.previous_epoch and beat.epoch < current.epoch
    if may_be_lost and beat.owned is not None and beat.owned <= current.assigned.keys():
        return
    than = "smaller" if beat.epoch < current.epoch else "greater"
    raise KafkaError(
        ErrorCode.fenced_member_epoch,
        f"The consumer group member has a {than} member epoch ({beat.epoch}) than the one known by the group "
        f"coordinator ({current.epoch}). The member must abandon all its partitions and rejoin.",
    )
