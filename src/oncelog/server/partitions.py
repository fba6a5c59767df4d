"""Finding the partition that a request names, with the checks that Kafka makes on the way."""

from collections.abc import Set as AbstractSet
from typing import Any
from uuid import UUID

from oncelog.replication.leadership import NOBODY, Leadership
from oncelog.server.errors import ErrorCode, KafkaError
from oncelog.server.ports import Cluster
from oncelog.server.topics import Partition, Topic, Topics

ANY_EPOCH = -1
INTERNAL = "clients may not write to an internal topic"
TOO_FEW = "fewer replicas are in sync than min.insync.replicas; nothing was appended, send it again"
NOT_HERE = "another broker leads the partition; ask for the metadata again"


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


def partition_of(topic: Topic, index: int, leader_epoch: int = ANY_EPOCH, *, or_follower: bool = False) -> Partition:
    """`leader_epoch` is what the client believes; an older or a newer belief must look at the metadata again."""
    if not 0 <= index < len(topic.partitions):
        raise KafkaError(ErrorCode.unknown_topic_or_partition)
    partition = topic.partitions[index]
    if not (partition.leads or (or_follower and partition.is_open)):
        raise KafkaError(ErrorCode.not_leader_or_follower, NOT_HERE)
    if not partition.log.readable:
        # Its own state is empty: offsets, producers and epochs would all be wrong.
        raise KafkaError(ErrorCode.kafka_storage_error)
    if leader_epoch != ANY_EPOCH:
        own_epoch = partition.log.leader_epoch
        if leader_epoch < own_epoch:
            raise KafkaError(ErrorCode.fenced_leader_epoch)
        if leader_epoch > own_epoch:
            raise KafkaError(ErrorCode.unknown_leader_epoch)
    return partition


def why_unwritable(
    partition: Partition, size_bytes: int, *, needs_all: bool, is_sure: bool
) -> tuple[ErrorCode, str] | None:
    """Whatever the batch is; the size is negative where there is none. Where this broker cannot be sure that it still
    leads, only what others must have, too, may be acknowledged."""
    if not partition.leads or not (is_sure or needs_all):
        return ErrorCode.not_leader_or_follower, NOT_HERE
    if size_bytes < 0:
        return ErrorCode.invalid_record, "no records"
    if needs_all and not partition.has_enough_in_sync:
        return ErrorCode.not_enough_replicas, TOO_FEW
    limit_bytes = partition.log.config.max_message_bytes
    if size_bytes > limit_bytes:
        return ErrorCode.message_too_large, f"{size_bytes} bytes are more than max.message.bytes={limit_bytes}"
    return None


def registered(cluster: Cluster) -> AbstractSet[int]:
    """The brokers that may be given something: those that are down, too."""
    return cluster.members.keys() | cluster.away.keys()


def staying(cluster: Cluster) -> AbstractSet[int]:
    """The brokers that are up, and not about to end."""
    return cluster.members.keys() - cluster.away.keys()


def leadership(partition: Partition, cluster: Cluster) -> dict[str, Any]:
    """The fields of a partition in an answer about topics: its leader, and the brokers that have its records."""
    state, code = partition.leadership, ErrorCode.none
    if partition.is_open and partition.log.offline is not None:
        code = ErrorCode.kafka_storage_error
    if state is None:
        node_id = cluster.node_id
        state = Leadership((node_id,), node_id, partition.log.leader_epoch, (node_id,))
    members = cluster.members
    is_led = state.leader in members
    if not is_led and code is ErrorCode.none:
        code = ErrorCode.leader_not_available
    return {
        "error_code": code,
        "partition_index": partition.index,
        "leader_id": state.leader if is_led else NOBODY,
        "leader_epoch": state.epoch,
        "replica_nodes": state.replicas,
        "isr_nodes": state.in_sync,
        "offline_replicas": tuple(broker for broker in state.replicas if broker not in members),
    }
