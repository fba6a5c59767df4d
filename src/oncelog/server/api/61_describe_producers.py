"""DescribeProducers, version 0 (KIP-664): pid, epoch and last sequence of every live producer of a partition.

What a saved producer asks when it is resumed: the last sequence is H(P) of the design. Leased producers are listed too.
"""

from typing import Any

from oncelog.security.operations import Operation, Resource
from oncelog.server.api import Api, once
from oncelog.server.api_rights import demand
from oncelog.server.call import Call
from oncelog.server.errors import ErrorCode, KafkaError
from oncelog.server.packing import packed_aside
from oncelog.server.partitions import partition_of, topic_of


@packed_aside
async def handle(request: Any, call: Call) -> Any:
    async def topic(asked: tuple[str, dict[int, None]]) -> Any:
        name, indexes = asked
        partitions = await call.each(indexes, lambda index: _answer(name, index, call))
        return call.new("TopicResponse", name=name, partitions=partitions)

    asked = once((each.name, each.partition_indexes) for each in request.topics)
    return call.new("DescribeProducersResponse", topics=await call.each(asked.items(), topic))


async def _answer(name: str, index: int, call: Call) -> Any:
    producers: tuple[Any, ...] = ()
    code, message = ErrorCode.none, None
    try:
        demand(call.rights, Operation.READ, Resource.TOPIC, name)
        log = partition_of(topic_of(call.broker.topics, name), index).log
        producers = await call.each(
            log.producers.live(call.now),
            lambda live: call.new(
                "ProducerState",
                producer_id=live.pid,
                producer_epoch=live.generation,
                last_sequence=live.last_sequence,
                last_timestamp=live.timestamp_ms,
                coordinator_epoch=live.coordinator_epoch,
                current_txn_start_offset=live.first_open_offset,
            ),
        )
    except KafkaError as refusal:
        code, message = refusal.code, refusal.message
    return call.new(
        "PartitionResponse",
        partition_index=index,
        error_code=code,
        error_message=message,
        active_producers=producers,
    )


API = Api(key=61, name="describe_producers", versions=(0, 0), handle=handle)
