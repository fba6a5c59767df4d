"""OffsetCommit: remember how far a group has read.

Versions 2 to 10, as Kafka since 4.0. KIP-211 (v5: no retention of its own), KIP-320 (v6: leader epoch),
KIP-345 (v7: static members), KIP-848 (v9: an unknown group has a code of its own; v10: topic ids).
An entry that is refused (unknown topic, oversized metadata) is refused alone; the others are stored, in one batch.
"""

import asyncio
from datetime import timedelta
from typing import Any

from oncelog.security.operations import Operation, Resource
from oncelog.server.api import Api
from oncelog.server.call import Call
from oncelog.server.coordinator_topic import KeyValue, bytes_of_record
from oncelog.server.errors import ErrorCode
from oncelog.server.groups.offsets import TopicPartition
from oncelog.server.groups.records import NO_EPOCH, CommittedOffset, encode_committed
from oncelog.server.names import MOST_ID_CHARACTERS
from oncelog.server.packing import packed_aside
from oncelog.server.topics import Topic

TOPIC_IDS = 10
GROUP_NOT_FOUND = 9
MS = timedelta(milliseconds=1)
BY_SERVER = -1  # a retention of its own that was not asked for

Accepted = dict[TopicPartition, CommittedOffset]
Records = dict[TopicPartition, KeyValue]  # of what is accepted
Errors = list[list[ErrorCode]]  # of each partition of each topic, in the order of the request


@packed_aside
async def handle(request: Any, call: Call) -> Any:
    if not call.rights.may(Operation.READ, Resource.GROUP, request.group_id):
        refused = [[ErrorCode.group_authorization_failed] * len(each.partitions) for each in request.topics]
        return await _answer(request, call, refused)
    errors, accepted, records = await _look_through(request, call)
    groups = call.broker.groups
    error = groups.check_commit(
        request.group_id,
        request.member_id,
        getattr(request, "group_instance_id", None),
        request.generation_id_or_member_epoch,
        call.now,
        accepted,
    )
    if call.version < GROUP_NOT_FOUND:
        error = groups.consumer.in_older_words(request.group_id, request.member_id, error)
    if error is not ErrorCode.none:
        return await _answer(request, call, _fail(errors, error, ErrorCode.offset_metadata_too_large))
    if records is None:
        return await _answer(request, call, _fail(errors, ErrorCode.invalid_commit_offset_size))
    settled = groups.commit(request.group_id, accepted, call.now, call.client_host, records.values())
    error = settled if isinstance(settled, ErrorCode) else await settled
    return await _answer(request, call, _fail(errors, error))


async def _look_through(request: Any, call: Call) -> tuple[Errors, Accepted, Records | None]:
    """All that can be done in turns before it is stored at once; no records where they are more than that may be."""
    errors: Errors = []
    accepted: Accepted = {}
    records: Records = {}
    left_bytes = call.broker.settings.message_max_bytes if len(request.group_id) <= MOST_ID_CHARACTERS else -1
    expire_wall_ms = _expire_wall_ms(request, call)
    turns = call.broker.turns
    topics: list[Topic | None] = []
    for wanted in request.topics:
        topic = _topic(wanted, call)
        if not _may_read(wanted, topic, call):
            topics.append(None)
            errors.append([ErrorCode.topic_authorization_failed] * len(wanted.partitions))
            continue
        topics.append(topic)
        of_topic: list[ErrorCode] = []
        for entry in wanted.partitions:
            if turns.is_over():
                await turns.next()
            error = _check(entry, topic, call)
            of_topic.append(error)
            if error is ErrorCode.none and topic is not None:
                at = TopicPartition(topic.name, entry.partition_index)
                accepted[at] = committed = CommittedOffset(
                    entry.committed_offset,
                    getattr(entry, "committed_leader_epoch", NO_EPOCH),
                    entry.committed_metadata or "",
                    call.now.wall_ms,
                    expire_wall_ms,
                )
                if left_bytes >= 0:
                    if at in records:
                        left_bytes += bytes_of_record(records[at])
                    records[at] = record = encode_committed(request.group_id, *at, committed)
                    left_bytes -= bytes_of_record(record)
        errors.append(of_topic)
    making = call.broker.groups.making_place(call.now) if accepted else None
    if making is not None:
        await asyncio.wait([making])
        await call.broker.turns.pause()  # many may have waited for it
    for wanted, topic, of_topic in zip(request.topics, topics, errors, strict=True):
        if topic is not None and call.broker.topics.get(topic.name) is not topic:  # others had turns meanwhile
            for entry in wanted.partitions:
                at = TopicPartition(topic.name, entry.partition_index)
                accepted.pop(at, None)
                records.pop(at, None)
            of_topic[:] = [_check(entry, None, call) for entry in wanted.partitions]
    return errors, accepted, records if left_bytes >= 0 else None


def _topic(wanted: Any, call: Call) -> Topic | None:
    topics = call.broker.topics
    if call.version >= TOPIC_IDS:
        return None if wanted.topic_id is None else topics.by_id(wanted.topic_id)
    return topics.get(wanted.name)


def _may_read(wanted: Any, topic: Topic | None, call: Call) -> bool:
    """Whether the client may read the topic. An id without a topic is unknown, whatever the client's rights."""
    name = topic.name if topic is not None else wanted.name if call.version < TOPIC_IDS else None
    return name is None or call.rights.may(Operation.READ, Resource.TOPIC, name)


def _check(entry: Any, topic: Topic | None, call: Call) -> ErrorCode:
    if topic is None:
        return ErrorCode.unknown_topic_id if call.version >= TOPIC_IDS else ErrorCode.unknown_topic_or_partition
    if not 0 <= entry.partition_index < len(topic.partitions):
        return ErrorCode.unknown_topic_or_partition
    if _utf16_units(entry.committed_metadata or "") > call.broker.settings.offset_metadata_max_bytes:
        return ErrorCode.offset_metadata_too_large
    return ErrorCode.none


def _utf16_units(text: str) -> int:
    """Kafka compares the length of a Java string, whatever the setting's name says."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le")) // 2


def _expire_wall_ms(request: Any, call: Call) -> int:
    retention: timedelta | None = getattr(request, "retention_time", None)
    retention_ms = BY_SERVER if retention is None else retention // MS
    return BY_SERVER if retention_ms == BY_SERVER else call.now.wall_ms + max(retention_ms, 0)


def _fail(errors: Errors, error: ErrorCode, *also: ErrorCode) -> Errors:
    """The same for every entry that had no other reason to fail, or only one of those in `also`."""
    hidden = (ErrorCode.none, *also)
    return [[error if each in hidden else each for each in of_topic] for of_topic in errors]


async def _answer(request: Any, call: Call, errors: Errors) -> Any:
    async def topic(each: tuple[Any, list[ErrorCode]]) -> Any:
        wanted, of_topic = each
        return call.new(
            "OffsetCommitResponseTopic",
            name=getattr(wanted, "name", None),
            topic_id=getattr(wanted, "topic_id", None),
            partitions=await call.each(
                zip(wanted.partitions, of_topic, strict=True),
                lambda pair: call.new(
                    "OffsetCommitResponsePartition", partition_index=pair[0].partition_index, error_code=pair[1]
                ),
            ),
        )

    topics = await call.each(zip(request.topics, errors, strict=True), topic)
    return call.new("OffsetCommitResponse", topics=topics)


API = Api(key=8, name="offset_commit", versions=(2, 10), handle=handle)
