"""Consumer groups: who is there, who is a member, what is committed."""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from oncelog.client.admin.timeouts import Timeouts, refusal
from oncelog.client.admin.values import GroupDescription, GroupListing, GroupOffsets, MemberDescription
from oncelog.client.errors import KafkaError, KafkaException, error_of, exception_of
from oncelog.client.groups import commits
from oncelog.client.groups.membership_steps import Member
from oncelog.client.groups.protocol import MalformedMessage, decode_assignment
from oncelog.client.net.coordinators import has_moved
from oncelog.client.net.retry import Outcomes
from oncelog.client.types import OFFSET_INVALID, TopicPartition
from oncelog.slots import AnyPlace

if TYPE_CHECKING:
    from oncelog.client.net.brokers import Brokers

DEAD = "Dead"
CLASSIC = "classic"
MEMBER_TYPES = {0: CLASSIC, 1: "consumer"}


async def list_groups(
    brokers: "Brokers", timeouts: Timeouts, states: Sequence[str] = ()
) -> tuple[list[GroupListing], list[KafkaException]]:
    """All groups of all brokers, and the failures of brokers that could not be asked."""
    await timeouts.spend_on(brokers.refresh(()))
    nodes = sorted(brokers.metadata.brokers)

    async def once(left: list[int]) -> Outcomes[int]:
        return await timeouts.ask_nodes({node_id: [node_id] for node_id in left}, ask_node)

    async def ask_node(node_id: int, _: list[int]) -> Outcomes[int]:
        answer = await brokers.request(
            node_id,
            "list_groups",
            lambda spoken: spoken.new("ListGroupsRequest", states_filter=tuple(states), types_filter=()),
            timeout_ms=timeouts.request_timeout_ms,
        )
        return {node_id: refusal(answer.error_code) or [_listing(each) for each in answer.groups]}

    found: list[GroupListing] = []
    failures: list[KafkaException] = []
    for outcome in (await timeouts.ask(nodes, once)).values():
        if isinstance(outcome, KafkaException):
            failures.append(outcome)
        else:
            found += outcome
    wanted = [each for each in found if not states or each.state in ("", *states)]
    return sorted(wanted, key=lambda each: each.group_id), failures


def _listing(said: Any) -> GroupListing:
    group_type = getattr(said, "group_type", "").lower()  # Kafka writes it as Classic or Consumer
    return GroupListing(str(said.group_id), getattr(said, "group_state", ""), said.protocol_type, group_type)


async def _ask_coordinators(
    brokers: "Brokers",
    group_ids: Sequence[str],
    timeouts: Timeouts,
    ask_node: Callable[[int, list[str]], Awaitable[Outcomes[str]]],
    *,
    done_already: int = 0,
) -> Outcomes[str]:
    async def once(left: list[str]) -> Outcomes[str]:
        by_node: dict[int, list[str]] = {}
        outcomes: Outcomes[str] = {}
        for group_id in left:
            try:
                by_node.setdefault(await brokers.coordinators.node(group_id), []).append(group_id)
            except KafkaException as failure:
                outcomes[group_id] = failure
        outcomes |= await timeouts.ask_nodes(by_node, ask_node)
        for group_id in left:
            outcome = outcomes.get(group_id)  # None: it was too late
            if outcome is None or (isinstance(outcome, KafkaException) and has_moved(outcome.error.code())):
                brokers.coordinators.forget(group_id)
        return outcomes

    return await timeouts.ask(group_ids, once, done_already=done_already)


async def describe_groups(brokers: "Brokers", group_ids: Sequence[str], timeouts: Timeouts) -> Outcomes[str]:
    async def ask_node(node_id: int, asked: list[str]) -> Outcomes[str]:
        answer = await brokers.request(
            node_id,
            "describe_groups",
            lambda spoken: spoken.new(
                "DescribeGroupsRequest", groups=tuple(asked), include_authorized_operations=False
            ),
            timeout_ms=timeouts.request_timeout_ms,
        )
        return {
            str(each.group_id): refusal(each.error_code, getattr(each, "error_message", None))
            or _description(each, node_id)
            for each in answer.groups
        }

    outcomes = await _ask_coordinators(brokers, group_ids, timeouts, ask_node)
    for group_id, outcome in outcomes.items():
        if isinstance(outcome, GroupDescription) and outcome.state == DEAD:
            # Kafka's way to say that there is no such group.
            outcomes[group_id] = exception_of(KafkaError.GROUP_ID_NOT_FOUND, f"group {group_id}")
    missing = [each for each, outcome in outcomes.items() if _is_missing(outcome)]
    newer = await _ask_coordinators(brokers, missing, timeouts, partial(_ask_of_newer, brokers, timeouts))
    return outcomes | {each: found for each, found in newer.items() if isinstance(found, GroupDescription)}


