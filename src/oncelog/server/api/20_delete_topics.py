"""DeleteTopics, versions 1 to 6 (KIP-322 topic.deletion.disabled, KIP-516 by topic id)."""

import asyncio
from typing import Any
from uuid import UUID

from oncelog.security.operations import CLUSTER_NAME, Operation, Resource
from oncelog.server.api import Api
from oncelog.server.api_rights import REFUSALS
from oncelog.server.call import Call
from oncelog.server.errors import ErrorCode, KafkaError
from oncelog.server.packing import packed_aside
from oncelog.server.topics import Topic

IDS_SINCE = 6
DISABLED_SINCE = 3  # older clients do not know TOPIC_DELETION_DISABLED


@packed_aside
async def handle(request: Any, call: Call) -> Any:
    if call.version >= IDS_SINCE:
        asked = [(each.name, each.topic_id) for each in request.topics]
    else:
        asked = [(name, None) for name in request.topic_names]
    # In a task of its own: what has begun is done whole, also when the client hangs up half-way.
    return await asyncio.shield(asyncio.ensure_future(_delete_all(asked, call)))


async def _delete_all(asked: list[tuple[str | None, UUID | None]], call: Call) -> Any:
    try:
        results = await call.each(asked, lambda each: _delete(*each, call))
    finally:
        # A deleted topic is gone already; its files may take a while, and nobody else should wait for them.
        await call.broker.at_disk.run(call.broker.topics.remove_deleted)
    return call.new("DeleteTopicsResponse", responses=results)


async def _delete(name: str | None, topic_id: UUID | None, call: Call) -> Any:
    code, message = ErrorCode.none, None
    try:
        topic = _find(name, topic_id, call)
        if name is not None or _may(Operation.DESCRIBE, topic.name, call):
            name = topic.name
        if not _may(Operation.DELETE, topic.name, call):
            raise KafkaError(*REFUSALS[Resource.TOPIC])
        topic_id = topic.id
        forgetting = call.broker.groups.forgetting(topic.name, call.now)
        await call.broker.turns.run(call.broker.topics.deleting(topic, call.now, forgetting))
    except KafkaError as refusal:
        code, message = refusal.code, refusal.message
    if code is ErrorCode.topic_deletion_disabled and call.version < DISABLED_SINCE:
        code = ErrorCode.invalid_request
    return call.new("DeletableTopicResult", name=name, topic_id=topic_id, error_code=code, error_message=message)


def _may(operation: Operation, name: str, call: Call) -> bool:
    may = call.rights.may
    return may(operation, Resource.TOPIC, name) or may(Operation.DELETE, Resource.CLUSTER, CLUSTER_NAME)


def _find(name: str | None, topic_id: UUID | None, call: Call) -> Topic:
    topics = call.broker.topics
    if (name is None) == (topic_id is None):
        raise KafkaError(ErrorCode.invalid_request, "A topic is named by its name or its id, not by both or neither.")
    if name is not None and not _may(Operation.DESCRIBE, name, call):
        raise KafkaError(*REFUSALS[Resource.TOPIC])
    topic = topics.get(name) if name is not None else topics.by_id(topic_id) if topic_id is not None else None
    if topic is None:
        code = ErrorCode.unknown_topic_or_partition if topic_id is None else ErrorCode.unknown_topic_id
        raise KafkaError(code, "This server does not host this topic.")
    return topic


API = Api(key=20, name="delete_topics", versions=(1, 6), handle=handle)
