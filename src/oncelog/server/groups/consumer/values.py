"""The inputs, outputs and state of a group of KIP-848: values only.

A group changes by `Change`s alone, and each of them is one record of `__consumer_offsets`: what was stored, read back
in its order, is the group. None in the place of a value takes it away.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from oncelog.server.errors import ErrorCode
from oncelog.server.groups.messages import MEMBER_BYTES, bytes_of_protocols

NAME_BYTES = 64  # of memory, for each name of a topic beside its text
NEVER = 2**31  # an epoch
MOST_MOVED = 500  # members that go over to the other protocol at once, on the loop: 17 ms, and 3 us for each partition
MOST_PLACES = 10_000  # that those have, or claim, all together
MOST_MOVED_NAMES = 10_000  # of topics, in all that those say differently
JOINS, LEAVES, LEAVES_FOR_A_WHILE = 0, -1, -2  # instead of an epoch, in what a member says


class Place(NamedTuple):
    """A partition, by its topic's id: another topic of the same name is another place."""

    topic_id: bytes
    partition: int


Epochs = Mapping[Place, int]
Places = frozenset[Place]
NOWHERE: Places = frozenset()


class MemberState(Enum):
    STABLE = 0
    UNREVOKED = 1  # it must give up places before it goes on
    UNRELEASED = 2  # it waits for places that others have not given up yet


class ConsumerState(Enum):
    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"
    DEAD = "Dead"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerLimits:
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    max_members: int = 5_000
    assignment_interval_ms: int = 0
    assignors: tuple[str, ...] = ("uniform", "range")
    may_upgrade: bool = True  # a group of the classic protocol, while it has members
    may_downgrade: bool = True
    max_classic_members: int = 10_000  # of a group of the classic protocol


LimitsOf = Callable[[str], ConsumerLimits]  # of a group by its id; they may be other ones the next time


@dataclass(frozen=True, slots=True, kw_only=True)
class Classic:
    """A member that speaks the classic protocol in such a group."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]

    @property
    def protocol_name(self) -> str:
        """The protocol that all members name alike: the first speaks for it."""
        return self.protocols[0][0] if self.protocols else ""

    @property
    def metadata(self) -> bytes:
        return self.protocols[0][1] if self.protocols else b""


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """A member's words about itself."""

    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topics: tuple[str, ...] = ()
    pattern: str | None = None
    rebalance_timeout_ms: int = -1
    assignor: str | None = None
    classic: Classic | None = None

    @property
    def held_bytes(self) -> int:
        texts = (self.instance_id, self.rack_id, self.client_id, self.client_host, self.pattern, self.assignor)
        names = sum(map(len, self.topics)) + NAME_BYTES * len(self.topics)
        classic = 0 if self.classic is None else bytes_of_protocols(self.classic.protocols)
        return sum(len(each) for each in texts if each is not None) + names + classic

    def reads_like(self, other: "Said") -> bool:
        return (self.topics, self.pattern) == (other.topics, other.pattern)


@dataclass(frozen=True, slots=True, kw_only=True)
class Current:
    """The state of a member: its epoch, the places that are its own by the epoch in which they became so, and those
    that it is to give up."""

    epoch: int = 0
    previous_epoch: int = 0
    state: MemberState = MemberState.STABLE
    assigned: Epochs
    revoking: Epochs

    def since(self, place: Place) -> int:
        """The epoch in which it became its own; one that never comes where it is not."""
        return self.assigned.get(place, self.revoking.get(place, NEVER))


NEW = Current(assigned={}, revoking={})


class Resolved(NamedTuple):
    """The topics that a pattern has found."""

    topics: frozenset[str]
    version: int
    wall_ms: int


class GroupEpoch(NamedTuple):
    epoch: int | None
    topics_hash: int = 0  # of what is known of the topics that its members are subscribed to


class MemberSaid(NamedTuple):
    member_id: str
    said: Said | None


class TargetEpoch(NamedTuple):
    epoch: int | None
    wall_ms: int = 0


class Target(NamedTuple):
    member_id: str
    places: Places | None


class MemberCurrent(NamedTuple):
    member_id: str
    current: Current | None


class Pattern(NamedTuple):
    pattern: str
    resolved: Resolved | None


Change = GroupEpoch | MemberSaid | TargetEpoch | Target | MemberCurrent | Pattern


@dataclass(frozen=True, slots=True, kw_only=True)
class Beat:
    """A heartbeat. None: as the last time."""

    member_id: str
    epoch: int
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    topics: tuple[str, ...] | None = None
    pattern: str | None = None  # empty: none any more
    assignor: str | None = None
    owned: Places | None = None
    client_id: str = ""
    client_host: str = ""

    @property
    def said_bytes(self) -> int:
        """The bytes that may have to be remembered of it, about."""
        if self.epoch != JOINS and self.topics is None and self.pattern is None:
            return 0
        return MEMBER_BYTES + sum(map(len, self.topics or ())) + NAME_BYTES * len(self.topics or ())

    @property
    def says_all(self) -> bool:
        says_what = self.topics is not None or self.pattern is not None
        return self.epoch == JOINS or (self.rebalance_timeout_ms != -1 and says_what and self.owned is not None)


class BeatAnswer(NamedTuple):
    error: ErrorCode = ErrorCode.none
    message: str | None = None
    member_id: str | None = None
    epoch: int = 0
    heartbeat_interval_ms: int = 0
    assigned: Places | None = None  # None: as it was
