"""ElectLeaders, versions 0 to 2 (KIP-183, KIP-460): a single server leads everything already."""

from typing import Any

from oncelog.server.api import Api
from oncelog.server.call import Call
from oncelog.server.errors import ErrorCode
from oncelog.server.packing import packed_aside


@packed_aside
async def handle(request: Any, call: Call) -> Any:
    async def topic(asked: Any) -> Any:
        partitions = await call.each(asked.partitions, lambda index: _result(asked.topic, index, call))
        return call.new("ReplicaElectionResult", topic=asked.topic, partition_result=partitions)

    results = await call.each(request.topic_partitions or (), topic)
    return call.new("ElectLeadersResponse", error_code=ErrorCode.none, replica_election_results=results)


def _result(topic: str, index: int, call: Call) -> Any:
    if call.broker.topics.partition(topic, index) is None:
        code, message = ErrorCode.unknown_topic_or_partition, "The partition does not exist."
    else:
        code, message = ErrorCode.election_not_needed, "The only replica leads."
    return call.new("PartitionResult", partition_id=index, error_code=code, error_message=message)


API = Api(key=43, name="elect_leaders", versions=(0, 2), handle=handle)
