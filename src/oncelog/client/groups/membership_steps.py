"""The events and the actions of a member of a group: the values that pass in and out of `Membership` and of
`ConsumerMembership`."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

from oncelog.client.errors import KafkaError
from oncelog.client.groups.protocol import NO_GENERATION
from oncelog.slots import AnyPlace


class Member(NamedTuple):
    """The identity of a member, as Heartbeat and OffsetCommit carry it."""

    generation: int = NO_GENERATION  # in KIP-848 the member's epoch
    member_id: str = ""
    instance_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberLimits:
    instance_id: str | None
    session_timeout_ms: int
    rebalance_timeout_ms: int  # max.poll.interval.ms: how long the others wait for a member that is to give back
    heartbeat_interval_ms: int  # in KIP-848 until the coordinator says another one
    retry_backoff_ms: int
    retry_backoff_max_ms: int
    rack: str | None = None


@dataclass(frozen=True, slots=True)
class Joined:
    """The answer to a JoinGroup; `members` (id, instance id, metadata) are told to the leader only."""

    error_code: int
    generation: int = NO_GENERATION
    protocol_name: str = ""
    leader_id: str = ""
    member_id: str = ""
    is_assigned_already: bool = False  # a leader that came back, for whom the old shares stay (KIP-814)
    members: tuple[tuple[str, str | None, bytes], ...] = ()
    node_id: int = -1  # who answered; the sync goes there too


@dataclass(frozen=True, slots=True)
class FindCoordinator:
    request_id: int


@dataclass(frozen=True, slots=True)
class Join:
    request_id: int
    node_id: int
    member_id: str
    protocols: tuple[tuple[str, bytes], ...]  # name and subscription, the most wanted first
    reason: str


@dataclass(frozen=True, slots=True)
class CountPartitions:
    """The leader needs to know how many partitions these topics have; one that is not there is left out."""

    request_id: int
    topics: frozenset[str]


@dataclass(frozen=True, slots=True)
class Sync:
    request_id: int
    node_id: int
    member: Member
    protocol_name: str
    assignments: Mapping[str, bytes]


@dataclass(frozen=True, slots=True)
class Heartbeat:
    request_id: int
    node_id: int
    member: Member


@dataclass(frozen=True, slots=True)
class Leave:
    request_id: int
    node_id: int
    member_id: str
    reason: str


@dataclass(frozen=True, slots=True)
class Revoke:
    """The application gives these back; `application_done` says when. `is_lost`: they may be another's already."""

    partitions: frozenset[AnyPlace]
    is_lost: bool


@dataclass(frozen=True, slots=True)
class Assign:
    """The application takes these on; `application_done` says when."""

    partitions: frozenset[AnyPlace]


@dataclass(frozen=True, slots=True)
class Report:
    error: KafkaError


# Of KIP-848 alone

Place = tuple[UUID, int]  # a partition, by its topic's id: another topic of the same name is another place
NOWHERE: frozenset[Place] = frozenset()


class Wanted(NamedTuple):
    topics: frozenset[str] = frozenset()
    pattern: str = ""  # of the coordinator's kind, RE2; empty for none


@dataclass(frozen=True, slots=True)
class Beat:
    """A heartbeat. None: as it was said before; `is_whole` says all that there is to say."""

    request_id: int
    node_id: int
    member_id: str
    epoch: int
    wanted: Wanted | None
    owned: frozenset[Place] | None

    @property
    def is_whole(self) -> bool:
        return self.wanted is not None and self.owned is not None


@dataclass(frozen=True, slots=True)
class Beaten:
    """Its answer. `assigned` is None where that is as before."""

    error_code: int
    message: str | None = None
    epoch: int = 0
    interval_ms: int = 0
    assigned: frozenset[Place] | None = None


@dataclass(frozen=True, slots=True)
class FindNames:
    """The names of topics are wanted that are known by their ids."""

    request_id: int
    topic_ids: frozenset[UUID]


Asked = FindCoordinator | Join | CountPartitions | Sync | Leave | Beat
Beside = Heartbeat | FindNames  # asked beside whatever else is under way
Request = Asked | Beside
Action = Request | Revoke | Assign | Report
