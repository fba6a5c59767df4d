"""DeleteRecords, versions 0 to 2 (KIP-107).

Everything before an offset is gone for readers at once; the files go with retention. Offset -1 means the high
watermark.
"""

from typing import Any

from oncelog.log.errors import LogStorageError
from oncelog.server.api import Api
from oncelog.server.call import Call
from oncelog.server.errors import ErrorCode, KafkaError
from oncelog.server.packing import packed_aside
from oncelog.server.partitions import partition_of, topic_of

HIGH_WATERMARK = -1


@packed_aside
async def handle(request: Any, call: Call) -> Any:
    async def topic(asked: Any) -> Any:
        partitions = await call.each(asked.partitions, lambda each: _answer(asked.name, each, call))
        return call.new("DeleteRecordsTopicResult", name=asked.name, partitions=partitions)

    return call.new("DeleteRecordsResponse", topics=await call.each(request.topics, topic))


def _answer(name: str, asked: Any, call: Call) -> Any:
    low_watermark, code = -1, ErrorCode.none
    try:
        low_watermark = _delete(name, asked.partition_index, asked.offset, call)
    except KafkaError as refusal:
        code = refusal.code
    except LogStorageError:
        code = ErrorCode.kafka_storage_error
    return call.new(
        "DeleteRecordsPartitionResult",
        partition_index=asked.partition_index,
        low_watermark=low_watermark,
        error_code=code,
    )


def _delete(name: str, index: int, offset: int, call: Call) -> int:
    topic = topic_of(call.broker.topics, name)
    if topic.is_internal:
        raise KafkaError(ErrorCode.invalid_topic_exception)
    log = partition_of(topic, index).log
    if not log.config.deletes:
        raise KafkaError(ErrorCode.policy_violation, "the topic is only compacted: its cleanup.policy lacks delete")
    before = log.high_watermark if offset == HIGH_WATERMARK else offset
    if not 0 <= before <= log.high_watermark:
        raise KafkaError(ErrorCode.offset_out_of_range)
    log.delete_before(before)
    return log.log_start_offset


API = Api(key=21, name="delete_records", versions=(0, 2), handle=handle)