def _is_missing(outcome: object) -> bool:
    return isinstance(outcome, KafkaException) and outcome.args[0].code() == KafkaError.GROUP_ID_NOT_FOUND


async def _ask_of_newer(brokers: "Brokers", timeouts: Timeouts, node_id: int, asked: list[str]) -> Outcomes[str]:
    """Groups of KIP-848, of which the older request knows nothing."""
    answer = await brokers.request(
        node_id,
        "consumer_group_describe",
        lambda spoken: spoken.new(
            "ConsumerGroupDescribeRequest", group_ids=tuple(asked), include_authorized_operations=False
        ),
        timeout_ms=timeouts.request_timeout_ms,
    )
    return {
        str(each.group_id): refusal(each.error_code, each.error_message) or _newer_description(each, node_id)
        for each in answer.groups
    }


def _newer_description(said: Any, node_id: int) -> GroupDescription:
    members = tuple(
        MemberDescription(
            each.member_id,
            each.client_id,
            each.client_host,
            each.instance_id,
            tuple(
                sorted(
                    (str(topic.topic_name), index)
                    for topic in each.assignment.topic_partitions
                    for index in topic.partitions
                )
            ),
            MEMBER_TYPES.get(getattr(each, "member_type", -1), ""),
        )
        for each in said.members
    )
    return GroupDescription(str(said.group_id), said.group_state, "consumer", said.assignor_name, node_id, members)


def _description(said: Any, node_id: int) -> GroupDescription:
    members = tuple(
        MemberDescription(
            each.member_id,
            each.client_id,
            each.client_host,
            getattr(each, "group_instance_id", None),
            _assigned(bytes(each.member_assignment)),
            CLASSIC,
        )
        for each in said.members
    )
    return GroupDescription(
        str(said.group_id), said.group_state, said.protocol_type, said.protocol_data, node_id, members
    )


def _assigned(assignment: bytes) -> tuple[AnyPlace, ...]:
    """Groups of other kinds (Connect's) put other bytes there."""
    try:
        return tuple(sorted(decode_assignment(assignment)))
    except MalformedMessage:
        return ()


async def delete_groups(brokers: "Brokers", group_ids: Sequence[str], timeouts: Timeouts) -> Outcomes[str]:
    async def ask_node(node_id: int, asked: list[str]) -> Outcomes[str]:
        answer = await brokers.request(
            node_id,
            "delete_groups",
            lambda spoken: spoken.new("DeleteGroupsRequest", groups_names=tuple(asked)),
            timeout_ms=timeouts.request_timeout_ms,
        )
        return {str(each.group_id): refusal(each.error_code) for each in answer.results}

    gone = KafkaError.GROUP_ID_NOT_FOUND
    return await _ask_coordinators(brokers, group_ids, timeouts, ask_node, done_already=gone)


async def group_offsets(brokers: "Brokers", wanted: GroupOffsets, timeouts: Timeouts) -> GroupOffsets:
    """The committed offsets; of all partitions where none are named."""

    async def ask_node(node_id: int, _: list[str]) -> Outcomes[str]:
        def build(spoken: Any) -> Any:
            topics = (
                None
                if wanted.topic_partitions is None
                else tuple(
                    spoken.new("OffsetFetchRequestTopic", name=topic, partition_indexes=tuple(indexes))
                    for topic, indexes in _indexes(wanted.topic_partitions).items()
                )
            )
            return spoken.new("OffsetFetchRequest", group_id=wanted.group_id, topics=topics, require_stable=False)

        answer = await brokers.request(
            node_id, "offset_fetch", build, versions=(2, 7), timeout_ms=timeouts.request_timeout_ms
        )
        return {wanted.group_id: refusal(answer.error_code) or [_committed(*each) for each in _cells(answer)]}

    outcome = (await _ask_coordinators(brokers, [wanted.group_id], timeouts, ask_node))[wanted.group_id]
    if isinstance(outcome, KafkaException):
        raise outcome
    return GroupOffsets(wanted.group_id, sorted(outcome))


