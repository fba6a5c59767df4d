"""OffsetFetch: how far groups have read.

Versions 1 to 10, as Kafka since 4.0. KIP-88 (v2: null for all topics), KIP-320 (v5: leader epoch), KIP-447 (v7:
require_stable: an offset that an open transaction may change is not told), KIP-709 (v8: many groups at once), KIP-848
(v9: member and epoch, which mean nothing to a classic group; v10: topic ids).
An offset is not told before it would survive a crash: what was read of a group is told once all of it would, if the
group was coordinated here all the while.
"""

import asyncio
from collections.abc import Iterable
from typing import Any, NamedTuple
from uuid import UUID

from oncelog.security.operations import Operation, Resource
from oncelog.server.api import Api, once
from oncelog.server.call import Call
from oncelog.server.errors import ErrorCode
from oncelog.server.groups.offsets import NO_OFFSET
from oncelog.server.groups.records import NO_EPOCH
from oncelog.server.groups.store import Settled
from oncelog.server.packing import packed_aside

MANY_GROUPS = 8
TOPIC_IDS = 10
GROUP_ERROR = 2  # before this version an error of the group stands at each partition


class Read(NamedTuple):
    """The offsets read from a group, and the epoch in which it was coordinated here then."""

    wanted: Any
    error: ErrorCode
    epoch: int | None
    topics: tuple[Any, ...]
    is_stable_only: bool


@packed_aside
async def handle(request: Any, call: Call) -> Any:
    groups = request.groups if call.version >= MANY_GROUPS else (request,)
    wanted = tuple({each.group_id: each for each in groups}.values())
    is_stable_only = getattr(request, "require_stable", False)
    read = await call.each(wanted, lambda each: _read(each, call, is_stable_only))
    settled = await call.each(read, lambda each: _settled(each, call))
    errors = [each if isinstance(each, ErrorCode) else await asyncio.shield(each) for each in settled]
    if call.version >= MANY_GROUPS:
        answers = await call.each(zip(read, errors, strict=True), lambda each: _group(*each, call))
        return call.new("OffsetFetchResponse", groups=answers)
    (only,), (error,) = read, errors
    topics = only.topics if error is only.error else await _topics(only.wanted, error, call, is_stable_only)
    return call.new("OffsetFetchResponse", topics=topics, error_code=error)


async def _read(wanted: Any, call: Call, is_stable_only: bool) -> Read:
    groups = call.broker.groups
    member = getattr(wanted, "member_id", None), getattr(wanted, "member_epoch", -1)
    error = groups.check_name(wanted.group_id) or groups.consumer.check_fetch(wanted.group_id, *member)
    epoch = groups.epoch_of(wanted.group_id)
    if not call.rights.may(Operation.DESCRIBE, Resource.GROUP, wanted.group_id):
        error, epoch = ErrorCode.group_authorization_failed, None
    return Read(wanted, error, epoch, await _topics(wanted, error, call, is_stable_only), is_stable_only)


def _settled(read: Read, call: Call) -> Settled:
    groups, group_id = call.broker.groups, read.wanted.group_id
    if read.error is not ErrorCode.none:
        return read.error
    if read.epoch is not None and groups.epoch_of(group_id) != read.epoch:
        return ErrorCode.not_coordinator
    return groups.settled(group_id)


async def _group(read: Read, error: ErrorCode, call: Call) -> Any:
    topics = read.topics if error is ErrorCode.none else ()
    return call.new("OffsetFetchResponseGroup", group_id=read.wanted.group_id, topics=topics, error_code=error)


async def _topics(wanted: Any, error: ErrorCode, call: Call, is_stable_only: bool) -> tuple[Any, ...]:
    if error is not ErrorCode.none and call.version >= GROUP_ERROR:
        return ()
    topics, may = call.broker.topics, call.rights.may
    if wanted.topics is None:
        committed = call.broker.groups.committed_topics(wanted.group_id)
        known = [(topics.get(name), name, partitions) for name, partitions in committed.items()]
        return await call.each(
            [
                (topic.id, name, partitions)
                for topic, name, partitions in known
                if topic is not None and may(Operation.DESCRIBE, Resource.TOPIC, name)
            ],
            lambda each: _topic(wanted.group_id, each[1], each[0], each[2], error, call, is_stable_only),
        )
    if call.version < TOPIC_IDS:
        named = once((each.name, each.partition_indexes) for each in wanted.topics)

        def by_name(asked: tuple[str, dict[int, None]]) -> Any:
            name, indexes = asked
            return _topic(wanted.group_id, name, None, indexes, _allowed(name, error, call), call, is_stable_only)

        return await call.each(named.items(), by_name)

    def by_id(asked: tuple[UUID | None, dict[int, None]]) -> Any:
        topic_id, indexes = asked
        topic = None if topic_id is None else topics.by_id(topic_id)
        name, code = "", ErrorCode.unknown_topic_id
        if topic is not None:
            name, code = topic.name, _allowed(topic.name, error, call)
        return _topic(wanted.group_id, name, topic_id, indexes, code, call, is_stable_only)

    return await call.each(once((each.topic_id, each.partition_indexes) for each in wanted.topics).items(), by_id)


def _allowed(name: str, error: ErrorCode, call: Call) -> ErrorCode:
    """An error of the group goes before one of the topic."""
    if error is ErrorCode.none and not call.rights.may(Operation.DESCRIBE, Resource.TOPIC, name):
        return ErrorCode.topic_authorization_failed
    return error


async def _topic(
    group_id: str,
    name: str,
    topic_id: Any,
    partitions: Iterable[int],
    error: ErrorCode,
    call: Call,
    is_stable_only: bool,
) -> Any:
    plural = "s" if call.version >= MANY_GROUPS else ""
    type_name, is_pending = f"OffsetFetchResponsePartition{plural}", call.broker.groups.in_transactions.is_pending

    def partition(index: int) -> Any:
        is_unstable = error is ErrorCode.none and is_stable_only and is_pending(group_id, name, index)
        code = ErrorCode.unstable_offset_commit if is_unstable else error
        return _partition(type_name, group_id, name, index, code, call)

    return call.new(
        f"OffsetFetchResponseTopic{plural}",
        name=name,
        topic_id=topic_id,
        partitions=await call.each(partitions, partition),
    )


def _partition(type_name: str, group_id: str, topic: str, index: int, error: ErrorCode, call: Call) -> Any:
    committed = call.broker.groups.committed(group_id, topic, index) if error is ErrorCode.none else None
    return call.new(
        type_name,
        partition_index=index,
        committed_offset=NO_OFFSET if committed is None else committed.offset,
        committed_leader_epoch=NO_EPOCH if committed is None else committed.leader_epoch,
        metadata="" if committed is None else committed.metadata,
        error_code=error,
    )


API = Api(key=9, name="offset_fetch", versions=(1, 10), handle=handle)
