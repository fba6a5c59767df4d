"""OffsetDelete: forget some offsets of a group that does not read those topics any more.

Version 0. KIP-496.
"""

from typing import Any

from oncelog.server.api import Api
from oncelog.server.call import Call
from oncelog.server.errors import ErrorCode
from oncelog.server.groups.offsets import TopicPartition
from oncelog.server.packing import packed_aside

Errors = list[list[ErrorCode]]  # of each partition of each topic, in the order of the request


@packed_aside
async def handle(request: Any, call: Call) -> Any:
    groups = call.broker.groups
    error = groups.check_delete_offsets(request.group_id)
    if error is not ErrorCode.none:
        return _answer(request, call, error, [])
    group = groups.groups[request.group_id]
    errors: Errors = []
    deleted: list[TopicPartition] = []
    turns = call.broker.turns
    for wanted in request.topics:
        is_in_use = group.is_subscribed_to(wanted.name)
        of_topic = []
        for entry in wanted.partitions:
            if turns.is_over():
                await turns.next()
            if call.broker.topics.partition(wanted.name, entry.partition_index) is None:
                of_topic.append(ErrorCode.unknown_topic_or_partition)
            elif is_in_use:
                of_topic.append(ErrorCode.group_subscribed_to_topic)
            else:
                of_topic.append(ErrorCode.none)
                deleted.append(TopicPartition(wanted.name, entry.partition_index))
        errors.append(of_topic)
    settled = groups.delete_offsets(request.group_id, deleted, call.now)
    return _answer(request, call, settled if isinstance(settled, ErrorCode) else await settled, errors)


def _answer(request: Any, call: Call, error: ErrorCode, errors: Errors) -> Any:
    topics = zip(request.topics, errors, strict=True) if error is ErrorCode.none else ()
    return call.new(
        "OffsetDeleteResponse",
        error_code=error,
        topics=tuple(
            call.new(
                "OffsetDeleteResponseTopic",
                name=wanted.name,
                partitions=tuple(
                    call.new("OffsetDeleteResponsePartition", partition_index=entry.partition_index, error_code=each)
                    for entry, each in zip(wanted.partitions, of_topic, strict=True)
                ),
            )
            for wanted, of_topic in topics
        ),
    )


API = Api(key=47, name="offset_delete", versions=(0, 0), handle=handle)
