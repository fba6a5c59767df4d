"""The requests of a consumer other than Fetch, each asked once: whether again is for the caller to decide."""

from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any, NamedTuple, TypeVar

from oncelog.client.errors import error_of
from oncelog.client.fetching.values import FoundEpochEnd, FoundOffset, Partition
from oncelog.client.net.brokers import Brokers
from oncelog.client.types import TopicPartition
from oncelog.wire.requests import RequestSchema

LIST_OFFSETS_VERSIONS = (1, 10)
EPOCH_VERSIONS = (2, 4)  # before, brokers do not say which epoch they mean
OFFSET_FETCH_VERSIONS = (3, 9)  # one group; with topic names
OFFSET_COMMIT_VERSIONS = (2, 9)
CONSUMER_REPLICA = -1
NO_GENERATION = -1
LIST_TIMEOUT = timedelta(seconds=30)

T = TypeVar("T")


def by_topic(partitions: Iterable[tuple[Partition, T]]) -> dict[str, list[tuple[int, T]]]:
    found: dict[str, list[tuple[int, T]]] = {}
    for (topic, index), more in partitions:
        found.setdefault(topic, []).append((index, more))
    return found


class TimeFound(NamedTuple):
    found: FoundOffset
    timestamp_ms: int


async def list_offsets(
    brokers: Brokers,
    node_id: int,
    asked: Iterable[tuple[Partition, int, int]],
    *,
    read_committed: bool,
    timeout_ms: int | None = None,
) -> list[TimeFound]:
    """Where a time, or the log's beginning or end, is; each partition comes with its leader's epoch and that time."""
    topics = by_topic((partition, (epoch, timestamp)) for partition, epoch, timestamp in asked)

    def build(spoken: RequestSchema) -> Any:
        return spoken.new(
            "ListOffsetsRequest",
            replica_id=CONSUMER_REPLICA,
            isolation_level=int(read_committed),
            timeout=LIST_TIMEOUT,
            topics=tuple(
                spoken.new(
                    "ListOffsetsTopic",
                    name=topic,
                    partitions=tuple(
                        spoken.new(
                            "ListOffsetsPartition",
                            partition_index=index,
                            current_leader_epoch=epoch,
                            timestamp=timestamp,
                        )
                        for index, (epoch, timestamp) in partitions
                    ),
                )
                for topic, partitions in topics.items()
            ),
        )

    answer = await brokers.request(
        node_id, "list_offsets", build, versions=LIST_OFFSETS_VERSIONS, timeout_ms=timeout_ms
    )
    return [
        TimeFound(
            FoundOffset(
                (str(topic.name), int(each.partition_index)),
                int(each.error_code),
                int(each.offset),
                int(getattr(each, "leader_epoch", -1)),
            ),
            int(each.timestamp),
        )
        for topic in answer.topics
        for each in topic.partitions
    ]


async def epoch_ends(
    brokers: Brokers, node_id: int, asked: Iterable[tuple[Partition, int, int]]
) -> list[FoundEpochEnd]:
    topics = by_topic((partition, (leader_epoch, epoch)) for partition, leader_epoch, epoch in asked)

    def build(spoken: RequestSchema) -> Any:
        return spoken.new(
            "OffsetForLeaderEpochRequest",
            replica_id=CONSUMER_REPLICA,
            topics=tuple(
                spoken.new(
                    "OffsetForLeaderTopic",
                    topic=topic,
                    partitions=tuple(
                        spoken.new(
                            "OffsetForLeaderPartition",
                            partition=index,
                            current_leader_epoch=leader_epoch,
                            leader_epoch=epoch,
                        )
                        for index, (leader_epoch, epoch) in partitions
                    ),
                )
                for topic, partitions in topics.items()
            ),
        )

    answer = await brokers.request(node_id, "offset_for_leader_epoch", build, versions=EPOCH_VERSIONS)
    return [
        FoundEpochEnd(
            (str(topic.topic), int(each.partition)),
            int(each.error_code),
            int(each.leader_epoch),
            int(each.end_offset),
        )
        for topic in answer.topics
        for each in topic.partitions
    ]


