"""TxnOffsetCommit, versions 0 to 5 (KIP-98, KIP-320 leader epochs, KIP-447 v3: members and generations, KIP-890 v5: the
partition of the offsets is added to the transaction by the way).

The offsets are nobody's before the transaction is committed.
"""

import asyncio
from collections.abc import Collection
from typing import Any

from oncelog.security.operations import Operation, Resource
from oncelog.server.api import Api
from oncelog.server.call import Call
from oncelog.server.coordinator_topic import InTransaction
from oncelog.server.errors import ErrorCode
from oncelog.server.groups.offsets import TopicPartition
from oncelog.server.groups.records import NO_EPOCH, CommittedOffset
from oncelog.server.packing import packed_aside

LOADING_IS_KNOWN, ADDS = 2, 5

Errors = dict[TopicPartition, ErrorCode]


@packed_aside
async def handle(request: Any, call: Call) -> Any:
    errors: Errors = {}
    accepted: dict[TopicPartition, CommittedOffset] = {}
    refused = _refused(request, call)
    for topic in request.topics:
        for each in topic.partitions:
            await call.broker.turns.pause()
            at = TopicPartition(topic.name, each.partition_index)
            errors[at] = refused or _check(at, each, call)
            if errors[at] is ErrorCode.none:
                epoch = getattr(each, "committed_leader_epoch", NO_EPOCH)
                metadata = each.committed_metadata or ""
                accepted[at] = CommittedOffset(each.committed_offset, epoch, metadata, call.now.wall_ms)
    if accepted:
        error = await _commit(request, accepted, call)
        if error is ErrorCode.coordinator_load_in_progress and call.version < LOADING_IS_KNOWN:
            error = ErrorCode.coordinator_not_available
        errors |= dict.fromkeys(accepted, error)
    return await _answer(request, errors, call)


def _refused(request: Any, call: Call) -> ErrorCode:
    if not call.rights.may(Operation.WRITE, Resource.TRANSACTIONAL_ID, request.transactional_id):
        return ErrorCode.transactional_id_authorization_failed
    is_allowed = call.rights.may(Operation.READ, Resource.GROUP, request.group_id)
    return ErrorCode.none if is_allowed else ErrorCode.group_authorization_failed


def _check(at: TopicPartition, wanted: Any, call: Call) -> ErrorCode:
    if not call.rights.may(Operation.READ, Resource.TOPIC, at.topic):
        return ErrorCode.topic_authorization_failed
    topic = call.broker.topics.get(at.topic)
    if topic is None or not 0 <= at.partition < len(topic.partitions):
        return ErrorCode.unknown_topic_or_partition
    if len(wanted.committed_metadata or "") > call.broker.settings.offset_metadata_max_bytes:
        return ErrorCode.offset_metadata_too_large
    return ErrorCode.none


async def _commit(request: Any, accepted: dict[TopicPartition, CommittedOffset], call: Call) -> ErrorCode:
    broker, groups = call.broker, call.broker.groups
    making = groups.making_place(call.now)
    if making is not None:
        await asyncio.wait([making])  # it is made for others, too, when this client hangs up
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
    if error is not ErrorCode.none:
        return error
    within, now = InTransaction(pid, epoch), broker.clock.now()
    settled = groups.in_transactions.put(request.group_id, accepted, within, now, call.client_host)
    return settled if isinstance(settled, ErrorCode) else await settled


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
