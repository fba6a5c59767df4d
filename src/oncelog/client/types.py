"""The small values that pass between an application and the client, shaped as in confluent-kafka."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import total_ordering
from typing import Final

from oncelog.client.errors import KafkaError

PARTITION_UNASSIGNED: Final = -1

# Offsets that stand for a place rather than name one.
OFFSET_END: Final = -1
OFFSET_BEGINNING: Final = -2
OFFSET_STORED: Final = -1000
OFFSET_INVALID: Final = -1001

TIMESTAMP_NOT_AVAILABLE: Final = 0
TIMESTAMP_CREATE_TIME: Final = 1
TIMESTAMP_LOG_APPEND_TIME: Final = 2


@total_ordering
class TopicPartition:
    """A partition by name, perhaps with a place in it.

    Equal to another when topic and partition are, as in confluent-kafka, so that it can be looked up in sets and dicts
    while its offset changes.
    """

    __slots__ = ("error", "leader_epoch", "metadata", "offset", "partition", "topic")

    def __init__(
        self,
        topic: str,
        partition: int = PARTITION_UNASSIGNED,
        offset: int = OFFSET_INVALID,
        metadata: str | None = None,
        leader_epoch: int | None = None,
        *,
        error: KafkaError | None = None,
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.metadata = metadata
        self.leader_epoch = None if leader_epoch is None or leader_epoch < 0 else leader_epoch
        self.error = error

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TopicPartition):
            return NotImplemented
        return self.topic == other.topic and self.partition == other.partition

    def __lt__(self, other: "TopicPartition") -> bool:
        return (self.topic, self.partition) < (other.topic, other.partition)

    def __hash__(self) -> int:
        return hash((self.topic, self.partition))

    def __repr__(self) -> str:
        return (
            f"TopicPartition{{topic={self.topic},partition={self.partition},offset={_offset_name(self.offset)},"
            f"leader_epoch={self.leader_epoch},error={self.error}}}"
        )


def _offset_name(offset: int) -> str:
    names = {OFFSET_END: "END", OFFSET_BEGINNING: "BEGINNING", OFFSET_STORED: "STORED", OFFSET_INVALID: "INVALID"}
    return names.get(offset, str(offset))


@dataclass(slots=True)
class NewTopic:
    """A topic to be created; -1 asks for the broker's own defaults."""

    topic: str
    num_partitions: int = -1
    replication_factor: int = -1
    replica_assignment: Sequence[Sequence[int]] | None = None
    config: Mapping[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class NewPartitions:
    """The number of partitions that a topic is to have."""

    topic: str
    new_total_count: int
    replica_assignment: Sequence[Sequence[int]] | None = None
