"""The arguments and answers of an admin, shaped as in confluent-kafka where that has the thing."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum

from oncelog.client.errors import invalid_argument
from oncelog.client.types import TopicPartition
from oncelog.slots import AnyPlace


class ResourceType(IntEnum):
    """The kind of thing that a configuration belongs to, or that an access rule is about."""

    ANY = 1  # in filters of rules
    TOPIC = 2
    GROUP = 3
    BROKER = 4  # in rules: the cluster
    TRANSACTIONAL_ID = 5


class ConfigSource(IntEnum):
    """The origin of a value."""

    UNKNOWN = 0
    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    GROUP_CONFIG = 8


class AlterOperation(IntEnum):
    """The effect of an incremental change on one value."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    name: str
    value: str | None
    source: ConfigSource = ConfigSource.UNKNOWN
    is_read_only: bool = False
    is_sensitive: bool = False
    documentation: str | None = None

    @property
    def is_default(self) -> bool:
        return self.source is ConfigSource.DEFAULT_CONFIG


@dataclass(frozen=True, slots=True)
class AlterConfig:
    name: str
    value: str | None = None
    operation: AlterOperation = AlterOperation.SET


@dataclass(frozen=True, slots=True)
class ConfigResource:
    """A topic, a broker or a group; to change it, with what is to change. Its type may be a word or a number, too, as
    in confluent-kafka."""

    type: ResourceType
    name: str
    changes: Sequence[AlterConfig] = field(default=(), compare=False)

    def __post_init__(self) -> None:
        if not isinstance(self.name, str):
            raise TypeError(f"the name of a ConfigResource is a str, not {type(self.name).__name__}")
        object.__setattr__(self, "type", _resource_type(self.type))


def _resource_type(given: object) -> ResourceType:
    if isinstance(given, str) and given.upper() in ResourceType.__members__:
        return ResourceType[given.upper()]
    if isinstance(given, int) and given in ResourceType._value2member_map_:
        return ResourceType(given)
    raise invalid_argument(
        f"the type of a ConfigResource is ResourceType.TOPIC, .BROKER or .GROUP, or 'topic', 'broker' or 'group', "
        f"not {given!r}"
    )


@dataclass(frozen=True, slots=True)
class GroupListing:
    group_id: str
    state: str
    protocol_type: str
    group_type: str = ""  # by which protocol its members agree: classic or consumer; empty on a Kafka before 3.8

    @property
    def is_simple(self) -> bool:
        """A group that only stores offsets: nobody ever joined it."""
        return self.protocol_type == ""


@dataclass(frozen=True, slots=True)
class MemberDescription:
    member_id: str
    client_id: str
    host: str
    group_instance_id: str | None
    assignment: tuple[AnyPlace, ...]
    member_type: str = ""  # the same of this one, on the way from one to the other; empty on a Kafka before 4.0


@dataclass(frozen=True, slots=True)
class GroupDescription:
    group_id: str
    state: str
    protocol_type: str
    partition_assignor: str
    coordinator: int
    members: tuple[MemberDescription, ...]


@dataclass(frozen=True, slots=True)
class GroupOffsets:
    """A group and partitions; to be changed with offsets, answered with offsets or errors."""

    group_id: str
    topic_partitions: Sequence[TopicPartition] | None = None


@dataclass(frozen=True, slots=True)
class FoundOffset:
    """A place in a partition; -1 where there is no such record."""

    offset: int
    timestamp_ms: int = -1
    leader_epoch: int = -1


@dataclass(frozen=True, slots=True)
class ProducerState:
    """A producer that a partition remembers."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    current_transaction_start_offset: int | None = None


@dataclass(frozen=True, slots=True)
class LeaseState:
    """A producer that a partition of an oncelog server remembers."""

    producer_id: int
    generation: int
    last_sequence: int
    last_offset: int  # -1 where that is not known
    last_timestamp_ms: int
    lease_left_ms: int  # 0 when the lease is over, -1 where the pid is not leased

    @property
    def is_leased(self) -> bool:
        return self.lease_left_ms >= 0


@dataclass(frozen=True, slots=True)
class PartitionLeases:
    """The producers that a partition of an oncelog server remembers."""

    capacity: int  # how many leased ones there is room for
    lifetime_ms: int
    producers: tuple[LeaseState, ...]


@dataclass(frozen=True, slots=True)
class DeletedRecords:
    low_watermark: int


@dataclass(frozen=True, slots=True)
class BrokerDescription:
    id: int
    host: str
    port: int
    rack: str | None = None
    is_fenced: bool = False  # leads nothing: it is down, or about to be; known of Kafka 4.0 and later, and of oncelog


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    cluster_id: str
    controller: int
    nodes: tuple[BrokerDescription, ...]


@dataclass(frozen=True, slots=True)
class Replicas:
    """The brokers that have a partition."""

    leader: int  # -1 where nobody leads
    leader_epoch: int
    replicas: tuple[int, ...]  # the preferred leader first
    in_sync: tuple[int, ...]
    eligible: tuple[int, ...] | None = None  # may lead although they are not in sync; None where that is not known


@dataclass(frozen=True, slots=True)
class Move:
    """A partition on its way to other brokers."""

    adding: tuple[int, ...]
    removing: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class QuotaEntity:
    """The owner of a quota: `QuotaEntity.of({"user": "alice", "client-id": None})`, where None is the default."""

    names: tuple[tuple[str, str | None], ...]

    @classmethod
    def of(cls, names: Mapping[str, str | None]) -> "QuotaEntity":
        return cls(tuple(sorted(names.items())))

    def __str__(self) -> str:
        return " ".join(f"{kind}={'<default>' if name is None else name}" for kind, name in self.names)
