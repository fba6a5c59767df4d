"""ListPartitionReassignments, version 0 (KIP-455): partitions on their way to others; kafka-topics --describe asks."""

from typing import Any

from oncelog.security.operations import Operation
from oncelog.server.api import Api
from oncelog.server.api_rights import demand_cluster
from oncelog.server.call import Call
from oncelog.server.errors import ErrorCode
from oncelog.server.packing import packed_aside
from oncelog.server.topics import Topic


@packed_aside
async def handle(request: Any, call: Call) -> Any:
    demand_cluster(call.rights, Operation.DESCRIBE)
    topics = call.broker.topics
    asked: list[tuple[Topic, frozenset[int] | None]] = [(topic, None) for topic in topics.all()]
    if request.topics is not None:
        named = {each.name: frozenset(each.partition_indexes) for each in request.topics}
        found = [(topics.get(name), indexes) for name, indexes in named.items()]
        asked = [(topic, indexes) for topic, indexes in found if topic is not None]
    answers = await call.each(asked, lambda each: _topic(*each, call))
    return call.new(
        "ListPartitionReassignmentsResponse",
        error_code=ErrorCode.none,
        error_message=None,
        topics=tuple(answer for answer in answers if answer is not None),
    )


async def _topic(topic: Topic, indexes: frozenset[int] | None, call: Call) -> Any:
    moving = [
        (partition.index, partition.leadership)
        for partition in topic.partitions
        if partition.leadership is not None
        and (partition.leadership.adding or partition.leadership.removing)
        and (indexes is None or partition.index in indexes)
    ]
    if not moving:
        return None
    return call.new(
        "OngoingTopicReassignment",
        name=topic.name,
        partitions=await call.each(
            moving,
            lambda each: call.new(
                "OngoingPartitionReassignment",
                partition_index=each[0],
                replicas=each[1].replicas,
                adding_replicas=each[1].adding,
                removing_replicas=each[1].removing,
            ),
        ),
    )


API = Api(key=46, name="list_partition_reassignments", versions=(0, 0), handle=handle)
