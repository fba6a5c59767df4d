"""The answer of `list_topics`, shaped as in confluent-kafka."""

from dataclasses import dataclass, field

from oncelog.client.errors import KafkaError, error_of
from oncelog.client.net.metadata import Metadata
from oncelog.client.net.metadata import PartitionMetadata as KnownPartition
from oncelog.client.net.metadata import TopicMetadata as KnownTopic


@dataclass(slots=True)
class BrokerMetadata:
    id: int
    host: str
    port: int


@dataclass(slots=True)
class PartitionMetadata:
    id: int
    leader: int
    replicas: list[int]
    isrs: list[int]
    error: KafkaError | None = None


@dataclass(slots=True)
class TopicMetadata:
    topic: str
    partitions: dict[int, PartitionMetadata] = field(default_factory=dict)
    error: KafkaError | None = None


@dataclass(slots=True)
class ClusterMetadata:
    cluster_id: str | None
    controller_id: int
    brokers: dict[int, BrokerMetadata]
    topics: dict[str, TopicMetadata]
    orig_broker_id: int = -1
    orig_broker_name: str | None = None


def cluster_metadata(metadata: Metadata, topic: str | None = None) -> ClusterMetadata:
    """All topics, or the one that was asked for: with its error where it is not there."""
    if topic is None:
        topics = {name: _topic(known) for name, known in metadata.topics.items()}
    elif topic in metadata.topics:
        topics = {topic: _topic(metadata.topics[topic])}
    else:
        topics = {topic: TopicMetadata(topic, error=error_of(KafkaError.UNKNOWN_TOPIC_OR_PART))}
    return ClusterMetadata(
        metadata.cluster_id,
        metadata.controller_id,
        {node: BrokerMetadata(node, each.host, each.port) for node, each in metadata.brokers.items()},
        topics,
    )


def _topic(known: KnownTopic) -> TopicMetadata:
    partitions = {index: _partition(each) for index, each in known.partitions.items()}
    return TopicMetadata(known.name, partitions, error_of(known.error_code) if known.error_code else None)


def _partition(known: KnownPartition) -> PartitionMetadata:
    error = error_of(known.error_code) if known.error_code else None
    return PartitionMetadata(known.index, known.leader, list(known.replicas), list(known.in_sync), error)
