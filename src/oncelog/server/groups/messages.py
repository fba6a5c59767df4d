"""The inputs and outputs of a group: values only, so that a test can write them down.

A `Waiter` stands for a request whose answer may come later. The group never looks into it; it hands it back with
the answer. Times are monotonic milliseconds unless a name says otherwise. Of what a group says for each of its members
there may be 10,000 at a time: those are tuples, which take a quarter of a data class's time to make.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from oncelog.server.errors import ErrorCode
from oncelog.server.names import MOST_ID_CHARACTERS

Waiter = Hashable
NO_MEMBER_ID = ""
NO_LEADER = ""


MOST_MEMBER_ID_CHARACTERS = MOST_ID_CHARACTERS + len("-") + 36  # the ids that are handed out end with a UUID
MOST_PROTOCOLS = 32  # of a member: all are looked at when members vote
MEMBER_BYTES = 1000  # of memory, beside its ids and protocols
PROTOCOL_BYTES = 64  # of memory, beside name and metadata


def knows_all(topic: str) -> bool:
    return True


def bytes_of_protocols(protocols: Iterable[tuple[str, bytes]]) -> int:
    return sum(PROTOCOL_BYTES + len(name) + len(metadata) for name, metadata in protocols)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupLimits:
    min_session_timeout_ms: int = 6_000
    max_session_timeout_ms: int = 1_800_000
    initial_rebalance_delay_ms: int = 3_000
    max_members: int = 2**31 - 1
    # A join whose answer is never taken must end: a new member cannot send heartbeats while it waits for its id.
    new_member_join_timeout_ms: int = 300_000
    # Ids handed out to members that never came back with them (KIP-394); Kafka keeps any number of them.
    max_pending_members: int = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinRequest:
    member_id: str
    fresh_id: str  # what the member is called from now on if it has no id yet
    protocol_type: str
    protocols: tuple[tuple[str, bytes], ...]  # name and metadata, the member's favourite first
    session_timeout_ms: int
    rebalance_timeout_ms: int
    instance_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    needs_known_id: bool = False  # v4 and newer (KIP-394)
    may_skip_assignment: bool = False  # v9 and newer (KIP-814)
    may_know: Callable[[str], bool] = field(default=knows_all, compare=False)  # topics, by its rights

    @property
    def protocols_bytes(self) -> int:
        return bytes_of_protocols(self.protocols)

    @property
    def is_too_much(self) -> bool:
        ids = (self.client_id, self.instance_id or "", self.protocol_type or "")
        is_long = max(map(len, ids)) > MOST_ID_CHARACTERS or len(self.member_id) > MOST_MEMBER_ID_CHARACTERS
        return is_long or len(self.protocols) > MOST_PROTOCOLS


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncRequest:
    member_id: str
    generation: int
    instance_id: str | None = None
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignments: Mapping[str, bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaving:
    member_id: str
    instance_id: str | None = None


@dataclass(frozen=True, slots=True)
class Left:
    leaving: Leaving
    error: ErrorCode


class JoinedMember(NamedTuple):
    member_id: str
    instance_id: str | None
    metadata: bytes


class JoinAnswer(NamedTuple):
    error: ErrorCode = ErrorCode.none
    member_id: str = NO_MEMBER_ID
    generation: int = -1
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str = NO_LEADER
    members: tuple[JoinedMember, ...] = ()  # everyone, for the leader; nobody, for the others
    skip_assignment: bool = False


class SyncAnswer(NamedTuple):
    error: ErrorCode = ErrorCode.none
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


class Answer(NamedTuple):
    """This request is answered now."""

    waiter: Waiter
    answer: JoinAnswer | SyncAnswer


class StoredMember(NamedTuple):
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredGroup:
    """A group's record in `__consumer_offsets`: Kafka's GroupMetadataValue."""

    protocol_type: str
    generation: int
    protocol_name: str | None
    leader: str | None
    state_since_wall_ms: int
    members: tuple[StoredMember, ...]

    @property
    def said_bytes(self) -> int:
        """The bytes of its members' words and assignments: nearly all of it where it is large."""
        return sum([len(each.subscription) + len(each.assignment) for each in self.members])

    @property
    def assigned_bytes(self) -> int:
        return sum([len(each.assignment) for each in self.members])


@dataclass(frozen=True, slots=True)
class Assigned:
    """A leader's assignment waits for the disk."""

    generation: int
    assignments: Mapping[str, bytes]


@dataclass(frozen=True, slots=True)
class Replaced:
    """A static member that came back under a new id waits for the disk."""

    member_id: str
    may_skip_assignment: bool
    former_leader: str


@dataclass(frozen=True, slots=True)
class Store:
    """Write this down, then tell the group how it went: `group.stored(pending, error, now)`."""

    group: StoredGroup
    pending: Assigned | Replaced | None = None  # None: nobody waits for it


Effect = Answer | Store
