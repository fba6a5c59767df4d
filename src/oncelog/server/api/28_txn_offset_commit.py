"""TxnOffsetCommit, versions 0 to 5 (KIP-98, KIP-320 leader epochs, KIP-447 v3: members and generations, KIP-890 v5: the
partition of the offsets is added to the transaction by the way).

The offsets are nobody's before the transaction is committed.
"""

import asyncio
from collections.abc import Collection, Mapping
from typing import Any

from oncelog.security.operations import Operation, Resource
from oncelog.server.api import Api
from oncelog.server.call import Call
from oncelog.server.coordinator_topic import InTransaction
from oncelog.server.errors import ErrorCode
from oncelog.server.groups.offsets import TopicPartition
from oncelog.server.groups.records import NO_EPOCH, CommittedOffset
from oncelog.server.packing import packed_aside
from oncelog.server.topics import Topic

LOADING_IS_KNOWN, ADDS = 2, 5

Accepted = dict[TopicPartition, CommittedOffset]
Errors = dict[TopicPartition, ErrorCode]


@packed_aside
async def handle(request: Any, call: Call) -> Any:
    errors: Errors = {}
    accepted: Accepted = {}
    topics: dict[str, Topic] = {}  # of what is accepted, as they were found first
    refused = _refused(request, call)
    for topic in request.topics:
        for each in topic.partitions:
            await call.broker.turns.pause()
            at = TopicPartition(topic.name, each.partition_index)
            found = call.broker.topics.get(topic.name)
            errors[at] = refused or _check(at, each, found, call)
            if errors[at] is ErrorCode.none and found is not None:
                topics.setdefault(topic.name, found)
                epoch = getattr(each, "committed_leader_epoch", NO_EPOCH)
                metadata = each.committed_metadata or ""
                accepted[at] = CommittedOffset(each.committed_offset, epoch, metadata, call.now.wall_ms)
    if accepted:
        errors |= dict.fromkeys(accepted, ErrorCode.unknown_topic_or_partition)  # those that are gone in the end
        error = await _commit(request, accepted, topics, call)
        if error is ErrorCode.coordinator_load_in_progress and call.version < LOADING_IS_KNOWN:
            error = ErrorCode.coordinator_not_available
        errors |= dict.fromkeys(accepted, error)
    return await _answer(request, errors, call)


def _refused(request: Any, call: Call) -> ErrorCode:
    if not call.rights.may(Operation.WRITE, Resource.TRANSACTIONAL_ID, request.transactional_id):
        return ErrorCode.transactional_id_authorization_failed
    is_allowed = call.rights.may(Operation.READ, Resource.GROUP, request.group_id)
    return ErrorCode.none if is_allowed else ErrorCode.group_authorization_failed


def _check(at: TopicPartition, wanted: Any, topic: Topic | None, call: Call) -> ErrorCode:
    if not call.rights.may(Operation.READ, Resource.TOPIC, at.topic):
        return ErrorCode.topic_authorization_failed
    if topic is None or not 0 <= at.partition < len(topic.partitions):
        return ErrorCode.unknown_topic_or_partition
    if len(wanted.committed_metadata or "") > call.broker.settings.offset_metadata_max_bytes:
        return ErrorCode.offset_metadata_too_large
    return ErrorCode.none


async def _commit(request: Any, accepted: Accepted, topics: Mapping[str, Topic], call: Call) -> ErrorCode:
    broker, groups = call.broker, call.broker.groups
    making = groups.making_place(call.now)
    if making is not None:
        await asyncio.wait([making])  # it is made for others, too, when this client hangs up
        await broker.turns.pause()  # many may have waited for it
    error = _check_member(request, accepted, call)
    partition = groups.partition_of(request.group_id)
    if error is not ErrorCode.none or partition is None:
        return error or ErrorCode.not_coordinator
    pid, epoch = request.producer_id, request.producer_epoch
    error = await broker.verifying.ask_for_groups(
        partition, request.transactional_id, pid, epoch, adds=call.version >= ADDS
    )
    # Again, last of all: who was a member when it asked may be none by now, and another reads on from what is stored.
    error = error or _check_member(request, accepted, call)
    _leave_out_gone(accepted, topics, call)
    if error is not ErrorCode.none or not accepted:
        return error
    within, now = InTransaction(pid, epoch), broker.clock.now()
    settled = groups.in_transactions.put(request.group_id, accepted, within, now, call.client_host)
    return settled if isinstance(settled, ErrorCode) else await settled


def _leave_out_gone(accepted: Accepted, topics: Mapping[str, Topic], call: Call) -> None:
    """Others had turns meanwhile: what was read of a topic that is gone means nothing in the next one of its name."""
    gone = {name for name, topic in topics.items() if call.broker.topics.get(name) is not topic}
    for at in [each for each in accepted if each.topic in gone] if gone else ():
        del accepted[at]


def _check_member(request: Any, accepted: Collection[TopicPartition], call: Call) -> ErrorCode:
    return call.broker.groups.in_transactions.check(
        request.group_id,
        getattr(request, "member_id", ""),
        getattr(request, "group_instance_id", None),
        getattr(request, "generation_id", -1),
        call.broker.clock.now(),
        accepted,
    )


async def _answer(request: Any, errors: Errors, call: Call) -> Any:
    async def topic(each: Any) -> Any:
        partitions = await call.each(
            each.partitions,
            lambda one: call.new(
                "TxnOffsetCommitResponsePartition",
                partition_index=one.partition_index,
                error_code=errors[TopicPartition(each.name, one.partition_index)],
            ),
        )
        return call.new("TxnOffsetCommitResponseTopic", name=each.name, partitions=partitions)

    return call.new("TxnOffsetCommitResponse", topics=await call.each(request.topics, topic))


API = Api(key=28, name="txn_offset_commit", versions=(0, 5), handle=handle)
