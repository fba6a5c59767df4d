"""Fetch: what there is to read now, or a wait until there is enough.

A wait is called when one of its partitions moves, by the partition itself; nobody polls.
"""

import asyncio
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from typing import Any
from uuid import UUID

from oncelog.log.errors import Damaged, LogError, OffsetOutOfRange
from oncelog.log.partition import PartitionLog
from oncelog.log.slices import Slice
from oncelog.log.work_steps import at_once
from oncelog.security.operations import Operation, Resource
from oncelog.server.api_rights import demand
from oncelog.server.call import Call, Encoded
from oncelog.server.errors import ErrorCode, KafkaError
from oncelog.server.fetch_sessions import ENDS, NOTHING, Following, Kept, Opening
from oncelog.server.partitions import partition_of, topic_of
from oncelog.server.straight import STRAIGHT_BYTES
from oncelog.server.topics import Partition, Topic
from oncelog.wire.fetch_request import FetchPartition, FetchRequest
from oncelog.wire.hot import FETCH_TOPIC_IDS, NO_TAGS, Fetched, encode_fetched

READ_COMMITTED = 1
NO_TOPIC_ID = bytes(16)
AT_ONCE = 500  # partitions; a fetch of more is answered in turns
ASKED_IN_A_STEP = 100
UNKNOWN = -1
SHARES = 4  # one answer takes at most this part of the memory that is left for answers
ABORTED_BYTES = 4096  # for which it counts that one transaction is told of: some thousands in one answer


Found = list[tuple[bytes, list[Fetched[bytes | Slice]]]]
Packed = list[bytes | bytearray | Slice]
Read = tuple[Found, int, bool]


class Asked:
    """One partition that a fetch asks for."""

    __slots__ = ("error_code", "index", "max_bytes", "offset", "partition", "seen_bytes")

    def __init__(self, topic: Topic | None, wanted: FetchPartition, refusal: int) -> None:
        self.index, leader_epoch, self.offset, self.max_bytes = wanted
        self.error_code = refusal
        self.partition: Partition | None = None
        # Appended up to the last look; not known where some of it waited for the disk, or for the end of a transaction.
        self.seen_bytes = UNKNOWN
        if topic is not None:
            try:
                self.partition = partition_of(topic, self.index, leader_epoch)
            except KafkaError as error:
                self.error_code = error.code

    @property
    def stands_before_the_last_segment(self) -> bool:
        if self.partition is None or not self.partition.leads:
            return False
        log = self.partition.log
        return self.offset < min(log.segments.active.base_offset, log.high_watermark)

    def is_known(self, kept: Mapping[int, Kept]) -> bool:
        """Whether there is nothing to read, and nothing to say that the reader does not know."""
        partition, one = self.partition, kept.get(self.index)
        if partition is None or partition.is_deleted or self.error_code or one is None or not partition.leads:
            return False
        log, offset = partition.log, self.offset
        if one.told != (offset, offset, log.log_start_offset):
            return False
        if not (offset == log.high_watermark == log.stable_offset == log.next_offset):
            return False
        self.seen_bytes = log.appended_bytes
        return True

    def read(
        self, max_bytes: int, *, at_least_one: bool, in_slices: bool, committed_only: bool = False
    ) -> Fetched[bytes | Slice]:
        """`in_slices`: what is large is only found, to be sent in this turn of the loop."""
        partition = self.partition
        if partition is None or partition.is_deleted or self.error_code:
            return Fetched(self.index, self.error_code or ErrorCode.unknown_topic_or_partition, -1, -1, b"")
        if not partition.leads:
            return Fetched(self.index, ErrorCode.not_leader_or_follower, -1, -1, b"")
        log = partition.log
        watermark, next_offset, stable_offset = log.high_watermark, log.next_offset, log.stable_offset
        end_offset = stable_offset if committed_only else watermark
        self.seen_bytes = log.appended_bytes if end_offset == next_offset else UNKNOWN
        limit = min(max_bytes, self.max_bytes)
        aborted: list[tuple[int, int]] = []
        try:
            # Behind the high watermark is what waits for the disk: there, but not to be seen yet.
            if end_offset <= self.offset <= next_offset or (limit <= 0 and not at_least_one):
                return Fetched(self.index, 0, watermark, log.log_start_offset, b"", stable_offset=stable_offset)
            found = log.find(self.offset, limit, at_least_one=at_least_one, stable_only=committed_only)
            records: bytes | Slice
            if found is not None and committed_only:
                aborted = log.aborted_within(self.offset, found)
            if found is None:
                records = b""
            elif in_slices and len(found) >= STRAIGHT_BYTES and found.is_sendable:
                records = found
            else:
                records = found.read()
        except LogError as error:
            return Fetched(self.index, code_of(error, log), -1, -1, b"")
        start = log.log_start_offset
        return Fetched(self.index, 0, watermark, start, records, NO_TAGS, stable_offset, aborted)


