"""The transaction coordinator: brings requests, timers, the log and other brokers to the machines, and answers back.

What a transactional id goes through is pure (`oncelog/transactions`); here it is stored in `__transaction_state` before
anyone hears of it, and what was decided is told to the partitions by `markers.py`, until each of them has it.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Sequence
from typing import Any, NamedTuple

from oncelog.clock import MINUTE_MS, Clock, Now
from oncelog.log.partition import End, Fate
from oncelog.log.work_steps import Pauses, Steps
from oncelog.server.alarms import Alarms, CallLater, InTurns, TimerHandle
from oncelog.server.coordinator_topic import CoordinatorTopic, KeyValue, Kind, bytes_of_record
from oncelog.server.eagerly import Pending, begun
from oncelog.server.errors import ErrorCode, KafkaError
from oncelog.server.high_watermark import when_settled
from oncelog.server.moves import Moves
from oncelog.server.names import MOST_ID_CHARACTERS, TRANSACTIONS_TOPIC
from oncelog.server.ports import ClusterStorageError
from oncelog.server.settings import Settings
from oncelog.server.topics import Partition, Topic, Topics
from oncelog.server.transactions.markers import Markers
from oncelog.server.transactions.memory import Entry, TransactionMemory
from oncelog.transactions import machine, records
from oncelog.transactions.machine import NO_EPOCH, NO_PID, Expected, TopicPartition, Transaction
from oncelog.transactions.states import Done, Refusal, State

logger = logging.getLogger(__name__)

LOOKED_AT = 500  # ids in a step
TIMEOUTS, EXPIRY = "timeouts", "expiry"
AGAIN_S = 0.1
LATEST_S = 2.0  # between two attempts to tell the partitions

Run = Callable[[Steps[Topic]], Awaitable[Topic]]


class Initialised(NamedTuple):
    error: ErrorCode
    pid: int = NO_PID
    epoch: int = NO_EPOCH


class TransactionCoordinator:
    def __init__(
        self,
        settings: Settings,
        topics: Topics,
        clock: Clock,
        markers: Markers,
        take_pid: Callable[[str], Awaitable[int]],
        request_flush: Callable[[Partition], None],
        in_turns: InTurns,
        run: Run,
        broker_count: Callable[[], int],
        call_later: CallLater | None = None,
    ) -> None:
        self._settings = settings
        self._topics = topics
        self._clock = clock
        self._markers = markers
        self._take_pid = take_pid
        self._in_turns = in_turns
        self._run = run
        kind = Kind(
            topic=TRANSACTIONS_TOPIC,
            what="transactional id",
            partitions=settings.transaction_state_log_num_partitions,
            copies=settings.transaction_state_log_replication_factor,
            segment_bytes=settings.transaction_state_log_segment_bytes,
            too_large=ErrorCode.unknown_server_error,
        )
        self.topic = CoordinatorTopic(
            kind, settings.message_max_bytes, topics, request_flush, broker_count, self._take_what_is_led
        )
        self._memory = TransactionMemory(self.topic, settings.oncelog_max_transactional_ids, self._came)
        self._moves = Moves(self._memory)
        self._alarms = Alarms(call_later or _call_later, lambda: clock.now().monotonic_ms, self._ring, in_turns)
        self._making: asyncio.Future[Topic] | None = None
        self._tasks: set[asyncio.Task[Any]] = set()
        self._say_full_from_ms = 0
        self.is_running = False

    # Life

    def start(self) -> None:
        self.is_running = True
        self._take_what_is_led()
        self._set_alarms()

    def elected(self, partition: Partition, epoch: int) -> None:
        if self.is_running:
            self._moves.elected(partition, epoch, self._in_turns)

    def resigned(self, partition: Partition, epoch: int) -> None:
        if self.is_running:
            self._moves.resigned(partition, epoch, self._in_turns)

    def stop(self) -> None:
        self.is_running = False
        self._alarms.stop()
        self._moves.stop()
        for task in (*self._tasks, *([self._making] if self._making is not None else [])):
            task.cancel()

    def _take_what_is_led(self) -> None:
        if self.is_running:
            for partition in self.topic.led():
                self._moves.elected(partition, partition.log.leader_epoch, _at_once)

    def make_place(self, now: Now) -> None:
        """Make the topic that transactions are kept in, if it is not there; the client that asks for it may ask
        again."""
        if self._making is None and self.is_running and not self.topic.is_made:
            self._making = asyncio.ensure_future(self._run(self.topic.making(now)))
            self._making.add_done_callback(self._made_place)

    def _made_place(self, future: asyncio.Future[Topic]) -> None:
        self._making = None
        if not future.cancelled():
            future.exception()  # logged

    def partition_of(self, transactional_id: str) -> Partition | None:
        return self.topic.partition_of(transactional_id)

    @property
    def is_loading(self) -> bool:
        return bool(self.topic.loading)

    @property
    def entries(self) -> dict[str, Entry]:
        return self._memory.entries

    def _refusal(self, transactional_id: str) -> ErrorCode:
        if not self.is_running:
            return ErrorCode.coordinator_not_available
        if not transactional_id or len(transactional_id) > MOST_ID_CHARACTERS:
            return ErrorCode.invalid_request
        return self.topic.refusal(transactional_id)

    # What clients ask

    async def init_producer(
        self, transactional_id: str, timeout_ms: int, expected: Expected | None, client_host: str = ""
    ) -> Initialised:
        error = self._refusal(transactional_id)
        if error is ErrorCode.none and not 0 < timeout_ms <= self._settings.transaction_max_timeout_ms:
            error = ErrorCode.invalid_transaction_timeout
        if error is not ErrorCode.none:
            return Initialised(error)
        try:
            entry = await self._entry(transactional_id, timeout_ms, client_host)
            fresh_pid = await self._take_pid(transactional_id) if entry.now.is_epoch_exhausted else NO_PID
        except ClusterStorageError:
            return Initialised(ErrorCode.coordinator_not_available)
        except KafkaError as refusal:
            return Initialised(refusal.code)
        if entry.is_pending or (entry.now.is_epoch_exhausted and fresh_pid == NO_PID):
            return Initialised(ErrorCode.concurrent_transactions)
        wall_ms = self._clock.now().wall_ms
        found = machine.initialised(entry.now, timeout_ms, expected, wall_ms, fresh_pid)
        if isinstance(found, Refusal):
            return Initialised(ErrorCode[found.value])
        if found.state is State.PREPARE_EPOCH_FENCE:
            error = await self._abort(entry)
            return Initialised(ErrorCode.concurrent_transactions if error is ErrorCode.none else error)
        error = await self._store(entry, found)
        return Initialised(error) if error is not ErrorCode.none else Initialised(error, found.pid, found.epoch)

    async def _entry(self, transactional_id: str, timeout_ms: int, client_host: str) -> Entry:
        entry = self.entries.get(transactional_id)
        if entry is None:
            self._check_room(client_host)
            pid = await self._take_pid(transactional_id)
            error = self._refusal(transactional_id)
            if error is not ErrorCode.none:
                raise KafkaError(error)
            fresh = machine.new(pid, timeout_ms, self._clock.now().wall_ms)
            entry = self.entries.get(transactional_id)  # another may have been faster
            if entry is None:
                self._check_room(client_host)  # others came meanwhile
                entry = Entry(transactional_id, fresh, self._epoch_of(transactional_id), client_host)
                self._memory.add(entry)
        return entry

    def _check_room(self, client_host: str) -> None:
        if not self._memory.has_room(client_host):
            self._say_full("another transactional id of %s: see oncelog.max.transactional.ids", client_host)
            raise KafkaError(ErrorCode.coordinator_not_available)

    def _say_full(self, what: str, of: str) -> None:
        now_ms = self._clock.now().monotonic_ms
        if now_ms >= self._say_full_from_ms:
            self._say_full_from_ms = now_ms + MINUTE_MS
            logger.warning("there is no room for " + what, of)

    def _epoch_of(self, transactional_id: str) -> int:
        partition = self.topic.partition_of(transactional_id)
        return 0 if partition is None else self.topic.served.get(partition.index, 0)

    async def add_partitions(
        self, transactional_id: str, pid: int, epoch: int, partitions: Collection[TopicPartition]
    ) -> ErrorCode:
        error, entry = self._known(transactional_id)
        if entry is None:
            return error
        wall_ms = self._clock.now().wall_ms
        found = machine.added(entry.now, pid, epoch, frozenset(partitions), wall_ms)
        if isinstance(found, Transaction) and len(found.partitions) > self._settings.oncelog_max_transaction_partitions:
            return ErrorCode.invalid_request
        if isinstance(found, Transaction) and not self._memory.has_room_for(entry, found):
            self._say_full("more partitions of %r: all transactions together hold a million", transactional_id)
            return ErrorCode.coordinator_not_available
        return await self._change(entry, found)

    def verify(
        self, transactional_id: str, pid: int, epoch: int, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, ErrorCode]:
        """Verify partitions for brokers that are to append to them."""
        error, entry = self._known(transactional_id)
        if entry is None:
            return dict.fromkeys(partitions, error)
        refusals = {each: machine.verified(entry.now, pid, epoch, each) for each in partitions}
        return {at: ErrorCode.none if each is None else ErrorCode[each.value] for at, each in refusals.items()}

    async def end(self, transactional_id: str, pid: int, epoch: int, *, is_commit: bool, raises: bool) -> Initialised:
        """The pid and epoch to go on with, where each end raises it."""
        error, entry = self._known(transactional_id)
        if entry is None:
            return Initialised(error)
        fresh_pid = NO_PID
        if raises and entry.now.is_epoch_exhausted:
            try:
                fresh_pid = await self._take_pid(transactional_id)
            except ClusterStorageError:
                return Initialised(ErrorCode.coordinator_not_available)
        found = machine.ended(
            entry.now,
            pid,
            epoch,
            is_commit=is_commit,
            raises=raises,
            fresh_pid=fresh_pid,
            wall_ms=self._clock.now().wall_ms,
        )
        error = await self._change(entry, found)
        if error is not ErrorCode.none:
            return Initialised(error)
        if isinstance(found, Transaction):
            after = machine.completed(found, found.updated_wall_ms)
        else:
            after = entry.now
        return Initialised(error, after.pid, after.epoch) if raises else Initialised(error)

    def _known(self, transactional_id: str) -> tuple[ErrorCode, Entry | None]:
        error = self._refusal(transactional_id)
        if error is not ErrorCode.none:
            return error, None
        entry = self.entries.get(transactional_id)
        return ErrorCode.invalid_producer_id_mapping, entry

    async def _change(self, entry: Entry, found: Transaction | Refusal | Done) -> ErrorCode:
        if isinstance(found, Refusal) and found in (Refusal.INVALID_PID_MAPPING, Refusal.FENCED):
            return ErrorCode[found.value]
        if entry.is_pending:
            return ErrorCode.concurrent_transactions
        if isinstance(found, Transaction):
            return await self._store(entry, found)
        return ErrorCode.none if isinstance(found, Done) else ErrorCode[found.value]

    def known(self, transactional_id: str) -> tuple[ErrorCode, Transaction | None]:
        error, entry = self._known(transactional_id)
        if entry is None:
            is_unknown = error is ErrorCode.invalid_producer_id_mapping
            return ErrorCode.transactional_id_not_found if is_unknown else error, None
        return ErrorCode.none, entry.now

    # What is stored

    async def _store(self, entry: Entry, new: Transaction) -> ErrorCode:
        """Store the new state, which counts once it is safe, also where its client has hung up meanwhile. The decision
        is told to the partitions then."""
        name = entry.transactional_id
        if self.entries.get(name) is not entry:
            return ErrorCode.not_coordinator  # it went elsewhere while something was waited for
        record = records.encode_key(name), records.encode(new)
        try:
            if new.state is State.ONGOING:  # the record of its end must fit, too
                self.topic.check_size(name, bytes_of_record(record) + records.MOST_GROWTH_BYTES)
            partition, end = self.topic.append(name, [record], self._clock.now())
        except KafkaError as refusal:
            self._could_not_be_stored(entry)
            return refusal.code
        self._memory.begin_change(entry, new)
        settled: list[ErrorCode] = []
        waiter: asyncio.Future[None] | None = None

        def told(fate: Fate) -> None:
            settled.append(self._stored(entry, new, end, fate))
            if waiter is not None and not waiter.done():
                waiter.set_result(None)

        when_settled(partition, end, told)
        if not settled:
            waiter = asyncio.get_running_loop().create_future()
            await waiter
        return settled[0]

    def _stored(self, entry: Entry, new: Transaction, end: End, fate: Fate) -> ErrorCode:
        if fate is not Fate.SAFE or self.entries.get(entry.transactional_id) is not entry:
            self._could_not_be_stored(entry)
            return ErrorCode.not_coordinator
        self._memory.end_change(entry)
        self._memory.change(entry, new, end.epoch)
        if new.is_decided:
            self._tell_partitions(entry)
        return ErrorCode.none

    def _could_not_be_stored(self, entry: Entry) -> None:
        self._memory.end_change(entry)
        is_new = entry.now.epoch == NO_EPOCH  # and nobody has been told of it
        if is_new and self.entries.get(entry.transactional_id) is entry:
            self._memory.forget(entry.transactional_id)

    async def _abort(self, entry: Entry) -> ErrorCode:
        """Abort in the place of its producer, which is fenced by that."""
        fence = machine.fenced(entry.now)
        return await self._store(entry, machine.aborted(fence, self._clock.now().wall_ms, raises=True))

    # What was decided

    def _came(self, entry: Entry) -> None:
        if entry.now.is_decided:
            self._tell_partitions(entry)

    def _tell_partitions(self, entry: Entry) -> None:
        """Tell partitions at once, where all of them are here and safe; the rest in a task of its own."""
        entry.missing, entry.waiting = set(entry.now.partitions), set()
        self._in_background(self._telling(entry))

    def _told(self, task: "asyncio.Task[Any]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            logger.error("the partitions of a transaction could not be told of its end", exc_info=task.exception())

    async def _telling(self, entry: Entry) -> None:
        decided, again_s = entry.now, AGAIN_S
        while entry.missing:
            is_fenced = await self._markers.write(entry, decided)
            if is_fenced or not self._is_on(entry, decided):
                return
            if entry.missing:
                await _all_told(entry, again_s)
                again_s = min(2 * again_s, LATEST_S)
                if not self._is_on(entry, decided):
                    return
        while await self._store(entry, machine.completed(decided, self._clock.now().wall_ms)) is not ErrorCode.none:
            await asyncio.sleep(again_s)
            again_s = min(2 * again_s, LATEST_S)
            if not self._is_on(entry, decided):
                return

    def _is_on(self, entry: Entry, decided: Transaction) -> bool:
        return self.is_running and entry.now is decided and self._memory.is_current(entry)

    # Time

    def _set_alarms(self) -> None:
        now_ms, settings = self._clock.now().monotonic_ms, self._settings
        every = {
            TIMEOUTS: settings.transaction_abort_timed_out_transaction_cleanup_interval_ms,
            EXPIRY: settings.transaction_remove_expired_transaction_cleanup_interval_ms,
        }
        for name, interval_ms in every.items():
            self._alarms.set(name, now_ms + interval_ms)

    def _ring(self, name: str | None) -> None:
        now, settings = self._clock.now(), self._settings
        if name == TIMEOUTS:
            interval_ms = settings.transaction_abort_timed_out_transaction_cleanup_interval_ms
            self._in_turns(self._aborting(now))
        else:
            interval_ms = settings.transaction_remove_expired_transaction_cleanup_interval_ms
            self._in_turns(self._expiring(now))
        self._alarms.set(name, now.monotonic_ms + interval_ms)

    def _aborting(self, now: Now) -> Pauses:
        """Abort those that have taken longer than their producer said they may."""
        for count, entry in enumerate(list(self.entries.values()), 1):
            is_over = entry.now.is_over_time(now.wall_ms) and not entry.is_pending
            if is_over and self._memory.is_current(entry):
                logger.info("the transaction of %r has outlived its time, and is aborted", entry.transactional_id)
                self._in_background(self._abort(entry))
                yield
            elif count % LOOKED_AT == 0:
                yield

    def _in_background(self, work: Coroutine[Any, Any, object]) -> None:
        going_on = begun(work)
        if isinstance(going_on, Pending):
            task = asyncio.get_running_loop().create_task(going_on.rest)
            self._tasks.add(task)
            task.add_done_callback(self._told)

    def _expiring(self, now: Now) -> Pauses:
        since_ms = now.wall_ms - self._settings.transactional_id_expiration_ms
        some: list[Entry] = []
        for count, entry in enumerate(list(self.entries.values()), 1):
            if entry.now.is_idle_since(since_ms) and not entry.is_pending and self._memory.is_current(entry):
                some.append(entry)
            if count % LOOKED_AT == 0:
                self._expire(some, now)
                some = []
                yield
        self._expire(some, now)

    def _expire(self, entries: Sequence[Entry], now: Now) -> None:
        by_partition: dict[Partition | None, list[Entry]] = {}
        for entry in entries:
            by_partition.setdefault(self.topic.partition_of(entry.transactional_id), []).append(entry)
        for some in by_partition.values():
            names = [each.transactional_id for each in some]
            tombstones = ((name, (records.encode_key(name), None)) for name in names)
            for batch in self.topic.in_batches(names[0], tombstones):
                self._bury(batch, now)

    def _bury(self, tombstones: dict[str, KeyValue], now: Now) -> None:
        try:
            self.topic.append(next(iter(tombstones)), list(tombstones.values()), now)
        except KafkaError:
            return  # another time
        for name in tombstones:
            self._memory.forget(name)


async def _all_told(entry: Entry, most_s: float) -> None:
    """Wait until no partition is without its marker, or so long."""
    loop = asyncio.get_running_loop()
    over: asyncio.Future[None] = loop.create_future()

    def tell() -> None:
        if not over.done():
            over.set_result(None)

    entry.told, timer = tell, loop.call_later(most_s, tell)
    try:
        await over
    finally:
        entry.told = None
        timer.cancel()


def _at_once(pauses: Pauses) -> None:
    for _ in pauses:
        pass


def _call_later(delay_s: float, callback: Callable[[], None]) -> TimerHandle:
    return asyncio.get_running_loop().call_later(delay_s, callback)
