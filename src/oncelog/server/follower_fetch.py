"""Fetch by a follower: up to where it has the leader's log, and what follows there, whether that is safe or not.

Such a fetch is what moves the high watermark. One that finds nothing waits for an append, which comes before the
watermark can move; a watermark that has moved is told a moment later, since records that come meanwhile take it along.
Partitions of which there is nothing new are left out of the answer.
"""

import asyncio
from collections.abc import Iterator
from uuid import UUID

from oncelog.log.errors import LogError
from oncelog.log.partition import PartitionLog
from oncelog.log.slices import Slice
from oncelog.replication.following import Diverging, NextFetch, OtherEpoch, Refusal, TooEarly
from oncelog.replication.leader import Leader
from oncelog.replication.replica import Fetching, Replica
from oncelog.security.operations import CLUSTER_NAME, Operation, Resource
from oncelog.server.call import Call, Encoded
from oncelog.server.errors import ErrorCode, KafkaError
from oncelog.server.fetch import ASKED_IN_A_STEP, SHARES, Found, code_of
from oncelog.server.straight import STRAIGHT_BYTES
from oncelog.server.topics import Partition, Topic
from oncelog.wire.follower_fetch import FollowedPartition, FollowerFetch
from oncelog.wire.hot import Fetched, diverging, encode_fetched

WATERMARK_S = 0.01  # it may be told so much later

Part = Fetched[bytes | Slice]


class Followed:
    """One partition that a follower asks for."""

    __slots__ = ("_asked", "_leader", "_max_bytes", "_refusal", "_said", "_who", "index", "partition")

    def __init__(self, broker: int, broker_epoch: int, wanted: FollowedPartition, topic: Topic | None) -> None:
        self.index, leader_epoch, offset, last_epoch, log_start_offset, self._max_bytes, high_watermark = wanted
        self._who = broker, broker_epoch
        self._asked = NextFetch(leader_epoch, offset, last_epoch)
        self._said = high_watermark, log_start_offset
        self._leader: Leader | None = None  # for whom the fetch counts
        self._refusal: Refusal | None = None
        is_there = topic is not None and 0 <= self.index < len(topic.partitions)
        self.partition: Partition | None = topic.partitions[self.index] if topic is not None and is_there else None

    def _replica(self) -> Replica:
        """This broker's, if it leads. Raises KafkaError."""
        partition = self.partition
        if partition is None or partition.is_deleted:
            raise KafkaError(ErrorCode.unknown_topic_or_partition)
        replica = partition.replica
        if not partition.is_open or replica is None or replica.leader is None:
            raise KafkaError(ErrorCode.not_leader_or_follower)
        if not partition.log.readable:
            raise KafkaError(ErrorCode.kafka_storage_error)
        if not replica.leader.is_followed_by(self._who[0]):
            raise KafkaError(ErrorCode.unknown_leader_epoch)  # it may know of a change that has not come here yet
        return replica

    def note(self, now_ms: int) -> bool:
        """Whether the high watermark has moved by it."""
        try:
            replica = self._replica()
        except KafkaError:
            return False
        before = replica.log.high_watermark
        self._refusal = replica.fetched(Fetching(*self._who, self._asked), now_ms)
        if self._refusal is None:
            self._leader = replica.leader
        return replica.log.high_watermark > before

    @property
    def is_due(self) -> bool:
        """Whether there are records, or something is wrong."""
        partition = self.partition
        if self._leader is None or partition is None or partition.is_deleted:
            return True
        replica = partition.replica
        return replica is None or replica.leader is not self._leader or replica.log.next_offset > self._asked.offset

    @property
    def is_behind(self) -> bool:
        """The follower knows an older high watermark."""
        partition = self.partition
        return partition is not None and partition.is_open and partition.log.high_watermark > self._said[0]

    @property
    def is_new(self) -> bool:
        """Whether there is anything to be told."""
        if self.is_due or self.partition is None:
            return True
        log = self.partition.log
        return (log.high_watermark, log.log_start_offset) != self._said

    def read(self, limit_bytes: int, *, at_least_one: bool, in_slices: bool) -> Part:
        """`in_slices`: what is large is only found, to be sent in this turn of the loop. Behind the high watermark it
        may be cut off and written over while it is sent: then its CRC does not fit, or it is what the next leader has
        there."""
        try:
            replica = self._replica()
            if self._refusal is None:
                self._refusal = replica.refusal(self._asked)
            if self._refusal is not None:
                return self._refused(self._refusal)
            assert self.partition is not None
            log = self.partition.log
            records = self._find(log, min(limit_bytes, self._max_bytes), at_least_one, in_slices)
        except KafkaError as error:
            return Fetched(self.index, error.code, -1, -1, b"")
        start, watermark = log.log_start_offset, log.high_watermark
        return Fetched(self.index, 0, watermark, start, records, stable_offset=watermark)

    def _find(self, log: PartitionLog, limit_bytes: int, at_least_one: bool, in_slices: bool) -> bytes | Slice:
        try:
            found = log.find(self._asked.offset, limit_bytes, at_least_one=at_least_one, limit_offset=log.next_offset)
            if found is None:
                return b""
            return found if in_slices and len(found) >= STRAIGHT_BYTES and found.is_sendable else found.read()
        except LogError as error:
            raise KafkaError(code_of(error, log)) from error

    def _refused(self, refusal: Refusal) -> Part:
        match refusal:
            case Diverging(epoch, end):
                return Fetched(self.index, 0, -1, -1, b"", diverging(epoch, end))
            case OtherEpoch(epoch):
                is_old = self._asked.leader_epoch < epoch
                code = ErrorCode.fenced_leader_epoch if is_old else ErrorCode.unknown_leader_epoch
                return Fetched(self.index, code, -1, -1, b"")
            case TooEarly(beginning):
                return Fetched(self.index, ErrorCode.offset_out_of_range, -1, -1, beginning)


