"""Finding the partition that a request names, with the checks that Kafka makes on the way."""

from typing import Any
from uuid import UUID

from oncelog.server.errors import ErrorCode, KafkaError
from oncelog.server.topics import Partition, Topic, Topics

ANY_EPOCH = -1
INTERNAL = "clients may not write to an internal topic"


def topic_of(topics: Topics, name: str | None, topic_id: UUID | None = None) -> Topic:
    if name is not None:
        topic = topics.get(name)
        if topic is None:
            raise KafkaError(ErrorCode.unknown_topic_or_partition)
        return topic
    topic = None if topic_id is None else topics.by_id(topic_id)
    if topic is None:
        raise KafkaError(ErrorCode.unknown_topic_id)
    return topic


def writable_topic(topics: Topics, name: str) -> Topic:
    topic = topic_of(topics, name)
    if topic.is_internal:
        raise KafkaError(ErrorCode.invalid_topic_exception, INTERNAL)
    return topic


def partition_of(topic: Topic, index: int, leader_epoch: int = ANY_EPOCH) -> Partition:
    """`leader_epoch` is what the client believes; an older or a newer belief must look at the metadata again."""
    if not 0 <= index < len(topic.partitions):
        raise KafkaError(ErrorCode.unknown_topic_or_partition)
    partition = topic.partitions[index]
    if not partition.log.readable:
        # What it knows of itself is empty: offsets, producers and epochs would all be lies.
        raise KafkaError(ErrorCode.kafka_storage_error)
    if leader_epoch != ANY_EPOCH:
        own_epoch = partition.log.leader_epoch
        if leader_epoch < own_epoch:
            raise KafkaError(ErrorCode.fenced_leader_epoch)
        if leader_epoch > own_epoch:
            raise KafkaError(ErrorCode.unknown_leader_epoch)
    return partition


def leadership(partition: Partition, node_id: int) -> dict[str, Any]:
    """What an answer about topics says of a partition: who leads it, and who has its records."""
    return {
        "error_code": ErrorCode.none if partition.log.offline is None else ErrorCode.kafka_storage_error,
        "partition_index": partition.index,
        "leader_id": node_id,
        "leader_epoch": partition.log.leader_epoch,
        "replica_nodes": (node_id,),
        "isr_nodes": (node_id,),
        "offline_replicas": (),
    }
