"""The changes of a group by what a member says, in either protocol: the group's epoch, the places of all members,
and how far the member itself has come. `reconciling.py` has the table of the last of these.
"""

from collections.abc import Iterable, Iterator

from oncelog.clock import Now
from oncelog.server.errors import ErrorCode, KafkaError
from oncelog.server.groups.consumer.assignors import ASSIGNORS, Subscriber
from oncelog.server.groups.consumer.members import MOST_SUBSCRIBED, PLACE_BYTES, Members
from oncelog.server.groups.consumer.reconciling import reconciled
from oncelog.server.groups.consumer.sessions import Sessions
from oncelog.server.groups.consumer.topics import KnownTopics, topics_hash
from oncelog.server.groups.consumer.values import (
    MOST_MOVED,
    MOST_PLACES,
    NEW,
    Change,
    ConsumerLimits,
    Current,
    GroupEpoch,
    LimitsOf,
    MemberCurrent,
    MemberSaid,
    MemberState,
    Pattern,
    Place,
    Places,
    Resolved,
    Said,
    Target,
    TargetEpoch,
)

FIRST_EPOCH = 2  # as in Kafka
RESOLVED_MS = 600_000  # as in Kafka
TOO_LARGE_MS = 60_000  # so long nothing is shared anew where that was more than can be stored
MEMBERS_A_MS = 10  # in a group of that many times as many, targets are computed no more often than that


