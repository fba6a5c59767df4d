"""ListOffsets, versions 1 to 11 (KIP-79, KIP-320 leader epochs, KIP-734 max timestamp, KIP-405 and KIP-1005 tiers).

Every record is on the local disk here, so the earliest local offset is the earliest one, and no offset was ever
tiered: the last tiered one is -1. For who reads committed records only, the log ends at the last stable offset.

Kafka's replica id for debugging asks any replica, and LATEST is where its log ends then, replicated or not: that is how
far a follower is behind, and what a leader may still lose.
"""

from typing import Any, NamedTuple

from oncelog.log.errors import LogStorageError
from oncelog.log.partition import PartitionLog, TimestampOffset
from oncelog.log.work_steps import Steps
from oncelog.security.operations import Operation, Resource
from oncelog.server.api import Api
from oncelog.server.api_rights import demand
from oncelog.server.call import Call
from oncelog.server.errors import ErrorCode, KafkaError
from oncelog.server.packing import packed_aside
from oncelog.server.partitions import ANY_EPOCH, partition_of, topic_of

DEBUGGING = -2
LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6
READ_COMMITTED = 1
FIRST_VERSION = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}
NO_EPOCH = -1
NOT_AVAILABLE_SINCE = 5  # older clients do not know OFFSET_NOT_AVAILABLE


class How(NamedTuple):
    is_debugging: bool
    is_committed_only: bool


Found = tuple[int, int, int]  # timestamp, offset, leader epoch
NOTHING: Found = (-1, -1, -1)


@packed_aside
async def handle(request: Any, call: Call) -> Any:
    asked: dict[str, dict[int, Any]] = {}
    twice: set[tuple[str, int]] = set()  # which of them is meant cannot be known: refused, as in Kafka
    for topic in request.topics:
        of_topic = asked.setdefault(topic.name, {})
        for each in topic.partitions:
            if each.partition_index in of_topic:
                twice.add((topic.name, each.partition_index))
            of_topic[each.partition_index] = each
    how = How(request.replica_id == DEBUGGING, getattr(request, "isolation_level", 0) == READ_COMMITTED)
    topics = await call.each(asked.items(), lambda each: _topic(*each, twice, call, how))
    return call.new("ListOffsetsResponse", topics=topics)


async def _topic(name: str, asked: dict[int, Any], twice: set[tuple[str, int]], call: Call, how: How) -> Any:
    partitions = await call.each(
        asked.values(),
        lambda each: _answer(name, each, call, how, is_twice=(name, each.partition_index) in twice),
    )
    return call.new("ListOffsetsTopicResponse", name=name, partitions=partitions)


async def _answer(name: str, asked: Any, call: Call, how: How, *, is_twice: bool) -> Any:
    found, code = NOTHING, ErrorCode.none
    try:
        demand(call.rights, Operation.DESCRIBE, Resource.TOPIC, name)
        if is_twice:
            raise KafkaError(ErrorCode.invalid_request)
        found = await _find(name, asked, call, how)
    except KafkaError as refusal:
        code = refusal.code
    except (LogStorageError, OSError):
        code = ErrorCode.kafka_storage_error
    timestamp, offset, epoch = found
    return call.new(
        "ListOffsetsPartitionResponse",
        partition_index=asked.partition_index,
        error_code=code,
        timestamp=timestamp,
        offset=offset,
        leader_epoch=epoch,
    )


async def _find(name: str, asked: Any, call: Call, how: How) -> Found:
    topic = topic_of(call.broker.topics, name)
    epoch = getattr(asked, "current_leader_epoch", ANY_EPOCH)
    partition = partition_of(topic, asked.partition_index, epoch, or_follower=how.is_debugging)
    log = partition.log
    if call.version < FIRST_VERSION.get(asked.timestamp, 0):
        raise KafkaError(ErrorCode.unsupported_version)
    if how.is_debugging and asked.timestamp == LATEST:
        return -1, log.next_offset, log.leader_epoch
    if not partition.is_past_earlier_leaders and asked.timestamp != EARLIEST:
        is_known = call.version >= NOT_AVAILABLE_SINCE
        raise KafkaError(ErrorCode.offset_not_available if is_known else ErrorCode.leader_not_available)
    if asked.timestamp == LATEST:
        return -1, log.stable_offset if how.is_committed_only else log.high_watermark, log.leader_epoch
    if asked.timestamp in (EARLIEST, EARLIEST_LOCAL, EARLIEST_PENDING_UPLOAD):
        return -1, log.log_start_offset, _epoch_at(log, log.log_start_offset)
    if asked.timestamp == MAX_TIMESTAMP:
        return await _in_steps(log.finding_latest(log.stable_offset if how.is_committed_only else None), call)
    if asked.timestamp == LATEST_TIERED:
        return NOTHING
    if asked.timestamp < 0:
        raise KafkaError(ErrorCode.unsupported_version)
    limit = log.stable_offset if how.is_committed_only else None
    return await _in_steps(log.finding_time(asked.timestamp, limit), call)


async def _in_steps(steps: Steps[TimestampOffset | None], call: Call) -> Found:
    async with call.broker.aside.holding_much:  # a batch, and what it unfolds to
        return await call.broker.turns.run(steps) or NOTHING


def _epoch_at(log: PartitionLog, offset: int) -> int:
    return max((epoch for epoch, start_offset in log.epochs.entries if start_offset <= offset), default=NO_EPOCH)


API = Api(key=2, name="list_offsets", versions=(1, 11), handle=handle)
