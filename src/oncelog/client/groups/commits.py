"""The committed offsets of a group: read and written, each asked once. The caller decides whether to ask again."""

from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from oncelog.client.errors import error_of, exception_of
from oncelog.client.groups.membership_steps import Member
from oncelog.client.net.coordinators import has_moved
from oncelog.client.net.offsets import with_topics
from oncelog.client.types import TopicPartition
from oncelog.slots import AnyPlace
from oncelog.wire.requests import RequestSchema

if TYPE_CHECKING:
    from oncelog.client.net.brokers import Brokers

OFFSET_FETCH_VERSIONS: Final = (3, 9)  # one group; with topic names
OFFSET_COMMIT_VERSIONS: Final = (2, 9)
ANYBODY: Final = Member()


class Committed(NamedTuple):
    error_code: int
    offset: int
    leader_epoch: int
    metadata: str | None


async def fetch_committed(
    brokers: "Brokers",
    node_id: int,
    group_id: str,
    partitions: Iterable[AnyPlace],
    *,
    require_stable: bool,
    member: Member = ANYBODY,
    timeout_ms: int | None = None,
) -> tuple[int, dict[AnyPlace, Committed]]:
    """An error of the whole group, and what it has committed; -1 is nothing. A member is one of KIP-848."""
    topics = with_topics((partition, None) for partition in partitions)

    def build(spoken: RequestSchema) -> Any:
        if spoken.version >= 8:
            wanted = tuple(
                spoken.new(
                    "OffsetFetchRequestTopics", name=topic, partition_indexes=tuple(index for index, _ in indexes)
                )
                for topic, indexes in topics.items()
            )
            group = spoken.new(
                "OffsetFetchRequestGroup",
                group_id=group_id,
                member_id=member.member_id or None,
                member_epoch=member.generation,
                topics=wanted,
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


class ToCommit(NamedTuple):
    offset: int
    leader_epoch: int = -1
    metadata: str = ""


def topic_partitions(offsets: Mapping[AnyPlace, ToCommit], codes: Mapping[AnyPlace, int]) -> list[TopicPartition]:
    """The result of a commit for the application: the offsets, each with its error where it failed."""
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


async def commit_offsets(
    brokers: "Brokers",
    node_id: int,
    group_id: str,
    offsets: Mapping[AnyPlace, ToCommit],
    member: Member,
    *,
    timeout_ms: int | None = None,
) -> dict[AnyPlace, int]:
    """An error code for each partition."""
    topics = with_topics(offsets.items())

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


async def commit_to_group(
    brokers: "Brokers",
    group_id: str,
    offsets: Mapping[AnyPlace, ToCommit],
    member: Member = ANYBODY,
    *,
    timeout_ms: int | None = None,
) -> dict[AnyPlace, int]:
    """Commit by the group's coordinator, which the client keeps. Where it has moved, that is raised, and the next
    commit looks for another one."""
    async with brokers.coordinators.at(group_id) as node_id:
        codes = await commit_offsets(brokers, node_id, group_id, offsets, member, timeout_ms=timeout_ms)
        for code in filter(has_moved, codes.values()):
            raise exception_of(code)
        return codes
