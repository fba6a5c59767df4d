"""AlterPartitionReassignments, versions 0 to 1 (KIP-455, KIP-860): partitions move to other brokers."""

from typing import Any

from oncelog.security.operations import CLUSTER_NAME, Operation, Resource
from oncelog.server.api import Api
from oncelog.server.api_rights import REFUSALS
from oncelog.server.call import Call
from oncelog.server.errors import ErrorCode, KafkaError
from oncelog.server.packing import packed_aside
from oncelog.server.partitions import registered, topic_of
from oncelog.server.topic_rules import check_brokers
from oncelog.server.topics import Partition, Targets, Topic

NOTHING_MOVES = "No partition reassignment is in progress."


@packed_aside
async def handle(request: Any, call: Call) -> Any:
    refusal: KafkaError | None = None
    if not call.rights.may(Operation.ALTER, Resource.CLUSTER, CLUSTER_NAME):
        refusal = KafkaError(*REFUSALS[Resource.CLUSTER])
    return call.new(
        "AlterPartitionReassignmentsResponse",
        error_code=ErrorCode.none if refusal is None else refusal.code,
        error_message=None if refusal is None else refusal.message,
        responses=await call.each(request.topics, lambda asked: _topic(asked, request, call, refusal)),
    )


async def _topic(asked: Any, request: Any, call: Call, failure: KafkaError | None) -> Any:
    targets: dict[int, Any] = {}
    refused: dict[int, KafkaError] = {}  # by their place in the request
    try:
        if failure is not None:
            raise failure
        topic = topic_of(call.broker.topics, asked.name)
        for place, each in enumerate(asked.partitions):
            try:
                _check(topic, each, request, call)
                if not _is_there(topic.partitions[each.partition_index], each.replicas, call):
                    targets[each.partition_index] = each.replicas
            except KafkaError as refusal:
                refused[place] = refusal
        await _move(topic, targets, call)
    except KafkaError as refusal:
        failure = refusal

    def answer(place: int, each: Any) -> Any:
        refusal = refused.get(place, failure)
        return call.new(
            "ReassignablePartitionResponse",
            partition_index=each.partition_index,
            error_code=ErrorCode.none if refusal is None else refusal.code,
            error_message=None if refusal is None else refusal.message,
        )

    partitions = await call.each(enumerate(asked.partitions), lambda each: answer(*each))
    return call.new("ReassignableTopicResponse", name=asked.name, partitions=partitions)


def _check(topic: Topic, asked: Any, request: Any, call: Call) -> None:
    if not 0 <= asked.partition_index < len(topic.partitions):
        raise KafkaError(ErrorCode.unknown_topic_or_partition, "The partition does not exist.")
    state = topic.partitions[asked.partition_index].leadership
    if asked.replicas is None:
        if state is None or not (state.adding or state.removing):
            raise KafkaError(ErrorCode.no_reassignment_in_progress, NOTHING_MOVES)
        return
    check_brokers([asked.replicas], registered(call.broker.cluster))
    factor = 1 if state is None else len(state.replicas) - len(state.adding)
    if not getattr(request, "allow_replication_factor_change", True) and len(asked.replicas) != factor:
        raise KafkaError(
            ErrorCode.invalid_replication_factor,
            f"The replication factor would change from {factor} to {len(asked.replicas)}, which the request forbids.",
        )


def _is_there(partition: Partition, replicas: Any, call: Call) -> bool:
    """Whether it is on these brokers already, and on its way to no others: nothing is to be done."""
    state = partition.leadership
    if state is None:
        return bool(replicas == (call.broker.node_id,))
    return not (state.adding or state.removing) and state.replicas == replicas


async def _move(topic: Topic, targets: Targets, call: Call) -> None:
    if targets:
        await call.broker.turns.run(call.broker.topics.moving(topic, targets))


API = Api(key=45, name="alter_partition_reassignments", versions=(0, 1), handle=handle)
