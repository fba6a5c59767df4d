"""The engine of a producer: records become batches, batches go to the Sender, and its decisions are carried out.

Everything here belongs to the thread of the event loop, but for the few methods at the top that producing threads
call. Those leave a note in a deque and wake the loop only if it is not awake already: a thread that produces as fast as
it can holds the interpreter, and every time the loop takes it over costs milliseconds.
"""

import asyncio
import random
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, assert_never
from uuid import UUID

from oncelog.client.errors import KafkaError, KafkaException, error_of, is_retriable
from oncelog.client.net.brokers import Brokers
from oncelog.client.net.tasks import Tasks
from oncelog.client.net.transaction import Transaction
from oncelog.client.partitioners import Partitioner, partitioner
from oncelog.client.producer.accumulator import Budget, Held, Topic, Unbatched
from oncelog.client.producer.arguments import refused
from oncelog.client.producer.closing import Closing
from oncelog.client.producer.delivery import Records, Report, records_of, split
from oncelog.client.producer.identities import Identities
from oncelog.client.producer.notices import Repeats, Unheard
from oncelog.client.producer.requests import Requests
from oncelog.client.producer.topics import Topics
from oncelog.client.saving.memory import UNKNOWN_MS, forgotten_after_ms
from oncelog.client.saving.saving import Saving
from oncelog.client.saving.saving_engine import Prepare
from oncelog.client.statistics.statistics import Statistics
from oncelog.clock import monotonic_s
from oncelog.slots import Place
from oncelog.slots.batch import Batch
from oncelog.slots.limits import SenderLimits
from oncelog.slots.messages import (
    Action,
    BatchAnswer,
    Delivered,
    Failed,
    LookUp,
    NeedIdentity,
    NeedMetadata,
    Produce,
)
from oncelog.slots.sender import Sender

if TYPE_CHECKING:
    from oncelog.client.properties import ProducerSettings

LEAST_WAIT_S: Final = 0.001  # the resolution of the loop

Deliver = Callable[[Report], None]
Tell = Callable[[KafkaError], None]


