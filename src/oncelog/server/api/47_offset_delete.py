"""OffsetDelete: forget some offsets of a group that does not read those topics any more.

Version 0. KIP-496.
"""

from typing import Any

from oncelog.security.operations import Operation, Resource
from oncelog.server.api import Api
from oncelog.server.api_rights import demand
from oncelog.server.call import Call
from oncelog.server.errors import ErrorCode
from oncelog.server.groups.offsets import TopicPartition
from oncelog.server.packing import packed_aside

CHECKED_AT_A_TIME = 100
Errors = list[list[ErrorCode]]  # of each partition of each topic, in the order of the request


@packed_aside
async def handle(request: Any, call: Call) -> Any:
    demand(call.rights, Operation.DELETE, Resource.GROUP, request.group_id)
    groups, turns = call.broker.groups, call.broker.turns
    errors: Errors = []
    error = groups.check_delete_offsets(request.group_id)
    for wanted in request.topics:
        of_topic: list[ErrorCode] = []
        if not call.rights.may(Operation.READ, Resource.TOPIC, wanted.name):
            errors.append([ErrorCode.topic_authorization_failed] * len(wanted.partitions))
            continue
        for start in range(0, len(wanted.partitions), CHECKED_AT_A_TIME):
            if turns.is_over():
                await turns.next()
            if error is ErrorCode.none:
                error = groups.check_delete_offsets(request.group_id)  # others had turns meanwhile
            if error is ErrorCode.none:
                some = wanted.partitions[start : start + CHECKED_AT_A_TIME]
                error = _delete(request.group_id, wanted.name, [each.partition_index for each in some], of_topic, call)
        errors.append(of_topic)
    if error is ErrorCode.none:
        settled = groups.settled(request.group_id)
        error = settled if isinstance(settled, ErrorCode) else await settled
    return await _answer(request, call, error, errors)


def _delete(group_id: str, topic: str, partitions: list[int], errors: list[ErrorCode], call: Call) -> ErrorCode:
    """The refusal of the whole topic; that of each partition goes to `errors`."""
    groups = call.broker.groups
    error = ErrorCode.group_subscribed_to_topic if groups.groups[group_id].is_subscribed_to(topic) else ErrorCode.none
    there = [call.broker.topics.partition(topic, each) is not None for each in partitions]
    errors.extend(error if is_there else ErrorCode.unknown_topic_or_partition for is_there in there)
    if error is not ErrorCode.none:
        return ErrorCode.none
    found = [TopicPartition(topic, each) for each, is_there in zip(partitions, there, strict=True) if is_there]
    settled = groups.delete_offsets(group_id, found, call.now)
    return settled if isinstance(settled, ErrorCode) else ErrorCode.none


async def _answer(request: Any, call: Call, error: ErrorCode, errors: Errors) -> Any:
    async def topic(each: tuple[Any, list[ErrorCode]]) -> Any:
        wanted, of_topic = each
        return call.new(
            "OffsetDeleteResponseTopic",
            name=wanted.name,
            partitions=await call.each(
                zip(wanted.partitions, of_topic, strict=True),
                lambda pair: call.new(
                    "OffsetDeleteResponsePartition", partition_index=pair[0].partition_index, error_code=pair[1]
                ),
            ),
        )

    topics = zip(request.topics, errors, strict=True) if error is ErrorCode.none else ()
    return call.new("OffsetDeleteResponse", error_code=error, topics=await call.each(topics, topic))


API = Api(key=47, name="offset_delete", versions=(0, 0), handle=handle)