def code_of(error: LogError, log: PartitionLog) -> ErrorCode:
    """The error code for a read that failed."""
    if isinstance(error, OffsetOutOfRange):
        return ErrorCode.offset_out_of_range
    if isinstance(error, Damaged):
        log.note_damage(str(error))
        return ErrorCode.corrupt_message
    return ErrorCode.kafka_storage_error


def _topic(name: bytes, call: Call) -> Topic:
    topics, rights = call.broker.topics, call.rights
    if call.version < FETCH_TOPIC_IDS:
        text = name.decode()
        demand(rights, Operation.READ, Resource.TOPIC, text)
        return topic_of(topics, text)
    topic = topic_of(topics, None, UUID(bytes=name) if name != NO_TOPIC_ID else None)
    demand(rights, Operation.READ, Resource.TOPIC, topic.name)
    return topic


class Fetch:
    """One Fetch request, from its arrival to its answer."""

    def __init__(self, request: FetchRequest, call: Call, session: Opening | Following | None = None) -> None:
        self._call = call
        self._session = session
        self._memory = call.broker.memory
        self._read_committed = request.isolation_level == READ_COMMITTED
        self._min_bytes: int = request.min_bytes
        self._max_bytes = min(request.max_bytes, call.broker.settings.fetch_max_bytes)
        if call.spending is not None:
            self._max_bytes = min(self._max_bytes, call.spending.most_fetched_bytes())
            self._min_bytes = min(self._min_bytes, self._max_bytes)
        self._topics: dict[bytes, dict[int, Asked]] = {}
        self._found_bytes = 0  # when it was last read, and what came since
        self._held_bytes = 0  # of what is read, until it is handed on
        self._future: asyncio.Future[Encoded] | None = None
        self._enough: asyncio.Future[None] | None = None  # of an answer in turns
        self._timer: asyncio.TimerHandle | None = None
        self._is_due = False
        self._awaited = 0  # partitions, while it waits

    def ask(self, name: bytes, wanted: Sequence[FetchPartition]) -> None:
        """Take in a topic of the request. Where a partition is named again, the last one counts, as in Kafka."""
        topic: Topic | None = None
        refusal = 0
        try:
            topic = _topic(name, self._call)
            if self._session is not None and self._call.version >= FETCH_TOPIC_IDS:
                self._session.names[name] = topic.name
        except KafkaError as error:
            refusal = self._gone(name) if error.code == ErrorCode.unknown_topic_id else error.code
        asked = self._topics.setdefault(name, {})
        for each in wanted:
            asked[each.partition] = Asked(topic, each, refusal)

    def _gone(self, name: bytes) -> int:
        """The code for an id without a topic: a session knows the topic's name, and then Kafka's answer says more."""
        called = None if self._session is None else self._session.names.get(name)
        if called is None:
            return ErrorCode.unknown_topic_id
        if not self._call.rights.may(Operation.READ, Resource.TOPIC, called):
            return ErrorCode.topic_authorization_failed
        is_another = self._call.broker.topics.get(called) is not None
        return ErrorCode.inconsistent_topic_id if is_another else ErrorCode.unknown_topic_or_partition

    def answer(self, max_wait_s: float) -> Encoded | asyncio.Future[Encoded]:
        topics, self._found_bytes, has_error = self._read(in_slices=True)  # sent in this turn of the loop
        if self._is_enough() or has_error or max_wait_s <= 0 or not self._topics or not self._begin_wait():
            buffers = self._packed(self._news(topics))
            return Encoded(buffers, Slice in map(type, buffers), 0, self._session_id)
        loop = asyncio.get_running_loop()
        self._future = loop.create_future()
        self._future.add_done_callback(self._forget)
        self._timer = loop.call_later(max_wait_s, self._call.broker.looks.add, self._finish)
        at_once(self._waiting())
        return self._future

    async def answer_in_turns(self, max_wait_s: float) -> Encoded:
        """The same for very many partitions."""
        run, loop = self._call.broker.turns.run, asyncio.get_running_loop()
        give_up_s = loop.time() + max_wait_s
        try:
            while True:
                topics, self._found_bytes, has_error = await run(self._reading())
                is_enough = has_error or self._found_bytes >= self._min_bytes or await run(self._seeking_an_end())
                if is_enough or loop.time() >= give_up_s or not self._begin_wait():
                    if self._session is not None:
                        topics = await run(self._session.answering(topics))
                    return self._held(await self._call.broker.aside.run(self._packed, topics))
                del topics  # too little: what is there will be read again
                self._let_go()
                is_due = False
                while not is_due and (left_s := give_up_s - loop.time()) > 0:
                    self._enough = loop.create_future()
                    self._timer = loop.call_later(left_s, self._end_wait)  # not `wait_for`: perhaps no task
                    await run(self._waiting())
                    await self._enough
                    self._timer.cancel()
                    is_due = await run(self._growing())
        finally:
            self._let_go()
            self._forget(None)

    def _is_enough(self) -> bool:
        return self._found_bytes >= self._min_bytes or at_once(self._seeking_an_end())

    def _seeking_an_end(self) -> Generator[None, None, bool]:
        """Whether a read ended with its segment: where another segment follows, it will not become more, and Kafka
        answers."""
        if self._found_bytes:
            for number, (each, _) in enumerate(self._places(), 1):
                if each.stands_before_the_last_segment:
                    return True
                if number % ASKED_IN_A_STEP == 0:
                    yield
        return False

    def _begin_wait(self) -> bool:
        """Whether it may: else what there is, is answered."""
        count = sum(map(len, self._topics.values()))
        if not self._awaited and self._call.broker.looks.begin_wait(count):
            self._awaited = count
        return self._awaited == count

    def _places(self) -> Iterator[tuple[Asked, Partition]]:
        for asked in self._topics.values():
            for each in asked.values():
                if each.partition is not None:
                    yield each, each.partition

    def _waiting(self) -> Generator[None, None, None]:
        """Wait until one of the partitions has grown by its part of what is lacking: before, all together cannot have.
        What waits for the disk may be enough once it is seen. Where it came since the last look, the wait is over."""
        woken = self._woken
        part_bytes = -(-(self._min_bytes - self._found_bytes) // max(self._awaited, 1))
        for number, (each, partition) in enumerate(self._places(), 1):
            if partition.is_deleted or not partition.leads:
                woken()
                continue
            log = partition.log
            appended_bytes = log.appended_bytes
            if self._end_of(log) < log.next_offset:
                each.seen_bytes, wanted_bytes = UNKNOWN, appended_bytes
            else:
                wanted_bytes = 0 if each.seen_bytes == UNKNOWN else each.seen_bytes + part_bytes
                if wanted_bytes <= appended_bytes:
                    woken()
            partition.polls.add(woken, wanted_bytes)
            if number % ASKED_IN_A_STEP == 0:
                yield

    def _end_of(self, log: PartitionLog) -> int:
        """The offset up to which the log may be read."""
        return log.stable_offset if self._read_committed else log.high_watermark

    def _growing(self) -> Generator[None, None, bool]:
        """Count what came since the last look as found. Whether it must be read, to know whether it is enough."""
        is_due = False
        for number, (each, partition) in enumerate(self._places(), 1):
            log = partition.log
            # Where another broker leads the log may be closed, so that it can be asked nothing.
            if not partition.leads or each.seen_bytes == UNKNOWN or partition.is_deleted or log.offline is not None:
                is_due = True
            else:
                appended_bytes = log.appended_bytes
                self._found_bytes += appended_bytes - each.seen_bytes
                each.seen_bytes = appended_bytes
            if number % ASKED_IN_A_STEP == 0:
                yield
        return is_due or self._found_bytes >= self._min_bytes

    def _woken(self) -> None:
        """Look again once this round of the loop is over: what woke us may have more to do, and so may others."""
        if self._enough is not None:
            self._end_wait()
        elif not self._is_due:
            self._is_due = True
            self._call.broker.looks.add(self._look)

    def _look(self) -> None:
        self._is_due = False
        self._answering(self._looked)

    def _answering(self, answer: Callable[[], Encoded | None]) -> None:
        """Answer the wait, if there is an answer by now. Nobody but its client hears of what goes wrong: without an
        answer its connection would stand still for ever."""
        if self._future is None or self._future.done():
            return
        try:
            answered = answer()
        except Exception as failure:
            self._let_go()
            self._future.set_exception(failure)
        else:
            if answered is not None:
                self._future.set_result(answered)

    def _looked(self) -> Encoded | None:
        if at_once(self._growing()):
            topics, self._found_bytes, has_error = self._call.timed(self._read)
            if self._is_enough() or has_error:
                return self._held(self._packed(self._news(topics)))
            self._let_go()
        at_once(self._waiting())
        return None

    def _end_wait(self) -> None:
        if self._enough is not None and not self._enough.done():
            self._enough.set_result(None)

    def _finish(self) -> None:
        self._answering(lambda: self._held(self._packed(self._news(self._call.timed(self._read)[0]))))

    def _forget(self, _: object) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._awaited:
            self._call.broker.turns.go_through(self._forgetting())  # many may hang up at once

    def _forgetting(self) -> Generator[None, None, None]:
        woken = self._woken
        for number, (_, partition) in enumerate(self._places(), 1):
            partition.polls.discard(woken)
            if number % ASKED_IN_A_STEP == 0:
                yield
        awaited, self._awaited = self._awaited, 0
        self._call.broker.looks.end_wait(awaited)

    def _read(self, *, in_slices: bool = False) -> Read:
        """The records that there are now, by topic, their bytes, and whether something went wrong."""
        found: Read = at_once(self._reading(in_slices=in_slices))
        return found

    def _reading(self, *, in_slices: bool = False) -> Generator[None, None, Read]:
        """The same, a partition at a time. What is not sent in the same turn counts against the memory of all, as it is
        read: many may be read before the first of them is sent."""
        unsent, session = self._memory.unsent, self._session
        free_bytes = unsent.left_bytes
        if free_bytes == 0:
            self._memory.is_wanted()
        # A share of what is left, so that one client that takes no answers leaves something for the others.
        left = min(self._max_bytes, free_bytes // SHARES)
        size_bytes = 0
        has_error = False
        topics = []
        for name, asked in self._topics.items():
            found = []
            kept = NOTHING if session is None else session.kept(name)
            for each in asked.values():
                if not in_slices:
                    self._ask_again(each)
                    left = min(left, unsent.left_bytes // SHARES)
                if kept and each.is_known(kept):
                    yield
                    continue
                fetched = each.read(
                    left,
                    at_least_one=size_bytes == 0 and free_bytes > 0,
                    in_slices=in_slices,
                    committed_only=self._read_committed,
                )
                length = len(fetched.records)
                size_bytes += length
                left -= length + ABORTED_BYTES * len(fetched.aborted)
                if not in_slices:
                    self._held_bytes += length
                    unsent.hold(length)
                has_error = has_error or fetched.error_code != 0
                found.append(fetched)
                yield
            topics.append((name, found))
        return topics, size_bytes, has_error

    def _ask_again(self, asked: Asked) -> None:
        """Rights may have been taken away while it waited."""
        partition = asked.partition
        if partition is not None and not self._call.rights.may(Operation.READ, Resource.TOPIC, partition.topic.name):
            asked.error_code = ErrorCode.topic_authorization_failed

    def _news(self, topics: Found) -> Found:
        """The part of it that is sent: in a session only what the reader does not know."""
        if self._session is None:
            return topics
        found: Found = at_once(self._session.answering(topics))
        return found

    def _packed(self, topics: Found) -> Packed:
        call, session = self._call, self._session
        return encode_fetched(
            call.version,
            call.correlation_id,
            topics,
            error_code=0 if session is None else session.error_code,
            session_id=self._session_id,
            read_committed=self._read_committed,
        )

    @property
    def _session_id(self) -> int:
        return 0 if self._session is None else self._session.session_id

    def _held(self, buffers: Packed) -> Encoded:
        """An answer that will be sent in a later turn: who sends it, or drops it, gives the memory back."""
        held_bytes, self._held_bytes = self._held_bytes, 0
        return Encoded(buffers, False, held_bytes, self._session_id)

    def _let_go(self) -> None:
        held_bytes, self._held_bytes = self._held_bytes, 0
        self._memory.unsent.give_back(held_bytes)


def refused(code: ErrorCode, call: Call) -> Encoded:
    """A refusal by the session: nothing is said of partitions."""
    return Encoded(encode_fetched(call.version, call.correlation_id, (), error_code=code))


def fetch(request: FetchRequest, call: Call) -> Any:
    """The answer, or what it comes to later."""
    if request.session_epoch != ENDS or request.session_id:
        return _fetch_in_session(request, call)
    asking = Fetch(request, call)
    if _count(request) > AT_ONCE:
        return _in_turns(asking, request, call)
    for name, wanted in request.topics:
        asking.ask(name, wanted)
    return asking.answer(request.max_wait_ms / 1000)


def _fetch_in_session(request: FetchRequest, call: Call) -> Any:
    has_ids, now_ms = call.version >= FETCH_TOPIC_IDS, call.now.monotonic_ms
    try:
        session = call.broker.fetch_sessions.begin(request, call.principal, now_ms, has_ids=has_ids)
        asking = Fetch(request, call, session)
        count = 0 if session is None else session.count
        if request.topics or request.forgotten:
            count += _count(request)
        if count > AT_ONCE:
            return _in_turns(asking, request, call, session)
        if session is not None and (request.topics or request.forgotten):
            at_once(session.updating())
    except KafkaError as refusal:
        return refused(refusal.code, call)
    for name, wanted in request.topics if session is None else session.asked():
        asking.ask(name, wanted)
    return asking.answer(request.max_wait_ms / 1000)


def _count(request: FetchRequest) -> int:
    forgotten = sum(len(indexes) for _, indexes in request.forgotten) + len(request.forgotten)
    return max(sum(len(wanted) for _, wanted in request.topics), len(request.topics)) + forgotten


async def _in_turns(
    asking: Fetch, request: FetchRequest, call: Call, session: Opening | Following | None = None
) -> Encoded:
    def steps() -> Generator[None, None, None]:
        for name, wanted in request.topics if session is None else session.asked():
            for start in range(0, max(len(wanted), 1), ASKED_IN_A_STEP):
                asking.ask(name, wanted[start : start + ASKED_IN_A_STEP])
                yield

    run = call.broker.turns.run
    try:
        if session is not None:
            await run(session.updating())
    except KafkaError as refusal:
        return refused(refusal.code, call)
    await run(steps())
    return await asking.answer_in_turns(request.max_wait_ms / 1000)
