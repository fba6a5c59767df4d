"""ConsumerGroupHeartbeat: join a group, say what is read and what is had, hear what to have, and leave.

Versions 0 and 1. KIP-848 (v1: patterns, and ids that clients make up).
"""

import asyncio
from datetime import timedelta
from itertools import compress
from typing import Any
from uuid import UUID, uuid4

from oncelog.security.operations import Operation, Resource
from oncelog.server.api import Api
from oncelog.server.api_rights import demand
from oncelog.server.call import Call
from oncelog.server.errors import ErrorCode, KafkaError
from oncelog.server.groups.consumer.pattern_finding import MayKnow
from oncelog.server.groups.consumer.topics import Found
from oncelog.server.groups.consumer.values import JOINS, LEAVES_FOR_A_WHILE, Beat, BeatAnswer, Place, Places
from oncelog.server.names import MOST_ID_CHARACTERS
from oncelog.server.packing import packed_aside

PATTERNS = 1
MS = timedelta(milliseconds=1)
NO_TOPIC = UUID(int=0)


@packed_aside
async def handle(request: Any, call: Call) -> Any:
    demand(call.rights, Operation.READ, Resource.GROUP, request.group_id)
    try:
        return await _answer(await _beat(request, call), call)
    except KafkaError as refusal:
        return await _answer(BeatAnswer(refusal.code, refusal.message), call)


async def _beat(request: Any, call: Call) -> BeatAnswer:
    groups = call.broker.groups
    if not groups.consumer.is_enabled:
        raise KafkaError(ErrorCode.unsupported_version)
    await _check_topics(request, call)
    _check(request, call)
    making = groups.making_place(call.now) if request.member_epoch == JOINS else None
    if making is not None:
        await asyncio.wait([making])  # it is made for others, too, when this client hangs up
        await call.broker.turns.pause()  # many may have waited for it

    def may_know(name: str) -> bool:
        return call.rights.may(Operation.DESCRIBE, Resource.TOPIC, name)

    said = _said(request, call)
    found = await _find(groups.consumer.pattern_of(request.group_id, said, call.now), may_know, call)
    error = groups.check_group_id(request.group_id)
    if error is not ErrorCode.none:
        raise KafkaError(error)
    answer, settled = groups.consumer.heartbeat(request.group_id, said, may_know, call.now, found)
    error = settled if isinstance(settled, ErrorCode) else await call.later(settled)
    return answer if error is ErrorCode.none else BeatAnswer(error)


async def _find(pattern: str | None, may_know: MayKnow, call: Call) -> Found | None:
    """The topics that the pattern finds among many. Some may come while a thread looks for them: the member's next
    heartbeat looks again."""
    finding = call.broker.groups.consumer.finding
    work = finding.work(pattern)
    if work is not None:
        finding.keep(await call.broker.aside.run(work))
    found = None if pattern is None else finding.kept(pattern)
    if found is None:
        return None
    names = tuple(found.names)
    return found._replace(names=frozenset(compress(names, await call.each(names, may_know))))


async def _check_topics(request: Any, call: Call) -> None:
    may = call.rights.may
    names = request.subscribed_topic_names or ()
    if not all(await call.each(names, lambda each: may(Operation.DESCRIBE, Resource.TOPIC, each))):
        raise KafkaError(ErrorCode.topic_authorization_failed)


def _check(request: Any, call: Call) -> None:
    pattern = getattr(request, "subscribed_topic_regex", None)
    for text, what in (
        (request.group_id, "GroupId"),
        (request.instance_id, "InstanceId"),
        (request.rack_id, "RackId"),
    ):
        if text is not None and not text.strip():
            raise _invalid(f"{what} can't be empty.")
    for text in (request.member_id, request.instance_id, request.rack_id, request.server_assignor, call.client_id):
        if text is not None and len(text) > MOST_ID_CHARACTERS:
            raise _invalid(f"{len(text)} characters, where {MOST_ID_CHARACTERS} are the most.")
    if (call.version >= PATTERNS or request.member_epoch != JOINS) and not request.member_id.strip():
        raise _invalid("MemberId can't be empty.")
    if request.member_epoch == JOINS:
        _check_join(request, pattern)
    elif request.member_epoch == LEAVES_FOR_A_WHILE and request.instance_id is None:
        raise _invalid("InstanceId can't be null.")
    elif request.member_epoch < LEAVES_FOR_A_WHILE:
        raise _invalid("MemberEpoch is invalid.")


def _check_join(request: Any, pattern: str | None) -> None:
    if request.rebalance_timeout // MS == -1:
        raise _invalid("RebalanceTimeoutMs must be provided in first request.")
    if request.topic_partitions is None or request.topic_partitions:
        raise _invalid("TopicPartitions must be empty when (re-)joining.")
    if request.subscribed_topic_names is None and pattern is None:
        raise _invalid("Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.")


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.invalid_request, message)


def _said(request: Any, call: Call) -> Beat:
    return Beat(
        member_id=request.member_id or str(uuid4()),
        epoch=request.member_epoch,
        instance_id=request.instance_id,
        rack_id=request.rack_id,
        rebalance_timeout_ms=request.rebalance_timeout // MS,
        topics=request.subscribed_topic_names,
        pattern=getattr(request, "subscribed_topic_regex", None),
        assignor=request.server_assignor,
        owned=None if request.topic_partitions is None else _places(request.topic_partitions),
        client_id=call.client_id or "",
        client_host=f"/{call.client_host}",
    )


def _places(topics: Any) -> Places:
    return frozenset(Place((each.topic_id or NO_TOPIC).bytes, index) for each in topics for index in each.partitions)


async def _answer(answer: BeatAnswer, call: Call) -> Any:
    return call.new(
        "ConsumerGroupHeartbeatResponse",
        error_code=answer.error,
        error_message=answer.message,
        member_id=answer.member_id,
        member_epoch=answer.epoch,
        heartbeat_interval=answer.heartbeat_interval_ms * MS,
        assignment=None if answer.assigned is None else await _assignment(answer.assigned, call),
    )


async def _assignment(places: Places, call: Call) -> Any:
    by_topic: dict[bytes, list[int]] = {}
    for place in sorted(places):
        by_topic.setdefault(place.topic_id, []).append(place.partition)
    topics = await call.each(
        by_topic.items(),
        lambda each: call.new("TopicPartitions", topic_id=UUID(bytes=each[0]), partitions=tuple(each[1])),
    )
    return call.new("Assignment", topic_partitions=topics)


API = Api(key=68, name="consumer_group_heartbeat", versions=(0, 1), handle=handle)
