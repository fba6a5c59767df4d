"""The metadata of a cluster. Pure: an answer to Metadata goes in, a new value comes out.

A value is never changed, so any thread may read the newest one. What a broker that lags behind says does not undo
what is known: a partition's leader epoch never goes back, unless the topic is another one under the same name.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any
from uuid import UUID

from oncelog.error_codes import ErrorCodes as Code

NO_LEADER = -1
_NOTHING: Mapping[Any, Any] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class BrokerAddress:
    node_id: int
    host: str
    port: int
    rack: str | None = None


@dataclass(frozen=True, slots=True)
class PartitionMetadata:
    index: int
    leader: int = NO_LEADER
    leader_epoch: int = -1
    replicas: tuple[int, ...] = ()
    in_sync: tuple[int, ...] = ()
    error_code: int = 0


@dataclass(frozen=True, slots=True)
class TopicMetadata:
    name: str
    topic_id: UUID | None = None
    error_code: int = 0
    is_internal: bool = False
    partitions: Mapping[int, PartitionMetadata] = field(default_factory=lambda: _NOTHING)


@dataclass(frozen=True, slots=True)
class Metadata:
    cluster_id: str | None = None
    controller_id: int = -1
    brokers: Mapping[int, BrokerAddress] = field(default_factory=lambda: _NOTHING)
    topics: Mapping[str, TopicMetadata] = field(default_factory=lambda: _NOTHING)
    names: Mapping[UUID, str] = field(default_factory=lambda: _NOTHING)
    """Topics by their id, where the broker gives ids."""

    def leader(self, topic: str, partition: int) -> tuple[int, int]:
        """Node and leader epoch; (-1, -1) where nobody is known to lead."""
        known = self.topics.get(topic)
        found = None if known is None else known.partitions.get(partition)
        return (NO_LEADER, -1) if found is None else (found.leader, found.leader_epoch)

    def with_brokers(self, brokers: Iterable[BrokerAddress]) -> "Metadata":
        """Brokers that another answer named, for example a group's coordinator."""
        return replace(self, brokers=MappingProxyType({**self.brokers, **{each.node_id: each for each in brokers}}))

    def with_leaders(self, leaders: Iterable[tuple[str, int, int, int]]) -> "Metadata":
        """Topic, partition, node and epoch that an answer named (KIP-951); none goes back to an older epoch."""
        topics = dict(self.topics)
        for name, index, node_id, epoch in leaders:
            topic = topics.get(name)
            known = None if topic is None else topic.partitions.get(index)
            if topic is None or known is None or node_id < 0 or epoch <= known.leader_epoch:
                continue
            fresh = replace(known, leader=node_id, leader_epoch=epoch, error_code=0)
            topics[name] = replace(topic, partitions=MappingProxyType({**topic.partitions, index: fresh}))
        return replace(self, topics=MappingProxyType(topics))

    def without_brokers(self) -> "Metadata":
        return replace(self, brokers=_NOTHING)

    def updated(self, answer: Any, *, is_everything: bool = False) -> "Metadata":
        """The metadata with an answer of any version; `is_everything`: it was asked for all topics."""
        brokers = {
            int(each.node_id): BrokerAddress(int(each.node_id), each.host, int(each.port), getattr(each, "rack", None))
            for each in answer.brokers
        }
        topics: dict[str, TopicMetadata] = {} if is_everything else dict(self.topics)
        for each in answer.topics:
            name = self.names.get(each.topic_id) if each.name is None else each.name
            if name is not None:
                topics[name] = _topic(str(name), each, self.topics.get(name))
        return Metadata(
            cluster_id=getattr(answer, "cluster_id", None) or self.cluster_id,
            controller_id=int(getattr(answer, "controller_id", -1)),
            brokers=MappingProxyType(brokers or self.brokers),
            topics=MappingProxyType(topics),
            names=MappingProxyType({each.topic_id: name for name, each in topics.items() if each.topic_id is not None}),
        )

    def without_topics(self, names: Iterable[str]) -> "Metadata":
        gone = set(names)
        topics = {name: topic for name, topic in self.topics.items() if name not in gone}
        ids = {topic_id: name for topic_id, name in self.names.items() if name not in gone}
        return replace(self, topics=MappingProxyType(topics), names=MappingProxyType(ids))


def _topic(name: str, said: Any, known: TopicMetadata | None) -> TopicMetadata:
    error_code = int(said.error_code)
    topic_id = getattr(said, "topic_id", None)
    if error_code in (Code.UNKNOWN_TOPIC_OR_PART, Code.UNKNOWN_TOPIC_ID):
        return TopicMetadata(name, None, error_code)
    if error_code and not said.partitions and known is not None:
        # For now nobody can say more; what was known may still be true.
        return replace(known, error_code=error_code)
    is_same = known is not None and (topic_id is None or known.topic_id in (None, topic_id))
    before: Mapping[int, PartitionMetadata] = known.partitions if known is not None and is_same else _NOTHING
    partitions = {}
    for each in said.partitions:
        index = int(each.partition_index)
        partitions[index] = _newer(before.get(index), _partition(index, each))
    return TopicMetadata(
        name, topic_id, error_code, bool(getattr(said, "is_internal", False)), MappingProxyType(partitions)
    )


def _partition(index: int, said: Any) -> PartitionMetadata:
    return PartitionMetadata(
        index,
        int(said.leader_id),
        int(getattr(said, "leader_epoch", -1)),
        tuple(map(int, said.replica_nodes)),
        tuple(map(int, said.isr_nodes)),
        int(said.error_code),
    )


def _newer(known: PartitionMetadata | None, said: PartitionMetadata) -> PartitionMetadata:
    if known is None or said.leader_epoch < 0 or said.leader_epoch >= known.leader_epoch:
        return said
    return known