class Sharing:
    def __init__(self, group_id: str, limits_of: LimitsOf) -> None:
        self.group_id = group_id
        self._limits_of = limits_of
        self.members = Members()
        self.sessions = Sessions()
        self.state_since_wall_ms = 0  # since when it is empty, where that was seen
        self.becomes_classic = False  # once what was done is stored: nobody is left that speaks the newer protocol
        self._target_ms: int | None = None  # when the target was computed here
        self._seen_revision = -1
        self._resolved_at: dict[str, tuple[int, int]] = {}  # patterns: by which revision of the topics, and when
        self._small_ms = 0  # from when on it may be tried again to share anew

    def restored(self, now: Now) -> None:
        """All was applied that is stored. Its members have one session to be heard of."""
        for member_id, said in self.members.said.items():
            self.begin_session(member_id, said, now)
            self.watch(member_id, said, NEW, self.members.current_of(member_id), now)

    @property
    def limits(self) -> ConsumerLimits:
        return self._limits_of(self.group_id)

    @property
    def assignor(self) -> str:
        asked = self.members.assignor  # another server may have stored one that is not known here
        return self.limits.assignors[0] if asked is None or asked not in ASSIGNORS else asked

    def has_resolved(self, pattern: str, revision: int, now: Now) -> bool:
        """Whether the pattern is resolved. Once in a while it is looked at again: members may know of other topics by
        then."""
        at, found_ms = self._resolved_at.get(pattern, (-1, 0))
        is_recent = now.monotonic_ms - found_ms < RESOLVED_MS
        return at == revision and is_recent and pattern in self.members.patterns

    def tombstones(self) -> Iterator[Change]:
        """The changes that take the group out of the log."""
        for member_id in list(self.members.said):
            yield MemberCurrent(member_id, None)
            yield Target(member_id, None)
            yield MemberSaid(member_id, None)
        for pattern in self.members.patterns:
            yield Pattern(pattern, None)
        yield TargetEpoch(None)
        yield GroupEpoch(None)

    def is_too_large(self, now: Now) -> bool:
        return now.monotonic_ms < self._small_ms

    def note_too_large(self, now: Now) -> None:
        """Note that the assignment of the members was too large to store when one of them was heard of."""
        self._small_ms = now.monotonic_ms + TOO_LARGE_MS

    def take_back(self, now: Now) -> None:
        """The last changes could not be stored. A member that they removed gets a new session, and one that is to give
        up places again has its whole time for it."""
        self.becomes_classic = False
        if not self.members.done:
            return  # somebody was refused: what is known of the topics stays, and so does the pause between two targets
        self.members.take_back()
        self._seen_revision, self._target_ms = -1, None
        self._resolved_at.clear()
        for member_id, said in self.members.said.items():
            if not self.sessions.has(member_id):
                self.begin_session(member_id, said, now)
            current = self.members.current_of(member_id)
            if said.classic is None or current.state is MemberState.UNREVOKED:  # else it may have to join, or to ask
                self.watch(member_id, said, current if self.sessions.is_to_act(member_id) else NEW, current, now)

    def lacking_bytes(self, topics: KnownTopics) -> int:
        """The bytes more that its members hold, about, once all that they read is shared, and each has its part."""
        known = [each for each in map(topics.get, self.members.topics) if each is not None]
        return PLACE_BYTES * max(2 * sum(each.partitions for each in known) - self.members.places, 0)

    # One member

    def check_room(self, now: Now, *, joins: bool) -> None:
        """Check the room for one that is no member yet, and takes the place of none."""
        if joins and self.is_too_large(now):
            raise KafkaError(ErrorCode.group_max_size_reached, "The assignment of its members is too large to store.")
        if len(self.members) >= self.limits.max_members:
            raise KafkaError(
                ErrorCode.group_max_size_reached,
                f"The consumer group has reached its maximum capacity of {self.limits.max_members} members.",
            )

    def come_on(self, member_id: str, said: Said, has: Places | None, topics: KnownTopics, now: Now) -> Current:
        """A member has said this. Where it stands now."""
        members = self.members
        is_bumped = self._listen(member_id, said, topics, now)
        if is_bumped or topics.revision != self._seen_revision:
            found = topics_hash(members.topics, topics)
            if is_bumped or found != members.topics_hash:
                members.do(GroupEpoch(self._next_epoch, found))
            self._seen_revision = topics.revision
        if members.epoch > members.target_epoch and self.may_assign(now):
            self._assign(topics, now)
        self.begin_session(member_id, said, now)
        return self._reconcile(member_id, said, has, topics)

    def has_other_topics(self, topics: KnownTopics) -> bool:
        """Whether there are other topics than when a member was last heard of: its epoch is to grow."""
        if topics.revision != self._seen_revision:
            if topics_hash(self.members.topics, topics) != self.members.topics_hash:
                return True
            self._seen_revision = topics.revision
        return False

    def take_over(self, known_as: str, member_id: str) -> Current:
        """A static member came back, under another id or the same: it goes on with what it had."""
        members, current = self.members, self.members.current_of(known_as)
        if member_id != known_as and member_id in members.said:
            self._forget_all(member_id)  # it was a member of its own before
        said, target = members.said[known_as], members.target_of(known_as)
        self._forget(known_as)
        again = Current(assigned=current.assigned, revoking=current.revoking, state=current.state)
        members.do(MemberSaid(member_id, said))
        members.do(Target(member_id, target))
        members.do(MemberCurrent(member_id, again))
        return again

    def begin_session(self, member_id: str, said: Said, now: Now) -> None:
        span_ms = self.limits.session_timeout_ms if said.classic is None else said.classic.session_timeout_ms
        self.sessions.begin(member_id, now.monotonic_ms + span_ms)

    def begin_acting(self, member_id: str, said: Said, now: Now) -> None:
        self.sessions.begin_acting(member_id, now.monotonic_ms + max(said.rebalance_timeout_ms, 0))

    def watch(self, member_id: str, said: Said, former: Current, current: Current, now: Now) -> None:
        """Set the time within which the member must give up places."""
        if current.state is not MemberState.UNREVOKED:
            self.sessions.acted(member_id)
        elif former != current:
            self.begin_acting(member_id, said, now)

    def remove(self, member_ids: Iterable[str], topics: KnownTopics, now: Now) -> None:
        """Remove members in one epoch: for each, all topics of the group are looked at. A group of which only members
        of the classic protocol are left stays in its epoch: it goes on as their generation."""
        gone = list(member_ids)
        for member_id in gone:
            self._forget_all(member_id)
        self.becomes_classic = bool(gone) and self.may_become_classic
        if gone and not self.becomes_classic:
            self._lose(topics)
        if gone and not self.members:
            self.state_since_wall_ms = now.wall_ms

    @property
    def may_become_classic(self) -> bool:
        count, limits = len(self.members), self.limits
        if not limits.may_downgrade or not 0 < count == self.members.classics:
            return False
        if count > min(limits.max_classic_members, MOST_MOVED):
            return False
        return sum(map(len, self.members.target.values())) <= MOST_PLACES

    def stay(self, topics: KnownTopics) -> None:
        """Stay a group of KIP-848: the classic group that it would become is too large to store."""
        self.becomes_classic = False
        self._lose(topics)

    # Below

    @property
    def _next_epoch(self) -> int:
        return max(self.members.epoch, FIRST_EPOCH - 1) + 1

    def _lose(self, topics: KnownTopics) -> None:
        self.members.do(GroupEpoch(self._next_epoch, topics_hash(self.members.topics, topics)))

    def _listen(self, member_id: str, said: Said, topics: KnownTopics, now: Now) -> bool:
        """Take in what a member says, and what its pattern finds. True where its topics have changed."""
        before = self.members.said.get(member_id)
        is_bumped = is_new = before is None or not before.reads_like(said)
        names = self.members.names if is_new else 0
        if before != said:
            self.members.do(MemberSaid(member_id, said))
        if before is not None and before.pattern is not None and not self.members.uses(before.pattern):
            self._forget_pattern(before.pattern)
        if said.pattern is not None:
            is_bumped = self._resolve(said.pattern, topics, now) or is_bumped
        if is_new and self.members.names > max(names, MOST_SUBSCRIBED):
            raise KafkaError(
                ErrorCode.invalid_request,
                f"The members of group {self.group_id} may be subscribed to {MOST_SUBSCRIBED:,} names of topics "
                "together.",
            )
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

    def may_assign(self, now: Now) -> bool:
        """The first time at once; in a large group not for each of those who come one after the other."""
        pause_ms = max(self.limits.assignment_interval_ms, len(self.members) // MEMBERS_A_MS)
        if self.is_too_large(now):
            return False
        return self._target_ms is None or now.monotonic_ms - self._target_ms >= pause_ms

    def _assign(self, topics: KnownTopics, now: Now) -> None:
        members = self.members
        counts: dict[bytes, int] = {}
        subscribers: list[Subscriber] = []
        ids_of: dict[tuple[int, str | None], frozenset[bytes]] = {}  # most members read the same
        for member_id, said in members.said.items():
            key = (id(said.topics), said.pattern)  # equal ones are one tuple
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

    def _reconcile(self, member_id: str, said: Said, has: Places | None, topics: KnownTopics) -> Current:
        members = self.members
        former, target = members.current_of(member_id), members.target_of(member_id)
        is_narrower, ids = members.epoch > members.target_epoch, frozenset[bytes]()
        if is_narrower or former.state is MemberState.UNREVOKED:
            names = members.topics_of(said)
            ids = frozenset(each.topic_id for each in map(topics.get, names) if each is not None)

        def is_read(place: Place) -> bool:
            return place.topic_id in ids

        def is_taken(place: Place) -> bool:
            return members.owner(place) not in (None, member_id)

        if is_narrower:
            target = frozenset(filter(is_read, target))
        current = reconciled(former, members.target_epoch, target, has, is_taken, is_read, is_narrower=is_narrower)
        if current != former or member_id not in members.current:
            members.do(MemberCurrent(member_id, current))
        return current

    def _forget_all(self, member_id: str) -> None:
        """Forget the member, and its pattern where nobody else uses that."""
        pattern = self.members.said[member_id].pattern
        self._forget(member_id)
        if pattern is not None and not self.members.uses(pattern):
            self._forget_pattern(pattern)

    def _forget(self, member_id: str) -> None:
        self.members.do(MemberCurrent(member_id, None))
        self.members.do(Target(member_id, None))
        self.members.do(MemberSaid(member_id, None))
        self.sessions.end(member_id)
