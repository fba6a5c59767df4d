"""DescribeTopicPartitions, version 0 (KIP-966): like Metadata for topics, a page at a time.

Topics come in the order of their names; a cursor names the topic and partition that the next page begins with.
"""

from collections.abc import Iterator
from functools import partial
from itertools import compress
from typing import Any

from oncelog.security.operations import Operation, Resource
from oncelog.server.api import Api
from oncelog.server.api_rights import demand
from oncelog.server.call import Call
from oncelog.server.errors import ErrorCode, KafkaError
from oncelog.server.operations import NOT_ASKED
from oncelog.server.packing import packed_aside
from oncelog.server.partitions import leadership, topic_of
from oncelog.server.topics import Topic

MAX_PARTITIONS_A_PAGE = 2000


@packed_aside
async def handle(request: Any, call: Call) -> Any:
    limit = min(max(request.response_partition_limit, 1), MAX_PARTITIONS_A_PAGE)
    cursor = request.cursor
    if cursor is not None and cursor.partition_index < 0:
        raise KafkaError(ErrorCode.invalid_request)
    answers: list[Any] = []
    next_cursor = None
    turns = call.broker.turns
    for name in await _names(request, call):
        if turns.is_over():
            await turns.next()
        first = cursor.partition_index if cursor is not None and cursor.topic_name == name else 0
        try:
            demand(call.rights, Operation.DESCRIBE, Resource.TOPIC, name)
            topic = topic_of(call.broker.topics, name)
        except KafkaError as refusal:
            answers.append(_refused(name, call, refusal.code))
            continue
        if limit == 0:
            next_cursor = call.new("Cursor", topic_name=name, partition_index=first)
            break
        page = topic.partitions[first : first + limit]
        limit -= len(page)
        answers.append(_found(topic, page, call))
        if first + len(page) < len(topic.partitions):
            next_cursor = call.new("Cursor", topic_name=name, partition_index=first + len(page))
            break
    return call.new("DescribeTopicPartitionsResponse", topics=tuple(answers), next_cursor=next_cursor)


async def _names(request: Any, call: Call) -> Iterator[str]:
    """Named topics, or all where none is named, from the cursor on."""
    names = {asked.name for asked in request.topics}
    if not names:
        every = [topic.name for topic in call.broker.topics.all()]
        may_know = partial(call.rights.may, Operation.DESCRIBE, Resource.TOPIC)
        names = set(compress(every, await call.each(every, may_know)))
    first = "" if request.cursor is None else request.cursor.topic_name
    return (name for name in sorted(names) if name >= first)


def _found(topic: Topic, page: list[Any], call: Call) -> Any:
    return call.new(
        "DescribeTopicPartitionsResponseTopic",
        error_code=ErrorCode.none,
        name=topic.name,
        topic_id=topic.id,
        is_internal=topic.is_internal,
        partitions=tuple(
            call.new(
                "DescribeTopicPartitionsResponsePartition",
                **leadership(partition, call.broker.cluster),
                eligible_leader_replicas=() if partition.leadership is None else partition.leadership.eligible,
                last_known_elr=(),
            )
            for partition in page
        ),
        topic_authorized_operations=call.rights.operations(Resource.TOPIC, topic.name),
    )


def _refused(name: str, call: Call, code: ErrorCode) -> Any:
    return call.new(
        "DescribeTopicPartitionsResponseTopic",
        error_code=code,
        name=name,
        topic_id=None,
        is_internal=False,
        partitions=(),
        topic_authorized_operations=(
            NOT_ASKED if code is ErrorCode.topic_authorization_failed else call.rights.operations(Resource.TOPIC, name)
        ),
    )


API = Api(key=75, name="describe_topic_partitions", versions=(0, 0), handle=handle)
