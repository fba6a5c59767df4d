"""describe_leases, version 0: our own. Described byte by byte in docs/protocol.md.

What DescribeProducers says, and what its answer has no room for: each producer's last offset, how much of its lease is
left in this partition, and how many leased producers the partition can remember at all. It changes nothing.
"""

from typing import Any

from oncelog.security.operations import Operation
from oncelog.server.api import Api, once
from oncelog.server.api_rights import demand_cluster
from oncelog.server.call import Call
from oncelog.server.errors import ErrorCode, KafkaError
from oncelog.server.packing import packed_aside
from oncelog.server.partitions import partition_of, topic_of
from oncelog.wire.own import DESCRIBE_LEASES_KEY


@packed_aside
async def handle(request: Any, call: Call) -> Any:
    async def topic(asked: tuple[str, dict[int, None]]) -> Any:
        name, indexes = asked
        partitions = await call.each(indexes, lambda index: _answer(name, index, call))
        return call.new("DescribeLeasesTopicResult", name=name, partitions=partitions)

    asked = once((each.name, each.partitions) for each in request.topics)
    return call.new("DescribeLeasesResponse", topics=await call.each(asked.items(), topic))


async def _answer(name: str, index: int, call: Call) -> Any:
    capacity, lifetime_ms = -1, -1
    producers: tuple[Any, ...] = ()
    code, message = ErrorCode.none, None
    try:
        demand_cluster(call.rights, Operation.DESCRIBE)
        known = partition_of(topic_of(call.broker.topics, name), index).log.producers
        capacity, lifetime_ms = known.lease_capacity, known.lease_lifetime_ms
        producers = await call.each(
            known.live(call.now),
            lambda live: call.new(
                "DescribeLeasesProducer",
                producer_id=live.pid,
                generation=live.generation,
                last_sequence=live.last_sequence,
                last_offset=live.last_offset,
                last_timestamp_ms=live.timestamp_ms,
                lease_left_ms=live.lease_left_ms,
            ),
        )
    except KafkaError as refusal:
        code, message = refusal.code, refusal.message
    return call.new(
        "DescribeLeasesPartition",
        partition_index=index,
        error_code=code,
        error_message=message,
        capacity=capacity,
        lifetime_ms=lifetime_ms,
        producers=producers,
    )


API = Api(key=DESCRIBE_LEASES_KEY, name="describe_leases", versions=(0, 0), handle=handle)