class Committed(NamedTuple):
    error_code: int
    offset: int
    leader_epoch: int
    metadata: str | None


async def fetch_committed(
    brokers: Brokers,
    node_id: int,
    group_id: str,
    partitions: Iterable[Partition],
    *,
    require_stable: bool,
    timeout_ms: int | None = None,
) -> tuple[int, dict[Partition, Committed]]:
    """An error of the whole group, and what it has committed; -1 is nothing."""
    topics = by_topic((partition, None) for partition in partitions)

    def build(spoken: RequestSchema) -> Any:
        if spoken.version >= 8:
            wanted = tuple(
                spoken.new(
                    "OffsetFetchRequestTopics", name=topic, partition_indexes=tuple(index for index, _ in indexes)
                )
                for topic, indexes in topics.items()
            )
            group = spoken.new(
                "OffsetFetchRequestGroup", group_id=group_id, member_id=None, member_epoch=-1, topics=wanted
            )
            return spoken.new("OffsetFetchRequest", groups=(group,), require_stable=require_stable)
        wanted = tuple(
            spoken.new("OffsetFetchRequestTopic", name=topic, partition_indexes=tuple(index for index, _ in indexes))
            for topic, indexes in topics.items()
        )
        return spoken.new("OffsetFetchRequest", group_id=group_id, topics=wanted, require_stable=require_stable)

    answer = await brokers.request(
        node_id, "offset_fetch", build, versions=OFFSET_FETCH_VERSIONS, timeout_ms=timeout_ms
    )
    group = answer.groups[0] if hasattr(answer, "groups") else answer
    found = {
        (str(topic.name), int(each.partition_index)): Committed(
            int(each.error_code),
            int(each.committed_offset),
            int(getattr(each, "committed_leader_epoch", -1)),
            each.metadata,
        )
        for topic in group.topics
        for each in topic.partitions
    }
    return int(group.error_code), found


class Member(NamedTuple):
    """Who commits: somebody outside of any generation unless a group says otherwise."""

    generation: int = NO_GENERATION
    member_id: str = ""
    instance_id: str | None = None


class ToCommit(NamedTuple):
    offset: int
    leader_epoch: int = -1
    metadata: str = ""


def topic_partitions(offsets: Mapping[Partition, ToCommit], codes: Mapping[Partition, int]) -> list[TopicPartition]:
    """How an application is told what was committed, and what not."""
    return [
        TopicPartition(
            topic,
            index,
            each.offset,
            each.metadata or None,
            each.leader_epoch,
            error=error_of(codes[topic, index]) if codes.get((topic, index)) else None,
        )
        for (topic, index), each in offsets.items()
    ]


async def commit(
    brokers: Brokers,
    node_id: int,
    group_id: str,
    offsets: Mapping[Partition, ToCommit],
    member: Member,
    *,
    timeout_ms: int | None = None,
) -> dict[Partition, int]:
    """An error code for each partition."""
    topics = by_topic(offsets.items())

    def build(spoken: RequestSchema) -> Any:
        return spoken.new(
            "OffsetCommitRequest",
            group_id=group_id,
            generation_id_or_member_epoch=member.generation,
            member_id=member.member_id,
            group_instance_id=member.instance_id,
            retention_time=timedelta(milliseconds=-1),
            topics=tuple(
                spoken.new(
                    "OffsetCommitRequestTopic",
                    name=topic,
                    partitions=tuple(
                        spoken.new(
                            "OffsetCommitRequestPartition",
                            partition_index=index,
                            committed_offset=each.offset,
                            committed_leader_epoch=each.leader_epoch,
                            committed_metadata=each.metadata,
                        )
                        for index, each in partitions
                    ),
                )
                for topic, partitions in topics.items()
            ),
        )

    answer = await brokers.request(
        node_id, "offset_commit", build, versions=OFFSET_COMMIT_VERSIONS, timeout_ms=timeout_ms
    )
    return {
        (str(topic.name), int(each.partition_index)): int(each.error_code)
        for topic in answer.topics
        for each in topic.partitions
    }
