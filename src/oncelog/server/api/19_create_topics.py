"""CreateTopics, versions 2 to 7 (KIP-195 validation, KIP-464 defaults by -1, KIP-525 configs, KIP-516 ids).

Every topic is answered for itself: one that cannot be made does not hold up the others.
"""

from collections import Counter
from typing import Any

from oncelog.security.operations import Operation, Resource
from oncelog.server import topic_rules
from oncelog.server.api import Api
from oncelog.server.api_rights import may_create_topic
from oncelog.server.call import Call
from oncelog.server.config_resources import Entry, describe_configs
from oncelog.server.errors import ErrorCode, KafkaError
from oncelog.server.names import INTERNAL_TOPICS
from oncelog.server.packing import packed_aside
from oncelog.server.partitions import registered, staying
from oncelog.server.topics import Assignment

CONFIGS_SINCE = 5


@packed_aside
async def handle(request: Any, call: Call) -> Any:
    counts = Counter(asked.name for asked in request.topics)
    results = []
    turns = call.broker.turns
    for asked in request.topics:
        if asked.name not in counts:
            continue  # a name that was there twice has had its one answer
        try:
            if counts.pop(asked.name) > 1:
                raise KafkaError(ErrorCode.invalid_request, "Duplicate topic name.")
            results.append(await _create(asked, call, request.validate_only))
        except KafkaError as refusal:
            results.append(_refused(asked.name, call, refusal))
        if turns.is_over():  # also where nothing is made: there may be very many to check
            await turns.next()
    return call.new("CreateTopicsResponse", topics=tuple(results))


async def _create(asked: Any, call: Call, validate_only: bool) -> Any:
    topics = call.broker.topics
    if not may_create_topic(call.rights, asked.name):
        raise KafkaError(ErrorCode.topic_authorization_failed, "Authorization failed.")
    if asked.name in INTERNAL_TOPICS:
        raise KafkaError(ErrorCode.invalid_topic_exception, f"Topic '{asked.name}' is internal")
    topics.check_new(asked.name)
    partitions, assignment = _partitions(asked, call)
    configs: dict[str, str | None] = {config.name: config.value for config in asked.configs}
    count, own = topics.check_create(asked.name, partitions, configs)
    topic_id = None
    if not validate_only:
        factor = asked.replication_factor
        making = topics.creating(asked.name, partitions, configs, call.now, replication=factor, assignment=assignment)
        topic_id = (await call.broker.turns.run(making)).id
    if not call.rights.may(Operation.DESCRIBE_CONFIGS, Resource.TOPIC, asked.name):
        return _made_unseen(asked.name, topic_id, call)
    return call.new(
        "CreatableTopicResult",
        name=asked.name,
        topic_id=topic_id,
        error_code=ErrorCode.none,
        error_message=None,
        num_partitions=count,
        replication_factor=topics.replication_of(asked.replication_factor, assignment),
        configs=_configs(describe_configs(call.broker.settings, own), call) if call.version >= CONFIGS_SINCE else None,
    )


def _partitions(asked: Any, call: Call) -> tuple[int, Assignment | None]:
    """The count that is asked for, -1 for the default; a manual assignment says it by its length."""
    cluster = call.broker.cluster
    if not asked.assignments:
        topic_rules.check_replication(asked.replication_factor, len(registered(cluster)))
        if asked.num_partitions < 1 and asked.num_partitions != -1:
            topic_rules.check_partitions(asked.num_partitions, 0, 0)
        return int(asked.num_partitions), None
    if asked.num_partitions != -1 or asked.replication_factor != -1:
        raise KafkaError(
            ErrorCode.invalid_request,
            "A manual partition assignment was specified, but partition count or replication factor was not set to -1.",
        )
    assignments = {each.partition_index: each.broker_ids for each in asked.assignments}
    if len(assignments) < len(asked.assignments):
        raise KafkaError(ErrorCode.invalid_replica_assignment, "Found multiple manual assignments for a partition.")
    assignment = topic_rules.check_assignments(assignments, registered(cluster), staying(cluster))
    return len(assignment), assignment


def _configs(entries: list[Entry], call: Call) -> tuple[Any, ...]:
    return tuple(
        call.new(
            "CreatableTopicConfigs",
            name=entry.name,
            value=entry.value,
            read_only=entry.is_read_only,
            config_source=entry.source,
            is_sensitive=False,
        )
        for entry in entries
    )


def _made_unseen(name: str, topic_id: Any, call: Call) -> Any:
    """The answer to a user who may make the topic, and may not know what it became."""
    return call.new(
        "CreatableTopicResult",
        name=name,
        topic_id=topic_id,
        error_code=ErrorCode.none,
        error_message=None,
        topic_config_error_code=ErrorCode.topic_authorization_failed,
        configs=(),
    )


def _refused(name: str, call: Call, refusal: KafkaError) -> Any:
    return call.new(
        "CreatableTopicResult",
        name=name,
        topic_id=None,
        error_code=refusal.code,
        error_message=refusal.message,
        configs=(),
    )


API = Api(key=19, name="create_topics", versions=(2, 7), handle=handle)
