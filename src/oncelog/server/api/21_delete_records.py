"""DeleteRecords, versions 0 to 2 (KIP-107).

Everything before an offset is gone for readers at once; the files go with retention. Offset -1 means the high
watermark. Where a partition is named again, the last offset counts and is answered, as in Kafka.
"""

import asyncio
from itertools import chain
from typing import Any

from oncelog.log.errors import LogStorageError
from oncelog.security.operations import Operation, Resource
from oncelog.server.api import Api
from oncelog.server.api_rights import demand
from oncelog.server.call import Call
from oncelog.server.errors import ErrorCode, KafkaError
from oncelog.server.packing import packed_aside
from oncelog.server.partitions import partition_of, topic_of

HIGH_WATERMARK = -1
TOGETHER = 32  # partitions: each waits for the disk, and that they can do together


@packed_aside
async def handle(request: Any, call: Call) -> Any:
    # In a task of its own: what has begun is done whole, also when the client hangs up half-way.
    return await asyncio.shield(asyncio.ensure_future(_delete_all(request, call)))


async def _delete_all(request: Any, call: Call) -> Any:
    wanted: dict[str, dict[int, int]] = {}
    for asked in request.topics:
        offsets = wanted.setdefault(asked.name, {})
        offsets.update((each.partition_index, each.offset) for each in asked.partitions)

    async def topic(name: str) -> Any:
        offsets = list(wanted[name].items())

        async def some(start: int) -> Any:
            return await asyncio.gather(*(_answer(name, *each, call) for each in offsets[start : start + TOGETHER]))

        answers = await call.each(range(0, len(offsets), TOGETHER), some)
        return call.new("DeleteRecordsTopicResult", name=name, partitions=tuple(chain.from_iterable(answers)))

    return call.new("DeleteRecordsResponse", topics=await call.each(wanted, topic))


async def _answer(name: str, index: int, offset: int, call: Call) -> Any:
    low_watermark, code = -1, ErrorCode.none
    try:
        low_watermark = await _delete(name, index, offset, call)
    except KafkaError as refusal:
        code = refusal.code
    except LogStorageError:
        code = ErrorCode.kafka_storage_error
    return call.new(
        "DeleteRecordsPartitionResult",
        partition_index=index,
        low_watermark=low_watermark,
        error_code=code,
    )


async def _delete(name: str, index: int, offset: int, call: Call) -> int:
    demand(call.rights, Operation.DELETE, Resource.TOPIC, name)
    topic = topic_of(call.broker.topics, name)
    if topic.is_internal:
        raise KafkaError(ErrorCode.invalid_topic_exception)
    log = partition_of(topic, index).log
    if not log.config.deletes:
        raise KafkaError(ErrorCode.policy_violation, "the topic is only compacted: its cleanup.policy lacks delete")
    before = log.high_watermark if offset == HIGH_WATERMARK else offset
    if not 0 <= before <= log.high_watermark:
        raise KafkaError(ErrorCode.offset_out_of_range)
    return await call.broker.turns.run(log.deleting_before(before))


API = Api(key=21, name="delete_records", versions=(0, 2), handle=handle)
