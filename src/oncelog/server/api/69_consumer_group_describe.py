"""ConsumerGroupDescribe: groups of KIP-848, with what each member has and is to have.

Versions 0 and 1. KIP-848, KIP-1099 (v1: the protocol of each member).
"""

from typing import Any
from uuid import UUID

from oncelog.security.operations import Operation, Resource
from oncelog.server.api import Api
from oncelog.server.call import Call
from oncelog.server.errors import ErrorCode
from oncelog.server.groups.consumer.group import ConsumerGroup
from oncelog.server.groups.consumer.members import Member
from oncelog.server.operations import NOT_ASKED
from oncelog.server.packing import packed_aside

CLASSIC, CONSUMER = 0, 1
UNKNOWN_TOPIC = "<UNKNOWN>"


@packed_aside
async def handle(request: Any, call: Call) -> Any:
    tells = request.include_authorized_operations
    groups = await call.each(dict.fromkeys(request.group_ids), lambda group_id: _described(group_id, tells, call))
    return call.new("ConsumerGroupDescribeResponse", groups=groups)


async def _described(group_id: str, tells: bool, call: Call) -> Any:
    if not call.rights.may(Operation.DESCRIBE, Resource.GROUP, group_id):
        return _refused(group_id, ErrorCode.group_authorization_failed, None, call)
    groups = call.broker.groups
    if not groups.consumer.is_enabled:
        return _refused(group_id, ErrorCode.unsupported_version, None, call)
    group, error = groups.consumer.get(group_id), groups.check_group_id(group_id)
    if error is ErrorCode.none and group is None:
        is_other = group_id in groups.groups
        message = f"Group {group_id} is not a consumer group." if is_other else f"Group {group_id} not found."
        return _refused(group_id, ErrorCode.group_id_not_found, message, call)
    if group is None or error is not ErrorCode.none:
        return _refused(group_id, error, None, call)
    if not await _may_know_all(group, call):
        message = "The group has described topic(s) that the client is not authorized to describe."
        return _refused(group_id, ErrorCode.topic_authorization_failed, message, call)
    return call.new(
        "DescribedGroup",
        error_code=ErrorCode.none,
        error_message=None,
        group_id=group_id,
        group_state=group.state.value,
        group_epoch=group.members.epoch,
        assignment_epoch=group.members.target_epoch,
        assignor_name=group.sharing.assignor,
        members=await call.each(group.members, lambda member: _member(member, group, call)),
        authorized_operations=call.rights.operations(Resource.GROUP, group_id) if tells else NOT_ASKED,
    )


async def _may_know_all(group: ConsumerGroup, call: Call) -> bool:
    ids: set[bytes] = set()

    def note(member: Member) -> None:
        target = group.members.target_of(member.member_id)
        ids.update(place.topic_id for places in (member.current.assigned, target) for place in places)

    def may_know(topic_id: bytes) -> bool:
        topic = call.broker.topics.by_id(UUID(bytes=topic_id))
        return topic is None or call.rights.may(Operation.DESCRIBE, Resource.TOPIC, topic.name)

    await call.each(group.members, note)
    return all(await call.each(ids, may_know))


def _refused(group_id: str, error: ErrorCode, message: str | None, call: Call) -> Any:
    return call.new(
        "DescribedGroup",
        error_code=error,
        error_message=message,
        group_id=group_id,
        group_state="",
        group_epoch=0,
        assignment_epoch=0,
        assignor_name="",
        members=(),
        authorized_operations=NOT_ASKED,
    )


async def _member(member: Member, group: ConsumerGroup, call: Call) -> Any:
    said, current = member.said, member.current
    return call.new(
        "Member",
        member_id=member.member_id,
        instance_id=said.instance_id,
        rack_id=said.rack_id,
        member_epoch=current.epoch,
        client_id=said.client_id,
        client_host=said.client_host,
        subscribed_topic_names=said.topics,
        subscribed_topic_regex=said.pattern or "",
        assignment=await _assignment(current.assigned.keys(), call),
        target_assignment=await _assignment(group.members.target_of(member.member_id), call),
        member_type=CONSUMER if said.classic is None else CLASSIC,
    )


async def _assignment(places: Any, call: Call) -> Any:
    by_topic: dict[bytes, list[int]] = {}
    for place in sorted(places):
        by_topic.setdefault(place.topic_id, []).append(place.partition)
    return call.new("Assignment", topic_partitions=await call.each(by_topic.items(), lambda each: _topic(*each, call)))


def _topic(topic_id: bytes, indexes: list[int], call: Call) -> Any:
    found = UUID(bytes=topic_id)
    topic = call.broker.topics.by_id(found)
    return call.new(
        "TopicPartitions",
        topic_id=found,
        topic_name=UNKNOWN_TOPIC if topic is None else topic.name,
        partitions=tuple(indexes),
    )


API = Api(key=69, name="consumer_group_describe", versions=(0, 1), handle=handle)