class Engine:
    """`deliver` is given the report of every batch; `tell` errors that belong to no record; `tell_statistics` what
    `stats_cb` is to be called with. `reports_waiting`: how many the application has not been given yet."""

    def __init__(
        self,
        settings: "ProducerSettings",
        budget: Budget,
        deliver: Deliver,
        tell: Tell,
        tell_statistics: Callable[[str], object] | None = None,
        reports_waiting: Callable[[], int] = int,
    ) -> None:
        self.settings = settings
        self.budget = budget
        self.partitioner: Partitioner = partitioner(settings.partitioner)
        self.brokers = Brokers(settings)
        self.closing = Closing(settings, self)
        self.deliver = deliver
        self._unheard = Unheard(monotonic_s)
        self._repeats = Repeats(tell, monotonic_s)
        self.tell = tell = self._repeats.tell
        self._topics = Topics(self.brokers, settings, self._place, self._fail_held, self._gone, self._repeats)
        self.topics = self._topics.known
        self.sender = Sender(_limits(settings), random.random, self._split)
        self._requests = Requests(self.brokers, settings, self.answered, self._lost, self._unchecked)
        self._identities = Identities(self.brokers, self.sender, settings, tell, self.wake)
        self._wanted: deque[Topic] = deque()
        self._is_woken = True  # until it is started
        self._timer: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop
        self._metadata: object = None
        self._refreshing: set[str] = set()
        self.tasks = Tasks()
        self._is_closed = False
        self._is_held = False
        self.bulk_buffers: Any = None  # kept by bulk.py from one send to the next
        self.reports_waiting = reports_waiting
        self.tell_statistics = tell_statistics
        self.statistics: Statistics | None = None
        self.on_produce: Callable[[Produce], None] | None = None
        self._is_memory_asked = not settings.enable_idempotence
        self.saving = self.closing.saving = Saving(self)

    # --- from any thread

    def wake(self) -> None:
        if not self._is_woken:
            self._is_woken = True
            try:
                self._loop.call_soon_threadsafe(self._turn)
            except RuntimeError:
                if not self._is_closed:
                    raise

    def put(self, name: str, record: Held) -> None:
        """Take a record that there is room for. Where the topic is not known, it is held until it is."""
        topic = self._topics.open(name)
        if not topic.partitions and self._hold(topic, record):
            return
        partitions = topic.partitions
        if record.partition >= len(partitions):
            raise refused(KafkaError._UNKNOWN_PARTITION)
        self.budget.take(record.size_bytes)
        partition = self._place(topic, partitions, record)
        if partition.size_bytes >= self.closing.most_batch_bytes or len(partition.rows) >= partition.most_entries:
            self.closing.close(partition)

    def _hold(self, topic: Topic, record: Held) -> bool:
        """False where the topic is known by now."""
        with topic.lock:
            error = topic.error or self.closing.ended  # then all that is held has been given up
            if error is not None:
                raise refused(error.code(), error.str())
            if topic.partitions:
                return False
            self.budget.take(record.size_bytes)
            topic.held.append(record)
            is_first = len(topic.held) == 1
        if is_first:
            self._wanted.append(topic)
            self.wake()
        return True

    async def know(self, name: str) -> Topic:
        """The topic, once its partitions are known; for those who must place many records at once."""
        return await self._topics.know(name)

    def topic(self, name: str) -> Topic:
        return self._topics.open(name)

    def flush(self, by: int) -> None:
        """Nothing lingers while anybody flushes (+1 when that begins, -1 when it is over)."""
        self.closing.flushes += by
        self.wake()

    # --- its life

    async def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        await self.brokers.start()
        if self.statistics is not None:
            self.statistics.start()
        self._is_woken = False
        self.wake()

    async def close(self) -> None:
        """Close, and report as given up what is not delivered by now."""
        self._unheard.is_closing = True
        self.closing.end(KafkaError(KafkaError._PURGE_QUEUE))
        self.purge(in_queue=True, in_flight=True)
        self._unheard.say()
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        if self.statistics is not None:
            self.statistics.stop()
        await self.tasks.close()
        await self.saving.close()
        await self._identities.close()
        await self._topics.close()
        await self._requests.close()
        await self.brokers.close()

    def abandon(self) -> None:
        """Do nothing more; from any thread."""
        self._is_closed = True

    def purge(self, *, in_queue: bool, in_flight: bool) -> None:
        if in_queue:
            error = KafkaError(KafkaError._PURGE_QUEUE)
            for records in self._drop_rows(error):
                self.saving.failed(records, error)
        now_ms = _now_ms()
        self._hand_over(now_ms)
        if in_queue:
            self.sender.give_up(now_ms, KafkaError._PURGE_QUEUE, in_flight=False)
        if in_flight:
            self.sender.give_up(now_ms, KafkaError._PURGE_INFLIGHT, in_flight=True)
        self.act(now_ms)

    def _drop_rows(self, error: KafkaError) -> list[Records]:
        """Report what is in no batch yet as failed."""
        self._topics.give_up(error)
        dropped = [
            records
            for topic in tuple(self.topics.values())
            for partition in topic.partitions
            for records in self.closing.drop(partition)
        ]
        for records in dropped:
            self._report(records, error)
        return dropped

    # --- a turn of the loop

    def _turn(self) -> None:
        self._is_woken = self.closing.is_timed = False
        if self._is_closed:
            return
        now_s = monotonic_s()
        now_ms = int(now_s * 1000)
        while self._wanted:
            self._topics.want(self._wanted.popleft())
        if self.brokers.metadata is not self._metadata:
            self._metadata = self.brokers.metadata
            self._topics.look()
            self.saving.look()
            self.sender.leaders(self._topics.leaders(), now_ms)
        self.closing.close_due(now_s)
        if not self._is_held:
            self._hand_over(now_ms)
        self.saving.turn()
        self.sender.set_wall_clock(now_ms + int(self.closing.wall_offset_s() * 1000), now_ms)
        self.sender.tick(now_ms)
        self.act(now_ms)
        self._unheard.say_due()
        self._plan(now_s, self._topics.expire(now_s))

    def _hand_over(self, now_ms: int) -> None:
        """The Sender gets what was made of records since the last turn."""
        inbox = self.closing.made
        while inbox:
            batch = inbox.popleft()
            partition = self._topics.partition(batch.place)
            if partition is not None:
                partition.added_batches += 1
            self.saving.taken(batch)
            self.sender.add(batch, now_ms)

    def act(self, now_ms: int) -> None:
        for action in self.sender.actions(now_ms):
            self._do(action)
        if self.closing.made and not self._is_held:
            self.wake()

    def _do(self, action: Action) -> None:
        match action:
            case Produce():
                self._requests.send(action)
                if self.on_produce is not None:
                    self.on_produce(action)
                if not self._is_memory_asked:
                    self._is_memory_asked = True
                    self.tasks.begin(self._ask_memory())
            case Delivered():
                self._delivered(action)
            case Failed():
                self._failed(action)
            case NeedMetadata():
                self._refresh(action.topics)
            case NeedIdentity():
                self._identities.need(action)
            case LookUp():
                self._identities.look_up(action)
            case _:
                assert_never(action)

    def _plan(self, now_s: float, held_due_s: float | None) -> None:
        """Set the timer for the next turn, if nothing else wakes the loop."""
        due = [due_s for due_s in (held_due_s, self.closing.next_due_s()) if due_s is not None]
        line_due_s = self._unheard.due_s()
        if line_due_s is not None:
            due.append(line_due_s)
        sender_due_ms = self.sender.next_due_ms()
        if sender_due_ms is not None:
            due.append(sender_due_ms / 1000)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if due:
            wait_s = max(min(due) - now_s, LEAST_WAIT_S)
            self._timer = self._loop.call_later(wait_s, self._turn)
            self.closing.timed(wait_s)

    # --- what the Sender wants done

    def _refresh(self, topics: Sequence[str]) -> None:
        wanted = [name for name in topics if name not in self._refreshing]
        if wanted:
            self._refreshing.update(wanted)
            self.tasks.begin(self._refreshed(wanted))

    async def _refreshed(self, topics: Sequence[str]) -> None:
        try:
            await self.brokers.refresh(topics)
        except KafkaException as failure:
            self.tell(failure.error)
        finally:
            self._refreshing.difference_update(topics)
            self._metadata = None  # tell the Sender of the leaders again, also when they are the old ones
            self.wake()

    def answered(self, request_id: int, answers: list[BatchAnswer] | None, throttle_ms: int) -> None:
        self._repeats.answered()
        self.sender.answered(request_id, answers, _now_ms(), throttle_ms=throttle_ms)
        self.wake()

    def _lost(self, request_id: int, error: KafkaError, was_sent: bool) -> None:
        code = error.code() if is_retriable(error.code()) else KafkaError._TRANSPORT
        self.sender.lost(request_id, _now_ms(), code=code, message=error.str(), was_sent=was_sent)
        if not self._is_closed:
            self.tell(error)
        self.wake()

    def _unchecked(self, request_id: int) -> None:
        self.sender.unchecked(request_id, _now_ms())
        self.wake()

    async def _ask_memory(self) -> None:
        try:
            forget_after_ms = await forgotten_after_ms(self.brokers, is_shared=self.sender.is_shared)
        except KafkaException as failure:
            self._is_memory_asked = not failure.error.retriable()
            return
        if forget_after_ms is not None:
            self.sender.forgotten_after(forget_after_ms)

    # --- reports

    def report(self, report: Report) -> None:
        """Report the fate of a batch to its callbacks, and log a failure that none hears of. For any thread."""
        if report.error is not None:
            self._unheard.failed(report)
            self.wake()  # for the line about the ones that follow
        self.deliver(report)

    def _delivered(self, action: Delivered) -> None:
        self._done(action.batch)
        if self.saving.delivered(action):
            self.report_delivered(action)

    def report_delivered(self, action: Delivered) -> None:
        batch = action.batch
        self.report(
            Report(
                records_of(batch),
                base_offset=action.base_offset,
                append_time_ms=action.append_time_ms,
                pid=batch.pid,
                generation=batch.generation,
                first_sequence=batch.first_sequence,
                done_s=monotonic_s(),
            )
        )

    def _failed(self, action: Failed) -> None:
        batch = action.batch
        self._done(batch)
        is_unexplained = action.code == KafkaError._MSG_TIMED_OUT and not action.message
        known = self._repeats.late() if is_unexplained else error_of(action.code, action.message)
        stopped = self.saving.failure
        if stopped is not None and stopped.code() == action.code and not action.message:
            known = stopped  # with the words that go with it
        error = KafkaError(action.code, known.str(), retriable=known.retriable(), maybe_stored=action.maybe_stored)
        self._report(records_of(batch), error, batch)
        self.saving.failed(batch, error)

    def report_failed(self, batch: Batch, error: KafkaError) -> None:
        """Report a batch of a replay that failed: it is stored, or something else stands in its place."""
        known = KafkaError(error.code(), error.str(), fatal=error.fatal(), maybe_stored=True)
        self._report(records_of(batch), known, batch)

    def _report(self, records: Records, error: KafkaError, batch: Batch | None = None) -> None:
        report = Report(records, error=error, done_s=monotonic_s())
        if batch is not None:
            report.pid, report.generation, report.first_sequence = batch.pid, batch.generation, batch.first_sequence
        self.report(report)

    def _done(self, batch: Batch) -> None:
        partition = self._topics.partition(batch.place)
        if partition is not None:
            partition.done_batches += 1
            self.closing.done(partition)

    def _split(self, batch: Batch, records: int) -> tuple[Batch, Batch]:
        """The two halves of a batch that came as one, and of which each will be done by itself."""
        partition = self._topics.partition(batch.place)
        if partition is not None and not batch.is_reported:
            partition.done_batches -= 1
        return split(batch, records)

    # --- what saving asks

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        return self._loop

    def keep_times(self) -> None:
        """Keep of every batch which of its records were given a time by the user."""
        self.closing.keeps_times = True

    def pin_topic(self, name: str, topic_id: UUID | None, count: int, prepare: Prepare) -> None:
        """This very topic with this many partitions, whatever the cluster has by now; `prepare` comes before anything
        is put into them."""
        if topic_id is not None:
            self._requests.identify(name, topic_id)
        self._topics.pin(name, count, prepare)

    def write_in(self, transaction: Transaction | None) -> None:
        self._requests.transaction = transaction  # nothing is under way now

    def pin_by(self, pin: Callable[[str], Awaitable[None]]) -> None:
        """Have every topic pinned when it is first produced to."""
        self._topics.pin_by = pin

    @property
    def is_held(self) -> bool:
        return self._is_held

    def hold(self, is_held: bool) -> None:
        """Hold back, or let go: while this is on, nothing new goes to the Sender."""
        self._is_held = is_held
        self.wake()

    def pending(self, place: Place) -> int:
        """Records of a partition that were handed over and did not go to the Sender."""
        partition = self._topics.partition(place)
        return 0 if partition is None else self.closing.pending(partition)

    def is_idle(self, place: Place) -> bool:
        """Nothing of the partition is under way; records held back do not count."""
        partition = self._topics.partition(place)
        if partition is None:
            return self._topics.is_empty(place[0])
        return partition.added_batches == partition.done_batches and (self._is_held or self.pending(place) == 0)

    def stop(self, error: KafkaError) -> None:
        """Stop: nothing more is sent, and all records taken are reported with this error."""
        self._drop_rows(error)
        now_ms = _now_ms()
        self._hand_over(now_ms)
        self.sender.give_up(now_ms, error.code(), in_flight=True)
        self.wake()

    # --- records that had to wait for their topic

    def _place(self, topic: Topic, partitions: Sequence[Unbatched], held: Held) -> Unbatched:
        """The partition that the record names, or that its key or chance chooses."""
        index: int | None = held.partition
        if held.partition < 0:
            index = self.partitioner.place(held.row[0], len(partitions))
        if index is None:
            index = topic.sticky_choice.choose(len(partitions), int(held.since_s * 1000), random.randrange)
            if partitions is topic.partitions:  # else records are held that come before those that would not ask
                topic.stick(partitions[index])
        partition = partitions[index]
        partition.rows += held.row
        partition.size_bytes += held.size_bytes
        if not partition.is_noticed:
            self.closing.notice(partition, held.since_s)
        return partition

    def _fail_held(self, topic: Topic, late: list[Held], error: KafkaError) -> None:
        for each in late:
            self._report(self.closing.records(Unbatched(topic.name, each.partition), list(each.row)), error)

    def _gone(self, partitions: Sequence[Unbatched]) -> None:
        """Report what was meant for partitions that are gone; what is under way may be stored: nobody leads them."""
        error = KafkaError(KafkaError._UNKNOWN_PARTITION)
        for partition in partitions:
            for records in self.closing.drop(partition):
                self._report(records, error)
        now_ms = _now_ms()
        self._hand_over(now_ms)
        self.sender.give_up(now_ms, error.code(), [partition.place for partition in partitions])


def _now_ms() -> int:
    return int(monotonic_s() * 1000)


def _limits(settings: "ProducerSettings") -> SenderLimits:
    return SenderLimits(
        is_idempotent=settings.enable_idempotence,
        acks=settings.acks,
        max_in_flight=settings.max_in_flight,
        max_request_bytes=settings.message_max_bytes,
        delivery_timeout_ms=settings.delivery_timeout_ms,
        retries=settings.retries,
        retry_backoff_ms=settings.retry_backoff_ms,
        retry_backoff_max_ms=settings.retry_backoff_max_ms,
        forget_after_ms=UNKNOWN_MS,
    )