def _committed(topic: str, said: Any) -> TopicPartition:
    offset = int(said.committed_offset)
    return TopicPartition(
        topic,
        int(said.partition_index),
        offset if offset >= 0 else OFFSET_INVALID,
        said.metadata or None,
        getattr(said, "committed_leader_epoch", None),
        error=error_of(int(said.error_code)) if said.error_code else None,
    )


async def alter_group_offsets(brokers: "Brokers", wanted: GroupOffsets, timeouts: Timeouts) -> GroupOffsets:
    """Commit for a group that has no members; a group that has some refuses it."""
    given = {(each.topic, each.partition): each for each in wanted.topic_partitions or ()}
    offsets = {place: commits.ToCommit(each.offset, metadata=each.metadata or "") for place, each in given.items()}

    async def ask_node(node_id: int, _: list[str]) -> Outcomes[str]:
        timeout_ms = timeouts.request_timeout_ms
        codes = await commits.commit_offsets(
            brokers, node_id, wanted.group_id, offsets, Member(), timeout_ms=timeout_ms
        )
        return {wanted.group_id: _told(codes, given)}

    return await _offsets_changed(brokers, wanted, timeouts, ask_node)


async def delete_group_offsets(brokers: "Brokers", wanted: GroupOffsets, timeouts: Timeouts) -> GroupOffsets:
    partitions = {(each.topic, each.partition): each for each in wanted.topic_partitions or ()}

    async def ask_node(node_id: int, _: list[str]) -> Outcomes[str]:
        def build(spoken: Any) -> Any:
            topics = tuple(
                spoken.new(
                    "OffsetDeleteRequestTopic",
                    name=topic,
                    partitions=tuple(
                        spoken.new("OffsetDeleteRequestPartition", partition_index=index) for index in indexes
                    ),
                )
                for topic, indexes in _indexes(list(partitions.values())).items()
            )
            return spoken.new("OffsetDeleteRequest", group_id=wanted.group_id, topics=topics)

        answer = await brokers.request(node_id, "offset_delete", build, timeout_ms=timeouts.request_timeout_ms)
        codes = {(topic, int(each.partition_index)): int(each.error_code) for topic, each in _cells(answer)}
        return {wanted.group_id: refusal(answer.error_code) or _told(codes, partitions)}

    return await _offsets_changed(brokers, wanted, timeouts, ask_node)


async def _offsets_changed(
    brokers: "Brokers",
    wanted: GroupOffsets,
    timeouts: Timeouts,
    ask_node: Callable[[int, list[str]], Awaitable[Outcomes[str]]],
) -> GroupOffsets:
    outcome = (await _ask_coordinators(brokers, [wanted.group_id], timeouts, ask_node))[wanted.group_id]
    if isinstance(outcome, KafkaException):
        raise outcome
    return GroupOffsets(wanted.group_id, outcome)


def _told(codes: dict[AnyPlace, int], given: dict[AnyPlace, TopicPartition]) -> list[TopicPartition] | KafkaException:
    """The group's error where all have the same one; else each partition with its own."""
    if codes and len(set(codes.values())) == 1 and (failure := refusal(next(iter(codes.values())))):
        return failure
    told = []
    for partition, each in given.items():
        code = codes.get(partition, KafkaError._BAD_MSG)  # who is left out of the answer must not seem to be done
        told.append(TopicPartition(*partition, each.offset, each.metadata, error=error_of(code) if code else None))
    return sorted(told)


def _cells(answer: Any) -> list[tuple[str, Any]]:
    return [(str(topic.name), each) for topic in answer.topics for each in topic.partitions]


def _indexes(partitions: Sequence[TopicPartition]) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = {}
    for each in partitions:
        topics.setdefault(each.topic, []).append(each.partition)
    return topics