class FollowerFetching:
    """One such request, from its arrival to its answer."""

    def __init__(self, request: FollowerFetch, call: Call) -> None:
        self._call = call
        self._request = request
        self._max_bytes = min(request.max_bytes, call.broker.settings.fetch_max_bytes)
        self._topics: list[tuple[bytes, list[Followed]]] = []
        self._has_waited = False  # what is answered is not sent in this turn of the loop
        self._awaited = 0  # partitions
        self._woken: asyncio.Future[None] | None = None

    async def answer(self) -> Encoded:
        loop = asyncio.get_running_loop()
        give_up_s = loop.time() + self._request.max_wait_ms / 1000
        try:
            await self._note()
            while not any(each.is_due for each in self._all()):
                now_s = loop.time()
                if give_up_s > now_s + WATERMARK_S and any(each.is_behind for each in self._all()):
                    give_up_s = now_s + WATERMARK_S
                if now_s >= give_up_s or not self._begin_wait():
                    break
                await self._wait(give_up_s)
            return self._read()
        finally:
            self._forget()

    def _all(self) -> Iterator[Followed]:
        for _, followed in self._topics:
            yield from followed

    async def _note(self) -> None:
        """Note all of it before readers that wait for the high watermark are called: some wait for that of many
        partitions."""
        broker, (replica_id, replica_epoch, *_, wanted) = self._call.broker, self._request
        turns, moved = broker.turns, list[Partition]()
        try:
            for topic_id, partitions in wanted:
                topic = broker.topics.by_id(UUID(bytes=topic_id))
                followed: list[Followed] = []
                self._topics.append((topic_id, followed))
                for number, each in enumerate(partitions, 1):
                    one = Followed(replica_id, replica_epoch, each, topic)
                    followed.append(one)
                    if one.note(self._call.now.monotonic_ms) and one.partition is not None:
                        moved.append(one.partition)
                    if number % ASKED_IN_A_STEP == 0 and turns.is_over():
                        self._has_waited = True
                        await turns.next()
        finally:
            for partition in moved:
                partition.wake()

    def _begin_wait(self) -> bool:
        """Whether it may: else what there is, is answered."""
        count = sum(len(followed) for _, followed in self._topics)
        if not self._awaited and self._call.broker.looks.begin_wait(count):
            self._awaited = count
        return 0 < count == self._awaited

    async def _wait(self, until_s: float) -> None:
        loop = asyncio.get_running_loop()
        self._has_waited = True
        woken = self._woken = loop.create_future()
        timer = loop.call_at(until_s, self._wake)
        for each in self._all():
            if each.partition is not None:
                each.partition.polls.add(self._wake, 0)  # it is called for every append, and as the watermark moves
        try:
            await woken
        finally:
            timer.cancel()

    def _wake(self) -> None:
        if self._woken is not None and not self._woken.done():
            self._woken.set_result(None)

    def _forget(self) -> None:
        if self._awaited:
            for each in self._all():
                if each.partition is not None:
                    each.partition.polls.discard(self._wake)
            self._call.broker.looks.end_wait(self._awaited)

    def _read(self) -> Encoded:
        call, in_slices = self._call, not self._has_waited
        memory = call.broker.memory
        free_bytes = memory.unsent.left_bytes
        if free_bytes == 0:
            memory.is_wanted()
        left = min(self._max_bytes, free_bytes // SHARES)
        size_bytes = 0
        topics: Found = []
        for topic_id, followed in self._topics:
            found = []
            for each in followed:
                if each.is_new:
                    at_least_one = size_bytes == 0 and free_bytes > 0
                    part = each.read(left - size_bytes, at_least_one=at_least_one, in_slices=in_slices)
                    size_bytes += len(part.records)
                    found.append(part)
            if found:
                topics.append((topic_id, found))
        buffers = encode_fetched(call.version, call.correlation_id, topics)
        if in_slices:
            return Encoded(buffers, has_slices=True)
        memory.unsent.hold(size_bytes)
        return Encoded(buffers, held_bytes=size_bytes)


async def follower_fetch(request: FollowerFetch, call: Call) -> Encoded:
    if not call.rights.may(Operation.CLUSTER_ACTION, Resource.CLUSTER, CLUSTER_NAME):
        return _not_allowed(request, call)
    return await FollowerFetching(request, call).answer()


def _not_allowed(request: FollowerFetch, call: Call) -> Encoded:
    code = ErrorCode.topic_authorization_failed
    refused: Found = [
        (topic_id, [Fetched(each[0], code, -1, -1, b"") for each in partitions])
        for topic_id, partitions in request.topics
    ]
    buffers = encode_fetched(call.version, call.correlation_id, refused)
    return Encoded(buffers)
