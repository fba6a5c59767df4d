"""ElectLeaders, versions 0 to 2 (KIP-183, KIP-460): a partition's preferred leader leads it again. A server that stands
alone leads everything already, and an unclean election is never held."""

from typing import Any

from oncelog.security.operations import CLUSTER_NAME, Operation, Resource
from oncelog.server.api import Api
from oncelog.server.api_rights import REFUSALS
from oncelog.server.call import Call
from oncelog.server.errors import ErrorCode, KafkaError
from oncelog.server.packing import packed_aside
from oncelog.server.topics import Topic

PREFERRED = 0


@packed_aside
async def handle(request: Any, call: Call) -> Any:
    if not call.rights.may(Operation.ALTER, Resource.CLUSTER, CLUSTER_NAME):
        return await _refuse(request, call)
    asked = [(each.topic, each.partitions) for each in request.topic_partitions or ()]
    if request.topic_partitions is None:
        asked = [(topic.name, tuple(range(len(topic.partitions)))) for topic in call.broker.topics.all()]
    is_preferred = getattr(request, "election_type", PREFERRED) == PREFERRED
    results = await call.each(asked, lambda each: _topic(*each, is_preferred, call))
    return call.new("ElectLeadersResponse", error_code=ErrorCode.none, replica_election_results=results)


async def _refuse(request: Any, call: Call) -> Any:
    """Refuse each partition that is named: older answers have no other place for a refusal."""
    code, message = REFUSALS[Resource.CLUSTER]

    async def topic(asked: Any) -> Any:
        def answer(index: int) -> Any:
            return call.new("PartitionResult", partition_id=index, error_code=code, error_message=message)

        partitions = await call.each(asked.partitions, answer)
        return call.new("ReplicaElectionResult", topic=asked.topic, partition_result=partitions)

    results = await call.each(request.topic_partitions or (), topic)
    return call.new("ElectLeadersResponse", error_code=code, replica_election_results=results)


async def _topic(name: str, indexes: tuple[int, ...], is_preferred: bool, call: Call) -> Any:
    refused: dict[int, KafkaError] = {}
    for index in indexes:
        try:
            _check(name, index, is_preferred, call)
        except KafkaError as refusal:
            refused[index] = refusal
    topic, wanted = call.broker.topics.get(name), frozenset(indexes) - refused.keys()
    if topic is not None and wanted:
        await _elect(topic, wanted, refused, call)

    def answer(index: int) -> Any:
        code, message = ErrorCode.none, None
        if index in refused:
            code, message = refused[index].code, refused[index].message
        return call.new("PartitionResult", partition_id=index, error_code=code, error_message=message)

    return call.new("ReplicaElectionResult", topic=name, partition_result=await call.each(indexes, answer))


def _check(name: str, index: int, is_preferred: bool, call: Call) -> None:
    partition = call.broker.topics.partition(name, index)
    if partition is None:
        raise KafkaError(ErrorCode.unknown_topic_or_partition, "The partition does not exist.")
    state = partition.leadership
    if state is None:
        raise KafkaError(ErrorCode.election_not_needed, "The only replica leads.")
    if not is_preferred:
        message = "A replica that lacks records is never elected: wait for one that has all of them."
        raise KafkaError(ErrorCode.eligible_leaders_not_available, message)
    if state.is_as_preferred:
        raise KafkaError(ErrorCode.election_not_needed, "The preferred replica leads.")
    preferred = state.replicas[0]
    if preferred not in state.in_sync or preferred not in call.broker.cluster.members:
        message = f"Broker {preferred}, which is preferred, is not up or not in sync."
        raise KafkaError(ErrorCode.preferred_leader_not_available, message)


async def _elect(topic: Topic, wanted: frozenset[int], refused: dict[int, KafkaError], call: Call) -> None:
    try:
        await call.broker.turns.run(call.broker.topics.electing(topic, wanted))
    except KafkaError as refusal:
        refused |= dict.fromkeys(wanted, refusal)


API = Api(key=43, name="elect_leaders", versions=(0, 2), handle=handle)
