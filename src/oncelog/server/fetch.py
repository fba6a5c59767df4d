"""Fetch: what there is to read now, or a wait until there is enough.

A wait is called when one of its partitions moves, by the partition itself; nobody polls.
"""

import asyncio
from collections.abc import Generator, Iterable, Sequence
from typing import Any
from uuid import UUID

from oncelog.log.errors import Damaged, LogStorageError, OffsetOutOfRange
from oncelog.log.slices import Slice
from oncelog.server.call import Call, Encoded
from oncelog.server.errors import ErrorCode, KafkaError
from oncelog.server.partitions import partition_of, topic_of
from oncelog.server.straight import STRAIGHT_BYTES
from oncelog.server.topics import Partition, Topic, Topics
from oncelog.server.turns import at_once
from oncelog.wire.fetch_request import FetchPartition, FetchRequest
from oncelog.wire.hot import FETCH_TOPIC_IDS, Fetched, encode_fetched

READ_COMMITTED = 1
NO_TOPIC_ID = bytes(16)
AT_ONCE = 500  # partitions; a fetch of more is answered in turns
ASKED_IN_A_STEP = 100
SHARES = 4  # one answer takes at most this part of the memory that is left for answers


Found = list[tuple[bytes, list[Fetched[bytes | Slice]]]]
Packed = list[bytes | bytearray | Slice]
Read = tuple[Found, int, bool]


class Asked:
    """One partition that a fetch asks for."""

    __slots__ = ("error_code", "index", "max_bytes", "offset", "partition")

    def __init__(self, topic: Topic | None, wanted: FetchPartition, refusal: int) -> None:
        self.index, leader_epoch, self.offset, self.max_bytes = wanted
        self.error_code = refusal
        self.partition: Partition | None = None
        if topic is not None:
            try:
                self.partition = partition_of(topic, self.index, leader_epoch)
            except KafkaError as error:
                self.error_code = error.code

    @property
    def stands_before_the_last_segment(self) -> bool:
        log = None if self.partition is None else self.partition.log
        return log is not None and self.offset < min(log.segments.active.base_offset, log.high_watermark)

    def read(self, max_bytes: int, *, at_least_one: bool, in_slices: bool) -> Fetched[bytes | Slice]:
        """`in_slices`: what is large is only found, to be sent in this turn of the loop."""
        partition = self.partition
        if partition is None or partition.is_deleted:
            return Fetched(self.index, self.error_code or ErrorCode.unknown_topic_or_partition, -1, -1, b"")
        log = partition.log
        limit = min(max_bytes, self.max_bytes)
        try:
            # Behind the high watermark is what waits for the disk: there, but not to be seen yet.
            if log.high_watermark <= self.offset <= log.next_offset or (limit <= 0 and not at_least_one):
                return Fetched(self.index, 0, log.high_watermark, log.log_start_offset, b"")
            found = log.find(self.offset, limit, at_least_one=at_least_one)
            records: bytes | Slice
            if found is None:
                records = b""
            elif in_slices and len(found) >= STRAIGHT_BYTES and found.is_sendable:
                records = found
            else:
                records = found.read()
        except OffsetOutOfRange:
            return Fetched(self.index, ErrorCode.offset_out_of_range, -1, -1, b"")
        except Damaged as damage:
            log.note_damage(str(damage))
            return Fetched(self.index, ErrorCode.corrupt_message, -1, -1, b"")
        except LogStorageError:
            return Fetched(self.index, ErrorCode.kafka_storage_error, -1, -1, b"")
        return Fetched(self.index, 0, log.high_watermark, log.log_start_offset, records)


def _topic(topics: Topics, name: bytes, version: int) -> Topic:
    if version < FETCH_TOPIC_IDS:
        return topic_of(topics, name.decode())
    return topic_of(topics, None, UUID(bytes=name) if name != NO_TOPIC_ID else None)


def _each_once(topics: list[tuple[bytes, list[Asked]]]) -> list[tuple[bytes, list[Asked]]]:
    """Partitions by topic; where one is named again, the last one counts, as in Kafka."""
    found: dict[bytes, dict[int, Asked]] = {}
    for name, asked in topics:
        found.setdefault(name, {}).update({each.index: each for each in asked})
    return [(name, list(asked.values())) for name, asked in found.items()]


