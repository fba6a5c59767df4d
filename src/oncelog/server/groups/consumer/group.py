"""One group of KIP-848, as a pure state machine: its members say what they read and what they have, and the group says
who is to have what.

A heartbeat and the time go in; an answer comes out, and the changes that are to be stored before anybody hears of it
(`members.take`). Three epochs tell how far it is: the group's grows when its members or what they read change; the
target's is that of the group for which it was computed; a member's is that of the target that it has come to.
`reconciling.py` has how a member comes there.
"""

from collections.abc import Collection, Iterable, Iterator
from itertools import islice

from oncelog.clock import Now
from oncelog.server.errors import ErrorCode, KafkaError
from oncelog.server.groups.consumer.assignors import ASSIGNORS, Subscriber
from oncelog.server.groups.consumer.members import Members
from oncelog.server.groups.consumer.reconciling import reconciled
from oncelog.server.groups.consumer.sessions import Sessions
from oncelog.server.groups.consumer.topics import KnownTopics, topics_hash
from oncelog.server.groups.consumer.values import (
    JOINS,
    LEAVES,
    LEAVES_FOR_A_WHILE,
    NEW,
    Beat,
    BeatAnswer,
    Change,
    ConsumerLimits,
    ConsumerState,
    Current,
    GroupEpoch,
    MemberCurrent,
    MemberSaid,
    MemberState,
    Pattern,
    Place,
    Resolved,
    Said,
    Target,
    TargetEpoch,
)
from oncelog.server.groups.messages import Effect, Leaving, Left
from oncelog.server.groups.subscription import CONSUMER_PROTOCOL

FIRST_EPOCH = 2  # as in Kafka
FENCED_AT_A_TIME = 20  # members whose time is over: each is three records
RESOLVED_MS = 600_000  # as in Kafka
TOO_LARGE_MS = 60_000  # so long nothing is shared anew where that was more than can be stored
MEMBERS_A_MS = 10  # in a group of so many times as many, targets are computed no more often than that


