"""resume_pid, version 0: our own (DESIGN 3.2, "resuming fences first"). Described byte by byte in docs/protocol.md.

A control batch raises the producer's generation in each partition named, and the answer tells the last sequence that
was accepted before it. Both are one step, so no zombie can slip between them. The answer comes once the control batch
is below the high watermark.
"""

import asyncio
from collections.abc import Iterable
from itertools import islice
from typing import Any, NamedTuple

from oncelog.log.errors import LogStorageError
from oncelog.log.partition import End, Fate
from oncelog.producers.decision import Decision
from oncelog.security.operations import Operation, Resource
from oncelog.server.api import Api
from oncelog.server.api_rights import demand
from oncelog.server.call import Call
from oncelog.server.errors import ErrorCode, KafkaError
from oncelog.server.high_watermark import wait_until_settled
from oncelog.server.packing import packed_aside
from oncelog.server.partitions import partition_of, writable_topic
from oncelog.server.topics import Partition
from oncelog.wire.own import RESUME_PID_KEY

_REFUSALS = {
    Decision.FENCED: (
        ErrorCode.invalid_producer_epoch,
        "generation {given} is not newer than {generation}, which this partition knows",
    ),
    Decision.UNKNOWN_PRODUCER: (
        ErrorCode.unknown_producer_id,
        "the lease expired, never wrote to this partition, or was never granted",
    ),
    Decision.FULL: (ErrorCode.not_enough_replicas, "no room for another live producer"),
}


class Fenced(NamedTuple):
    partition_index: int
    code: ErrorCode
    message: str | None = None
    generation: int = -1
    last_sequence: int = -1
    offset: int = -1
    epoch: int = 0
    partition: Partition | None = None


@packed_aside
async def handle(request: Any, call: Call) -> Any:
    asked = [
        (producer, topic, index)
        for producer in request.producers
        for topic in producer.topics
        for index in topic.partitions
    ]
    fenced = await call.each(asked, lambda each: _fence(each[0], each[1].name, each[2], call))
    settled = await _settle(fenced, request.timeout.total_seconds(), call)
    answers = iter(await call.each(fenced, lambda each: _answer(each, settled, call)))

    def topic(asked: Any) -> Any:
        partitions = tuple(islice(answers, len(asked.partitions)))
        return call.new("ResumePidTopicResult", name=asked.name, partitions=partitions)

    async def producer(asked: Any) -> Any:
        topics = await call.each(asked.topics, topic)
        return call.new("ResumePidProducerResult", producer_id=asked.producer_id, topics=topics)

    return call.new("ResumePidResponse", producers=await call.each(request.producers, producer))


def _fence(producer: Any, name: str, index: int, call: Call) -> Fenced:
    pid, given = producer.producer_id, producer.generation
    try:
        demand(call.rights, Operation.WRITE, Resource.TOPIC, name)
        topic = writable_topic(call.broker.topics, name)
        if given < 0:
            raise KafkaError(ErrorCode.invalid_request, "a generation is a number from 0 to 32767")
        partition = partition_of(topic, index)
        decision, generation, last_sequence, offset, epoch = partition.log.fence(pid, given, call.now)
    except KafkaError as refusal:
        return Fenced(index, refusal.code, refusal.message)
    except LogStorageError as failure:
        return Fenced(index, ErrorCode.kafka_storage_error, str(failure))
    if decision is not Decision.APPEND:
        code, words = _REFUSALS[decision]
        return Fenced(index, code, words.format(given=given, generation=generation), generation, last_sequence)
    partition.appended()
    call.broker.flusher.request(partition)
    return Fenced(index, ErrorCode.none, None, generation, last_sequence, offset, epoch, partition)


async def _settle(fenced: Iterable[Fenced], timeout_s: float, call: Call) -> set[Partition]:
    """The partitions whose fences are below the high watermark in time. They are flushed together, and waited for one
    after the other: a task for each of thousands would hold the others up."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout_s
    ends = {each.partition: End(each.offset + 1, each.epoch) for each in fenced if each.partition is not None}
    fates = await call.each(
        ends, lambda partition: wait_until_settled(partition, ends[partition], deadline - loop.time())
    )
    return {partition for partition, fate in zip(ends, fates, strict=True) if fate is Fate.SAFE}


def _answer(fenced: Fenced, settled: set[Partition], call: Call) -> Any:
    if fenced.partition is not None and fenced.partition not in settled:
        offline = fenced.partition.log.offline
        code = ErrorCode.request_timed_out if offline is None else ErrorCode.kafka_storage_error
        if fenced.partition.log.leader_epoch != fenced.epoch:
            code = ErrorCode.not_leader_or_follower
        fenced = fenced._replace(
            code=code,
            message=offline or "the fence is appended, and not known to be safe yet; ask again with a newer generation",
        )
    return call.new(
        "ResumePidPartition",
        partition_index=fenced.partition_index,
        error_code=fenced.code,
        error_message=fenced.message,
        generation=fenced.generation,
        last_sequence=fenced.last_sequence,
        fence_offset=fenced.offset,
    )


API = Api(key=RESUME_PID_KEY, name="resume_pid", versions=(0, 0), handle=handle)