class Fetch:
    """One Fetch request, from its arrival to its answer."""

    def __init__(self, request: FetchRequest, call: Call) -> None:
        self._call = call
        self._memory = call.broker.memory
        self._read_committed = request.isolation_level == READ_COMMITTED
        self._min_bytes: int = request.min_bytes
        self._max_bytes = min(request.max_bytes, call.broker.settings.fetch_max_bytes)
        self._topics: list[tuple[bytes, list[Asked]]] = []
        self._found_bytes = 0
        self._appended_before = 0  # to the logs until then; what came since may be found as well
        self._held_bytes = 0  # of what is read, until it is handed on
        self._is_hidden = False  # records waited for the disk then, and nobody knows how much they are
        self._future: asyncio.Future[Encoded] | None = None
        self._enough: asyncio.Future[None] | None = None  # of an answer in turns
        self._timer: asyncio.TimerHandle | None = None
        self._is_due = False
        self._awaited = 0  # partitions, while it waits

    def ask(self, name: bytes, wanted: Sequence[FetchPartition]) -> None:
        topic: Topic | None = None
        refusal = 0
        try:
            topic = _topic(self._call.broker.topics, name, self._call.version)
        except KafkaError as error:
            refusal = error.code
        partitions: Iterable[FetchPartition] = wanted
        if len(wanted) != 1:
            partitions = {each.partition: each for each in wanted}.values()
        self._topics.append((name, [Asked(topic, each, refusal) for each in partitions]))

    def answer(self, max_wait_s: float) -> Encoded | asyncio.Future[Encoded]:
        if len(self._topics) > 1:
            self._topics = _each_once(self._topics)
        topics, size_bytes, has_error = self._read(in_slices=True)  # sent in this turn of the loop
        is_enough = self._is_enough(size_bytes) or has_error or max_wait_s <= 0 or not self._topics
        if is_enough or not self._join_waiting():
            buffers = self._packed(topics)
            return Encoded(buffers, has_slices=Slice in map(type, buffers))
        loop = asyncio.get_running_loop()
        self._future = loop.create_future()
        self._future.add_done_callback(self._forget)
        self._timer = loop.call_later(max_wait_s, self._call.broker.looks.add, self._finish)
        self._wait(size_bytes)
        return self._future

    async def answer_in_turns(self, max_wait_s: float) -> Encoded:
        """The same for very many partitions."""
        self._topics = _each_once(self._topics)
        loop = asyncio.get_running_loop()
        give_up_s = loop.time() + max_wait_s
        while True:
            appended_before = self._appended_bytes()
            try:
                topics, size_bytes, has_error = await self._call.broker.turns.run(self._reading())
                left_s = give_up_s - loop.time()
                if self._is_enough(size_bytes) or has_error or left_s <= 0 or not self._join_waiting():
                    buffers = await self._call.broker.aside.run(self._packed, topics)
                    return self._held(buffers)
            finally:
                self._let_go()
            if size_bytes + self._appended_bytes() - appended_before >= self._min_bytes:
                self._leave_waiting()
                continue  # it came where it had been looked already
            del topics  # too little: what is there will be read again
            self._enough = loop.create_future()
            self._timer = loop.call_later(left_s, self._end_wait)  # no `wait_for`: this may run outside of a task
            self._wait(size_bytes)
            try:
                await self._enough
            finally:
                self._forget(None)

    def _is_enough(self, found_bytes: int) -> bool:
        """What is read ends with its segment. Where another one follows it will not become more, and Kafka answers."""
        return found_bytes >= self._min_bytes or (
            found_bytes > 0 and any(each.stands_before_the_last_segment for _, asked in self._topics for each in asked)
        )

    def _join_waiting(self) -> bool:
        """Whether it may: else what there is, is answered."""
        count = sum(len(asked) for _, asked in self._topics)
        is_waiting = self._call.broker.looks.begin_wait(count)
        self._awaited = count if is_waiting else 0
        return is_waiting

    def _leave_waiting(self) -> None:
        awaited, self._awaited = self._awaited, 0
        self._call.broker.looks.end_wait(awaited)

    def _partitions(self) -> list[Partition]:
        return [each.partition for _, asked in self._topics for each in asked if each.partition is not None]

    def _appended_bytes(self) -> int:
        return sum(partition.log.appended_bytes for partition in self._partitions())

    def _wait(self, found_bytes: int) -> None:
        """Until one of the partitions has grown by its part of what is lacking: before, all together cannot have. What
        waits for the disk may be enough once it is seen."""
        partitions = self._partitions()
        self._found_bytes, self._appended_before = found_bytes, self._appended_bytes()
        self._is_hidden = any(each.log.high_watermark < each.log.next_offset for each in partitions)
        lacks_bytes = 0 if self._is_hidden else max(self._min_bytes - found_bytes, 0)
        part_bytes = -(-lacks_bytes // len(partitions)) if partitions else 0
        for partition in partitions:
            partition.polls.add(self._woken, partition.log.appended_bytes + part_bytes)

    def _woken(self) -> None:
        """Look again once this round of the loop is over: what woke us may have more to do, and so may others."""
        if not self._is_due and self._is_waiting():
            self._is_due = True
            self._call.broker.looks.add(self._look)

    def _is_waiting(self) -> bool:
        future = self._future or self._enough
        return future is not None and not future.done()

    def _look(self) -> None:
        self._is_due = False
        if not self._is_waiting():
            return
        found_bytes = self._found_bytes + self._appended_bytes() - self._appended_before
        is_gone = any(partition.is_deleted or partition.log.offline for partition in self._partitions())
        if found_bytes >= self._min_bytes or self._is_hidden or is_gone:
            if self._enough is not None:
                self._end_wait()
                return
            topics, found_bytes, has_error = self._read()
            if self._future is not None and (self._is_enough(found_bytes) or has_error):
                self._future.set_result(self._held(self._packed(topics)))
                return
            self._let_go()
        self._wait(found_bytes)

    def _end_wait(self) -> None:
        if self._enough is not None and not self._enough.done():
            self._enough.set_result(None)

    def _finish(self) -> None:
        if self._future is not None and not self._future.done():
            self._future.set_result(self._held(self._packed(self._read()[0])))

    def _forget(self, _: object) -> None:
        self._leave_waiting()
        if self._timer is not None:
            self._timer.cancel()
        for partition in self._partitions():
            partition.polls.discard(self._woken)

    def _read(self, *, in_slices: bool = False) -> Read:
        """What there is now: by topic, how many bytes, and whether something went wrong."""
        found: Read = at_once(self._reading(in_slices=in_slices))
        return found

    def _reading(self, *, in_slices: bool = False) -> Generator[None, None, Read]:
        """The same, a partition at a time. What is not sent in the same turn counts against the memory of all, as it is
        read: many may be read before the first of them is sent."""
        unsent = self._memory.unsent
        free_bytes = unsent.left_bytes
        if free_bytes == 0:
            self._memory.is_wanted()
        # A share of what is left, so that one client that takes no answers leaves something for the others.
        left = min(self._max_bytes, free_bytes // SHARES)
        size_bytes = 0
        has_error = False
        topics = []
        for name, asked in self._topics:
            found = []
            for each in asked:
                if not in_slices:
                    left = min(left, unsent.left_bytes // SHARES)
                fetched = each.read(left, at_least_one=size_bytes == 0 and free_bytes > 0, in_slices=in_slices)
                length = len(fetched.records)
                size_bytes += length
                left -= length
                if not in_slices:
                    self._held_bytes += length
                    unsent.hold(length)
                has_error = has_error or fetched.error_code != 0
                found.append(fetched)
                yield
            topics.append((name, found))
        return topics, size_bytes, has_error

    def _packed(self, topics: Found) -> Packed:
        call = self._call
        return encode_fetched(call.version, call.correlation_id, topics, read_committed=self._read_committed)

    def _held(self, buffers: Packed) -> Encoded:
        """An answer that will be sent in a later turn: who sends it, or drops it, gives the memory back."""
        held_bytes, self._held_bytes = self._held_bytes, 0
        return Encoded(buffers, held_bytes=held_bytes)

    def _let_go(self) -> None:
        held_bytes, self._held_bytes = self._held_bytes, 0
        self._memory.unsent.give_back(held_bytes)


def fetch(request: FetchRequest, call: Call) -> Any:
    """The answer, or what it comes to later."""
    asking = Fetch(request, call)
    if sum(len(wanted) for _, wanted in request.topics) > AT_ONCE or len(request.topics) > AT_ONCE:
        return _in_turns(asking, request, call)
    for name, wanted in request.topics:
        asking.ask(name, wanted)
    return asking.answer(request.max_wait_ms / 1000)


async def _in_turns(asking: Fetch, request: FetchRequest, call: Call) -> Encoded:
    def steps() -> Generator[None, None, None]:
        for name, wanted in request.topics:
            for start in range(0, max(len(wanted), 1), ASKED_IN_A_STEP):
                asking.ask(name, wanted[start : start + ASKED_IN_A_STEP])
                yield

    await call.broker.turns.run(steps())
    return await asking.answer_in_turns(request.max_wait_ms / 1000)