class ConsumerGroup:
    protocol_type = CONSUMER_PROTOCOL
    leader: str | None = None  # it is the coordinator that says who is to have what
    is_simple = False
    has_pending_ids = False
    tells_topics = True

    def __init__(self, group_id: str, limits: ConsumerLimits, made_by: str = "") -> None:
        self.group_id = group_id
        self.made_by = made_by
        self.members = Members()
        self.state_since_wall_ms = 0  # since when it is empty, where that was seen
        self._limits = limits
        self._sessions = Sessions()
        self._target_ms: int | None = None  # when the target was computed here
        self._seen_revision = -1
        self._resolved_at: dict[str, tuple[int, int]] = {}  # patterns: by which revision of the topics, and when
        self._small_ms = 0  # from when on it may be tried again to share anew
        self._is_dead = False

    def restored(self, now: Now) -> None:
        """All was applied that is stored. Its members have one session to be heard of."""
        for member_id, said in self.members.said.items():
            self._sessions.begin(member_id, now.monotonic_ms + self._limits.session_timeout_ms)
            self._watch(member_id, said, NEW, self.members.current_of(member_id), now)

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
        """To be taken out of the log, beside offsets."""
        return not self.members and not self.members.epoch

    @property
    def assignor(self) -> str:
        asked = self.members.assignor  # another server may have stored one that is not known here
        return self._limits.assignors[0] if asked is None or asked not in ASSIGNORS else asked

    @property
    def _next_epoch(self) -> int:
        return max(self.members.epoch, FIRST_EPOCH - 1) + 1

    @property
    def generation(self) -> int:
        return self.members.epoch

    @property
    def protocol_name(self) -> str:
        return self.assignor

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
        return self._sessions.wake_ms

    def has_resolved(self, pattern: str, revision: int, now: Now) -> bool:
        """Once in a while it looks again: its members may know of other topics by then."""
        at, found_ms = self._resolved_at.get(pattern, (-1, 0))
        is_recent = now.monotonic_ms - found_ms < RESOLVED_MS
        return at == revision and is_recent and pattern in self.members.patterns

    def check_commit(self, member_id: str, instance_id: str | None, epoch: int, now: Now) -> ErrorCode:
        if epoch < 0 and not self.members:
            return ErrorCode.none
        return self.check_fetch(member_id, epoch)

    def check_fetch(self, member_id: str | None, epoch: int) -> ErrorCode:
        if member_id is None or member_id not in self.members.said:
            return ErrorCode.unknown_member_id
        is_current = self.members.current_of(member_id).epoch == epoch
        return ErrorCode.none if is_current else ErrorCode.stale_member_epoch

    def check_delete_offsets(self) -> ErrorCode:
        return ErrorCode.none

    def tombstones(self) -> Iterator[Change]:
        """What takes the group out of the log: it has no members."""
        for pattern in self.members.patterns:
            yield Pattern(pattern, None)
        yield TargetEpoch(None)
        yield GroupEpoch(None)

    # Heartbeats

    def heartbeat(self, beat: Beat, topics: KnownTopics, now: Now) -> BeatAnswer:
        """Raises KafkaError; nothing is changed then."""
        if beat.epoch in (LEAVES, LEAVES_FOR_A_WHILE):
            return self._leave(beat, topics, now)
        self._check_room(beat, now)
        former = self._member(beat)
        said = self._said(beat)
        is_bumped = self._listen(beat.member_id, said, topics, now)
        if is_bumped or topics.revision != self._seen_revision:
            found = topics_hash(self.members.topics, topics)
            if is_bumped or found != self.members.topics_hash:
                self.members.do(GroupEpoch(self._next_epoch, found))
            self._seen_revision = topics.revision
        if self.members.epoch > self.members.target_epoch and self._may_assign(now):
            self._assign(topics, now)
        current = self._reconcile(beat, said, topics)
        self._sessions.begin(beat.member_id, now.monotonic_ms + self._limits.session_timeout_ms)
        self._watch(beat.member_id, said, former, current, now)
        is_told = beat.says_all or current.assigned.keys() != former.assigned.keys()
        return BeatAnswer(
            member_id=beat.member_id,
            epoch=current.epoch,
            heartbeat_interval_ms=self._limits.heartbeat_interval_ms,
            assigned=frozenset(current.assigned) if is_told else None,
        )

    def tick(self, now: Now) -> list[Effect]:
        return []

    def fence_late(self, topics: KnownTopics, now: Now) -> bool:
        """Some of the members whose session is over, or who did not give up in time what they were to. True where there
        may be more."""
        late = list(islice(self._sessions.passed(now.monotonic_ms), FENCED_AT_A_TIME))
        gone = [each for each in late if each in self.members.said]
        for member_id in late:
            if member_id not in self.members.said:
                self._sessions.end(member_id)  # its join could not be stored
        self._remove(gone, topics, now)
        return len(late) == FENCED_AT_A_TIME

    def kill(self, error: ErrorCode) -> list[Effect]:
        self._is_dead = True
        return []

    def take_back(self, now: Now) -> None:
        """What was done last could not be stored. Who was sent away by it has another session, and who is to give up
        places again has its whole time for it."""
        self.members.take_back()
        self._seen_revision, self._target_ms = -1, None
        self._resolved_at.clear()
        for member_id, said in self.members.said.items():
            if not self._sessions.has(member_id):
                self._sessions.begin(member_id, now.monotonic_ms + self._limits.session_timeout_ms)
            current = self.members.current_of(member_id)
            self._watch(member_id, said, current if self._sessions.is_revoking(member_id) else NEW, current, now)

    def is_too_large(self, now: Now) -> bool:
        return now.monotonic_ms < self._small_ms

    def note_too_large(self, now: Now) -> None:
        """Its members are to have more than can be stored, as one of them was heard of."""
        self._small_ms = now.monotonic_ms + TOO_LARGE_MS

    # Who it is

    def _check_room(self, beat: Beat, now: Now) -> None:
        if beat.member_id in self.members.said or self._takes_over(beat):
            return
        if beat.epoch == JOINS and self.is_too_large(now):
            raise KafkaError(ErrorCode.group_max_size_reached, "What its members are to have is too much to be stored.")
        if len(self.members) >= self._limits.max_members:
            raise KafkaError(
                ErrorCode.group_max_size_reached,
                f"The consumer group has reached its maximum capacity of {self._limits.max_members} members.",
            )

    def _takes_over(self, beat: Beat) -> bool:
        return beat.instance_id is not None and beat.instance_id in self.members.instances

    def _member(self, beat: Beat) -> Current:
        """Where it stands, before anything is done for it."""
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
        _check_instance(beat, known_as)
        current = self.members.current_of(beat.member_id)
        _check_epoch(beat, current)
        return current

    def _take_over(self, known_as: str, beat: Beat) -> Current:
        """A static member came back, under another id or the same: it goes on with what it had."""
        members, current = self.members, self.members.current_of(known_as)
        if current.epoch != LEAVES_FOR_A_WHILE:
            raise KafkaError(
                ErrorCode.unreleased_instance_id,
                f"Static member {beat.member_id} with instance id {beat.instance_id} cannot join the group because the "
                f"instance id is owned by {known_as} member.",
            )
        said, target = members.said[known_as], members.target_of(known_as)
        self._forget(known_as)
        again = Current(assigned=current.assigned, revoking=current.revoking, state=current.state)
        members.do(MemberSaid(beat.member_id, said))
        members.do(Target(beat.member_id, target))
        members.do(MemberCurrent(beat.member_id, again))
        return again

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

    def _listen(self, member_id: str, said: Said, topics: KnownTopics, now: Now) -> bool:
        """What it says, and what its pattern finds. True where what it reads has changed."""
        before = self.members.said.get(member_id)
        is_bumped = before is None or (before.topics, before.pattern) != (said.topics, said.pattern)
        if before != said:
            self.members.do(MemberSaid(member_id, said))
        if before is not None and before.pattern is not None and not self.members.uses(before.pattern):
            self._forget_pattern(before.pattern)
        if said.pattern is not None:
            is_bumped = self._resolve(said.pattern, topics, now) or is_bumped
        return is_bumped

    def _resolve(self, pattern: str, topics: KnownTopics, now: Now) -> bool:
        if self.has_resolved(pattern, topics.revision, now):
            return False
        known, found = self.members.patterns.get(pattern), topics.matching(pattern)
        if known is not None and found.revision < self._resolved_at.get(pattern, (-1, 0))[0]:
            return False  # another member has seen later ones
        self._resolved_at[pattern] = found.revision, now.monotonic_ms
        if known is not None and known.topics == found.names:
            return False
        self.members.do(Pattern(pattern, Resolved(found.names, found.revision, now.wall_ms)))
        return True

    def _forget_pattern(self, pattern: str) -> None:
        self._resolved_at.pop(pattern, None)
        if pattern in self.members.patterns:
            self.members.do(Pattern(pattern, None))

    # What each is to have

    def _may_assign(self, now: Now) -> bool:
        """The first time at once; in a large group not for each of those who come one after the other."""
        pause_ms = max(self._limits.assignment_interval_ms, len(self.members) // MEMBERS_A_MS)
        if self.is_too_large(now):
            return False
        return self._target_ms is None or now.monotonic_ms - self._target_ms >= pause_ms

    def _assign(self, topics: KnownTopics, now: Now) -> None:
        members = self.members
        counts: dict[bytes, int] = {}
        subscribers: list[Subscriber] = []
        ids_of: dict[tuple[tuple[str, ...], str | None], frozenset[bytes]] = {}  # most members read the same
        for member_id, said in members.said.items():
            key = (said.topics, said.pattern)
            ids = ids_of.get(key)
            if ids is None:
                known = [each for each in map(topics.get, members.topics_of(said)) if each is not None]
                counts.update((each.topic_id, each.partitions) for each in known)
                ids = ids_of[key] = frozenset(each.topic_id for each in known)
            subscribers.append(Subscriber(member_id, said.instance_id, ids, members.target_of(member_id)))
        for member_id, places in ASSIGNORS[self.assignor](subscribers, counts).items():
            if places != members.target_of(member_id) or member_id not in members.target:
                members.do(Target(member_id, places))
        members.do(TargetEpoch(members.epoch, now.wall_ms))
        self._target_ms = now.monotonic_ms

    def _reconcile(self, beat: Beat, said: Said, topics: KnownTopics) -> Current:
        members, member_id = self.members, beat.member_id
        former, target = members.current_of(member_id), members.target_of(member_id)
        is_narrower = members.epoch > members.target_epoch
        if is_narrower:
            names = members.topics_of(said)
            ids = {each.topic_id for each in map(topics.get, names) if each is not None}
            target = frozenset(place for place in target if place.topic_id in ids)

        def is_taken(place: Place) -> bool:
            return members.owner(place) not in (None, member_id)

        current = reconciled(former, members.target_epoch, target, beat.owned, is_taken, is_narrower=is_narrower)
        if current != former or member_id not in members.current:
            members.do(MemberCurrent(member_id, current))
        return current

    def _watch(self, member_id: str, said: Said, former: Current, current: Current, now: Now) -> None:
        """How long it may take to give up what it must."""
        if current.state is not MemberState.UNREVOKED:
            self._sessions.revoked(member_id)
        elif former != current:
            self._sessions.begin_revoking(member_id, now.monotonic_ms + max(said.rebalance_timeout_ms, 0))

    # Leaving

    def _leave(self, beat: Beat, topics: KnownTopics, now: Now) -> BeatAnswer:
        if beat.instance_id is not None:
            _check_instance(beat, self.members.instances.get(beat.instance_id))
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
            self._sessions.revoked(beat.member_id)
        else:
            self._remove([beat.member_id], topics, now)
        return BeatAnswer(member_id=beat.member_id, epoch=beat.epoch)

    def leave(self, leavings: Iterable[Leaving], topics: KnownTopics, now: Now) -> list[Left]:
        """As an administrator has it, who may know of a static member its name alone."""
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
        self._remove(gone, topics, now)
        return left

    def _remove(self, member_ids: Collection[str], topics: KnownTopics, now: Now) -> None:
        """In one epoch: for each, all topics of the group are looked at."""
        for member_id in member_ids:
            pattern = self.members.said[member_id].pattern
            self._forget(member_id)
            if pattern is not None and not self.members.uses(pattern):
                self._forget_pattern(pattern)
        if not member_ids:
            return
        self.members.do(GroupEpoch(self._next_epoch, topics_hash(self.members.topics, topics)))
        if not self.members:
            self.state_since_wall_ms = now.wall_ms

    def _forget(self, member_id: str) -> None:
        self.members.do(MemberCurrent(member_id, None))
        self.members.do(Target(member_id, None))
        self.members.do(MemberSaid(member_id, None))
        self._sessions.end(member_id)


def _unknown(member_id: str, group_id: str) -> KafkaError:
    return KafkaError(ErrorCode.unknown_member_id, f"Member {member_id} is not a member of group {group_id}.")


def _check_instance(beat: Beat, known_as: str | None) -> None:
    if known_as is None:
        raise KafkaError(ErrorCode.unknown_member_id, f"Instance id {beat.instance_id} is unknown.")
    if known_as != beat.member_id:
        raise KafkaError(
            ErrorCode.fenced_instance_id,
            f"Static member {beat.member_id} with instance id {beat.instance_id} was fenced by member {known_as}.",
        )


def _check_epoch(beat: Beat, current: Current) -> None:
    """Whose last answer was lost says the epoch before; nothing but what it has then tells whether it may go on."""
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
