"""Metadata, versions 0 to 13 (KIP-4 topics, KIP-516 topic ids, KIP-430 allowed operations, KIP-700 DescribeCluster).

Naming a topic that does not exist creates it where the server and the client both allow that.
"""

from typing import Any

from oncelog.security.operations import Operation, Resource
from oncelog.server.api import Api
from oncelog.server.api_rights import cluster_operations, may_create_topic
from oncelog.server.call import Call
from oncelog.server.errors import ErrorCode, KafkaError
from oncelog.server.names import INTERNAL_TOPICS
from oncelog.server.operations import NOT_ASKED
from oncelog.server.packing import packed_aside
from oncelog.server.partitions import leadership
from oncelog.server.topics import Topic

ALL_TOPICS_IS_EMPTY_BEFORE = 1  # in version 0 an empty list asks for every topic, later null does


@packed_aside
async def handle(request: Any, call: Call) -> Any:
    # A client asks as soon as a connection ends. librdkafka, told what was so until then, asks again after a second; it
    # loses another where the leader has changed and the one before is not listed any more in the same answer.
    cluster = call.broker.cluster
    await cluster.until_nobody_is_missed()
    return call.new(
        "MetadataResponse",
        error_code=ErrorCode.none,
        brokers=tuple(
            call.new("MetadataResponseBroker", node_id=node_id, host=host, port=port, rack=rack)
            for node_id, host, port, rack in call.broker.brokers(call.listener, call.local_host, also=cluster.lost)
        ),
        cluster_id=call.broker.cluster_id,
        controller_id=call.broker.node_id,
        cluster_authorized_operations=cluster_operations(
            call.rights, is_asked=getattr(request, "include_cluster_authorized_operations", False)
        ),
        topics=await _topics(request, call),
    )


async def _topics(request: Any, call: Call) -> tuple[Any, ...]:
    topics, may = call.broker.topics, call.rights.may
    tells = getattr(request, "include_topic_authorized_operations", False)
    if request.topics is None or (not request.topics and call.version < ALL_TOPICS_IS_EMPTY_BEFORE):
        found = await call.each(
            topics.all(),
            lambda topic: _found(topic, call, tells) if may(Operation.DESCRIBE, Resource.TOPIC, topic.name) else None,
        )
        return tuple(each for each in found if each is not None)
    may_create = call.broker.settings.auto_create_topics_enable and getattr(request, "allow_auto_topic_creation", True)
    named = {each.name if each.name is not None else getattr(each, "topic_id", None): each for each in request.topics}

    def answer(asked: Any) -> Any:
        if asked.name is not None:
            return _by_name(asked.name, call, may_create, tells)
        topic_id = getattr(asked, "topic_id", None)
        topic = None if topic_id is None else topics.by_id(topic_id)
        if topic is None:
            return _refused(call, None, topic_id, ErrorCode.unknown_topic_id)
        if not may(Operation.DESCRIBE, Resource.TOPIC, topic.name):
            return _refused(call, None, topic_id, ErrorCode.topic_authorization_failed)
        return _found(topic, call, tells)

    return await call.each(named.values(), answer)


async def _by_name(name: str, call: Call, may_create: bool, tells: bool) -> Any:
    if not call.rights.may(Operation.DESCRIBE, Resource.TOPIC, name):
        return _refused(call, name, None, ErrorCode.topic_authorization_failed)
    operations = call.rights.operations(Resource.TOPIC, name) if tells else NOT_ASKED
    topic = call.broker.topics.get(name)
    if topic is None and may_create and not may_create_topic(call.rights, name):
        return _refused(call, name, None, ErrorCode.topic_authorization_failed)
    if topic is None and may_create and name not in INTERNAL_TOPICS:
        try:
            await call.broker.turns.run(call.broker.topics.auto_creating(name, call.now))
        except KafkaError as refusal:
            if refusal.code is not ErrorCode.topic_already_exists:  # else somebody else is making it
                return _refused(call, name, None, refusal.code, operations)
        # Ask again, as in Kafka, though it is there by now. librdkafka's idempotent producer lives on that question: it
        # drops its bootstrap connection for the first answer and without another would sit out a timer of 500 ms.
        return _refused(call, name, None, ErrorCode.leader_not_available, operations)
    if topic is None:
        return _refused(call, name, None, ErrorCode.unknown_topic_or_partition, operations)
    return await _found(topic, call, tells)


async def _found(topic: Topic, call: Call, tells: bool) -> Any:
    cluster = call.broker.cluster
    return call.new(
        "MetadataResponseTopic",
        error_code=ErrorCode.none,
        name=topic.name,
        topic_id=topic.id,
        is_internal=topic.is_internal,
        partitions=await call.each(
            topic.partitions,
            lambda partition: call.new("MetadataResponsePartition", **leadership(partition, cluster)),
        ),
        topic_authorized_operations=call.rights.operations(Resource.TOPIC, topic.name) if tells else NOT_ASKED,
    )


def _refused(call: Call, name: str | None, topic_id: Any, code: ErrorCode, operations: int = NOT_ASKED) -> Any:
    if name is None and call.version < 12:
        name = ""
    return call.new(
        "MetadataResponseTopic",
        error_code=code,
        name=name,
        topic_id=topic_id,
        is_internal=False,
        partitions=(),
        topic_authorized_operations=operations,
    )


API = Api(key=3, name="metadata", versions=(0, 13), handle=handle)
