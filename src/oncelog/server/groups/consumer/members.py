"""The state of a group of KIP-848: its members, how far each has come, and the places that each is to have.

It changes by `Change`s alone, in the order in which they are stored. Those of one request are taken back together where
they could not be stored.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Final, NamedTuple

from oncelog.server.errors import ErrorCode, KafkaError
from oncelog.server.groups.consumer.values import (
    NAME_BYTES,
    NEW,
    NOWHERE,
    Change,
    Current,
    GroupEpoch,
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
from oncelog.server.groups.messages import MEMBER_BYTES

PLACE_BYTES = 200  # of memory, with what it is to have and what it has
# Names of topics that a group reads: all are looked at when one of them may have come or gone.
MOST_SUBSCRIBED: Final = 20_000
PATTERN_NAMES: Final = 1_000  # a pattern counts as no fewer: it may find more, later


class Member(NamedTuple):
    """A member as others look at it."""

    member_id: str
    said: Said
    current: Current

    @property
    def instance_id(self) -> str | None:
        return self.said.instance_id

    @property
    def client_id(self) -> str:
        return self.said.client_id

    @property
    def client_host(self) -> str:
        return self.said.client_host


class Members:
    def __init__(self) -> None:
        self.said: dict[str, Said] = {}  # in the order in which they came
        self.current: dict[str, Current] = {}
        self.target: dict[str, Places] = {}
        self.patterns: dict[str, Resolved] = {}
        self.epoch = 0
        self.topics_hash = 0
        self.target_epoch = 0
        self.target_wall_ms = 0
        self.instances: dict[str, str] = {}
        self.held_bytes = 0  # about
        self.places = 0  # that all of them are to have, have, or are to give up
        self._owners: dict[Place, str] = {}
        # Equal subscriptions of members are one tuple, and are looked at once.
        self._subscriptions: dict[tuple[str, ...], tuple[str, ...]] = {}
        self._readers: Counter[tuple[str, ...]] = Counter()  # by subscription
        self._names: Counter[str] = Counter()  # topics, by how many subscriptions name them
        self._patterns: Counter[str] = Counter()
        self._assignors: Counter[str] = Counter()
        self._protocols: Counter[str] = Counter()  # of those that speak the classic one
        self.classics = 0  # how many they are
        self._undo: list[Change] = []
        self.done: list[Change] = []  # since it was stored the last time

    def __len__(self) -> int:
        return len(self.said)

    def __iter__(self) -> Iterator[Member]:
        return (Member(member_id, said, self.current_of(member_id)) for member_id, said in list(self.said.items()))

    # What is asked

    def current_of(self, member_id: str) -> Current:
        return self.current.get(member_id, NEW)

    def target_of(self, member_id: str) -> Places:
        return self.target.get(member_id, NOWHERE)

    def owner(self, place: Place) -> str | None:
        return self._owners.get(place)

    def check_instance(self, instance_id: str, member_id: str) -> None:
        """Raises KafkaError."""
        known_as = self.instances.get(instance_id)
        if known_as is None:
            raise KafkaError(ErrorCode.unknown_member_id, f"Instance id {instance_id} is unknown.")
        if known_as != member_id:
            raise KafkaError(
                ErrorCode.fenced_instance_id,
                f"Static member {member_id} with instance id {instance_id} was fenced by member {known_as}.",
            )

    @property
    def names(self) -> int:
        """The number of topic names that are to be looked at: `MOST_SUBSCRIBED`."""
        found = sum([max(len(each.topics), PATTERN_NAMES) for each in self.patterns.values()])
        return sum(map(len, self._subscriptions)) + found

    def uses(self, pattern: str) -> bool:
        return pattern in self._patterns

    def topics_of(self, said: Said) -> frozenset[str]:
        resolved = None if said.pattern is None else self.patterns.get(said.pattern)
        return frozenset(said.topics) if resolved is None else resolved.topics.union(said.topics)

    @property
    def topics(self) -> frozenset[str]:
        return frozenset(self._names).union(*(each.topics for each in self.patterns.values()))

    def reads(self, topic: str) -> bool:
        return topic in self._names or any(topic in each.topics for each in self.patterns.values())

    @property
    def assignor(self) -> str | None:
        """The assignor that most members ask for, of those that ask for one."""
        return max(sorted(self._assignors), key=self._assignors.__getitem__, default=None)

    def support_classic(self, names: Iterable[str]) -> bool:
        """Whether all that speak the classic protocol have one of these in common."""
        return any(self._protocols[name] == self.classics for name in names)

    @property
    def is_reconciled(self) -> bool:
        epoch, stable = self.target_epoch, MemberState.STABLE
        return all(self.current_of(each).epoch == epoch and self.current_of(each).state is stable for each in self.said)

    # Changing

    def do(self, change: Change) -> None:
        self._undo.append(self._former(change))
        self.done.append(change)
        self.apply(change)

    def stored(self) -> None:
        """All changes in `done` are stored, in their order. Until then they can be taken back."""
        self.done.clear()
        self._undo.clear()

    def take_back(self) -> None:
        self.done.clear()
        while self._undo:
            self.apply(self._undo.pop())

    def apply(self, change: Change) -> None:
        if isinstance(change, MemberCurrent):
            self._put_current(*change)
        elif isinstance(change, Target):
            self._put_target(*change)
        elif isinstance(change, MemberSaid):
            self._put_said(*change)
        elif isinstance(change, GroupEpoch):
            self.epoch, self.topics_hash = change.epoch or 0, change.topics_hash
        elif isinstance(change, TargetEpoch):
            self.target_epoch, self.target_wall_ms = change.epoch or 0, change.wall_ms
        else:
            self._put_pattern(*change)

    def _former(self, change: Change) -> Change:
        """The change that brings back what this one replaces."""
        if isinstance(change, MemberCurrent):
            return MemberCurrent(change.member_id, self.current.get(change.member_id))
        if isinstance(change, Target):
            return Target(change.member_id, self.target.get(change.member_id))
        if isinstance(change, MemberSaid):
            return MemberSaid(change.member_id, self.said.get(change.member_id))
        if isinstance(change, GroupEpoch):
            return GroupEpoch(self.epoch, self.topics_hash)
        if isinstance(change, TargetEpoch):
            return TargetEpoch(self.target_epoch, self.target_wall_ms)
        return Pattern(change.pattern, self.patterns.get(change.pattern))

    def _put_current(self, member_id: str, current: Current | None) -> None:
        former = self.current.pop(member_id, NEW)
        for place in (*former.assigned, *former.revoking):
            if self._owners.get(place) == member_id:
                del self._owners[place]
        self._hold_places(-len(former.assigned) - len(former.revoking))
        if current is not None:
            self.current[member_id] = current
            self._owners.update(dict.fromkeys((*current.assigned, *current.revoking), member_id))
            self._hold_places(len(current.assigned) + len(current.revoking))

    def _put_target(self, member_id: str, places: Places | None) -> None:
        self._hold_places(-len(self.target.pop(member_id, NOWHERE)))
        if places is not None:
            self.target[member_id] = places
            self._hold_places(len(places))

    def _hold_places(self, more: int) -> None:
        self.places += more
        self.held_bytes += PLACE_BYTES * more

    def _put_said(self, member_id: str, said: Said | None) -> None:
        former = self.said.get(member_id)
        if former is not None:
            self._count(former, -1)
            if former.instance_id is not None and self.instances.get(former.instance_id) == member_id:
                del self.instances[former.instance_id]
        if said is None:
            self.said.pop(member_id, None)
            return
        same = self._subscriptions.get(said.topics)
        if same is not None and same is not said.topics:
            said = replace(said, topics=same)
        self.said[member_id] = said
        self._count(said, 1)
        if said.instance_id is not None:
            self.instances[said.instance_id] = member_id

    def _count(self, said: Said, by: int) -> None:
        topics = said.topics
        self.held_bytes += by * (MEMBER_BYTES + said.held_bytes)
        self.classics += by * (said.classic is not None)
        self._readers[topics] += by
        if by > 0 and topics not in self._subscriptions:
            self._subscriptions[topics] = topics
            _add(self._names, topics, by)
        elif not self._readers[topics]:
            del self._readers[topics], self._subscriptions[topics]
            _add(self._names, topics, by)
        _add(self._patterns, (said.pattern,), by)
        _add(self._assignors, (said.assignor,), by)
        if said.classic is not None:
            _add(self._protocols, [name for name, _ in said.classic.protocols], by)

    def _put_pattern(self, pattern: str, resolved: Resolved | None) -> None:
        former = self.patterns.pop(pattern, None)
        if former is not None:
            self.held_bytes -= NAME_BYTES * len(former.topics) + len(pattern)
        if resolved is not None:
            self.patterns[pattern] = resolved
            self.held_bytes += NAME_BYTES * len(resolved.topics) + len(pattern)


def _add(counter: Counter[str], names: Iterable[str | None], by: int) -> None:
    for name in names:
        if name is not None:
            counter[name] += by
            if not counter[name]:
                del counter[name]
