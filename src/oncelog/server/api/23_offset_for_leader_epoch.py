"""OffsetForLeaderEpoch, versions 2 to 4 (KIP-101, KIP-320): where an epoch ended, so that readers can tell that a log
was cut back below them."""

from typing import Any

from oncelog.security.operations import CLUSTER_NAME, Operation, Resource
from oncelog.server.api import Api
from oncelog.server.api_rights import demand
from oncelog.server.call import Call
from oncelog.server.errors import ErrorCode, KafkaError
from oncelog.server.packing import packed_aside
from oncelog.server.partitions import partition_of, topic_of


@packed_aside
async def handle(request: Any, call: Call) -> Any:
    async def topic(asked: Any) -> Any:
        partitions = await call.each(asked.partitions, lambda each: _answer(asked.topic, each, call))
        return call.new("OffsetForLeaderTopicResult", topic=asked.topic, partitions=partitions)

    return call.new("OffsetForLeaderEpochResponse", topics=await call.each(request.topics, topic))


def _answer(name: str, asked: Any, call: Call) -> Any:
    epoch, end_offset, code = -1, -1, ErrorCode.none
    try:
        if not call.rights.may(Operation.CLUSTER_ACTION, Resource.CLUSTER, CLUSTER_NAME):
            demand(call.rights, Operation.DESCRIBE, Resource.TOPIC, name)
        partition = partition_of(topic_of(call.broker.topics, name), asked.partition, asked.current_leader_epoch)
        if partition.log.offline is not None:
            raise KafkaError(ErrorCode.kafka_storage_error)
        epoch, end_offset = partition.log.end_of_epoch(asked.leader_epoch)
    except KafkaError as refusal:
        code = refusal.code
    return call.new(
        "EpochEndOffset", partition=asked.partition, error_code=code, leader_epoch=epoch, end_offset=end_offset
    )


API = Api(key=23, name="offset_for_leader_epoch", versions=(2, 4), handle=handle)
