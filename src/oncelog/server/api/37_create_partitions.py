"""CreatePartitions, versions 0 to 3 (KIP-195): a topic can grow, never shrink."""

from collections import Counter
from typing import Any

from oncelog.security.operations import Operation, Resource
from oncelog.server import topic_rules
from oncelog.server.api import Api
from oncelog.server.api_rights import demand
from oncelog.server.call import Call
from oncelog.server.config_resources import existing_topic
from oncelog.server.errors import ErrorCode, KafkaError
from oncelog.server.packing import packed_aside
from oncelog.server.partitions import registered, staying


@packed_aside
async def handle(request: Any, call: Call) -> Any:
    counts = Counter(asked.name for asked in request.topics)
    results = []
    turns = call.broker.turns
    for asked in request.topics:
        code, message = ErrorCode.none, None
        if asked.name not in counts:
            continue  # a name that was there twice has had its one answer
        try:
            if counts.pop(asked.name) > 1:
                raise KafkaError(ErrorCode.invalid_request, "Duplicate topic name.")
            await _grow(asked, call, request.validate_only)
        except KafkaError as refusal:
            code, message = refusal.code, refusal.message
        results.append(call.new("CreatePartitionsTopicResult", name=asked.name, error_code=code, error_message=message))
        if turns.is_over():  # also where nothing is made: there may be very many to check
            await turns.next()
    return call.new("CreatePartitionsResponse", results=tuple(results))


async def _grow(asked: Any, call: Call, validate_only: bool) -> None:
    topics = call.broker.topics
    demand(call.rights, Operation.ALTER, Resource.TOPIC, asked.name)
    topic = existing_topic(topics, asked.name)
    topics.check_add_partitions(topic, asked.count)
    assignment = None
    if asked.assignments is not None:
        added = asked.count - len(topic.partitions)
        if len(asked.assignments) != added:
            raise KafkaError(
                ErrorCode.invalid_replica_assignment,
                f"Attempted to add {added} additional partition(s), but {len(asked.assignments)} assignment(s) "
                "were specified.",
            )
        cluster, state = call.broker.cluster, topic.partitions[0].leadership
        assignment = [each.broker_ids for each in asked.assignments]
        topic_rules.check_brokers(assignment, registered(cluster))
        factor = 1 if state is None else len(state.target)
        topic_rules.check_new(dict(enumerate(assignment, len(topic.partitions))), factor, staying(cluster))
    if not validate_only:
        await call.broker.turns.run(topics.adding_partitions(topic, asked.count, call.now, assignment=assignment))


API = Api(key=37, name="create_partitions", versions=(0, 3), handle=handle)
