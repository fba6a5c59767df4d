"""A producer that is saved and resumed: what the engine does more for it.

Once topics are pinned (`pin`, or a saved value to start from), it is fixed which slot a record gets: in which
partition, under which identity, as which sequence. So partition counts stay, records without a key are placed by a
counter, the identity changes only where it is saved, and a record that fails ends it all, because the input position
would be saved beyond it. Everything here runs on the engine's loop, but for `check` and `offer`.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from oncelog.client.errors import KafkaError, KafkaException
from oncelog.client.fetching.values import EARLIEST
from oncelog.client.net.offsets import end_offsets
from oncelog.client.net.transaction import Transaction, TransactionName
from oncelog.client.partitioners import KeylessCounter
from oncelog.client.producer.accumulator import NEVER_S, Topic, Unbatched
from oncelog.client.producer.delivery import Records
from oncelog.client.saving.book import Book, Save
from oncelog.client.saving.errors import TopicGone
from oncelog.client.saving.fencing import new_identity
from oncelog.client.saving.replaying import Replays
from oncelog.client.saving.resume import Resumed, high_waters, resume, resume_partitions, unchanged
from oncelog.client.saving.saved import SavedProducer
from oncelog.client.saving.saving_engine import SavingEngine
from oncelog.clock import monotonic_s, wall_s
from oncelog.records.header import mark_transactional
from oncelog.slots import Identity, Place, is_lease
from oncelog.slots.batch import Batch
from oncelog.slots.chain import SavedPartition, as_it_stands, opened
from oncelog.slots.lease import FOREVER_MS, may_end_unsaved
from oncelog.slots.messages import Boundary, Delivered

PAUSE_S: Final = 0.1
MOVE_EVERY_S: Final = 3_600.0
NOT_PINNED: Final = (
    "topic {name!r} is not part of this saved producer: its records could not be told apart when it is resumed; "
    "call pin({name!r}) and save before producing to it"
)
NOT_OPEN: Final = "partition {place} is not part of the saved producer that this one goes on as"
NOT_SAVED: Final = (
    "this producer took an identity that is saved nowhere yet: were it killed now, its records would not be found "
    "again; store saved(), or commit with it, before the first record"
)
LEASE_NOT_SAVED: Final = (
    "the commit with which this producer was to go on under a new lease failed, so it is not known under which one it "
    "would be resumed; end it, and go on from the last save: what is stored is recognised"
)


@dataclass(slots=True)
class CounterChoice:
    """Records without a key go round by the counter that is saved, in the place of the sticky choice."""

    counter: KeylessCounter
    linger_ms: int = 0

    def choose(self, count: int, now_ms: int, pick: Callable[[int], int]) -> int:
        return self.counter.choose(count)


class Saving:
    def __init__(self, engine: SavingEngine) -> None:
        self._engine = engine
        self._book: Book | None = None
        self._is_leased = False
        self._is_transactional = False
        self._must_be_saved = False
        self._failure: KafkaException | None = None  # why nothing more may be written
        self._numbers: tuple[Identity, int] | None = None  # given as properties
        self._waiting: dict[int, tuple[Save, asyncio.Future[None]]] = {}
        self._doubtful: dict[Place, deque[Delivered]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._turn = asyncio.Lock()
        self.replays = Replays(
            engine.brokers, stored=self._dropped, report=engine.report, over=self._over, stop=self.stop
        )
        self._moved_at_s = self._saved_at_s = monotonic_s()
        self.move_every_s = MOVE_EVERY_S
        self.started_from: SavedProducer | None = None

    # --- from any thread

    def check(self, name: str) -> None:
        """Raises where records of this topic may not be produced now."""
        self._check_failure()
        if self._book is not None and self._book.partition_count(name) is None and self._numbers is None:
            raise KafkaException(KafkaError(KafkaError._STATE, NOT_PINNED.format(name=name)))
        if self._must_be_saved:
            raise KafkaException(KafkaError(KafkaError._STATE, NOT_SAVED))

    def _check_failure(self) -> None:
        if self._failure is not None:
            raise self._failure.with_traceback(None)  # one object, raised each time

    def check_is_open(self, place: Place) -> None:
        """A value may have been made for some partitions of a topic only."""
        book = self._book
        if book is not None and book.partition_count(place.topic) is not None and place not in book.partitions:
            raise KafkaException(
                KafkaError(KafkaError._STATE, NOT_OPEN.format(place=f"{place.topic}-{place.partition}"))
            )

    def offer(self, partition: Unbatched, rows: list[Any], records: Callable[[list[Any]], Records]) -> list[Any]:
        """Rows of a partition that is in its replay; those behind it are given back, to be held until it is over."""
        rest = self.replays.offer(partition, rows, records)
        self._engine.wake()
        return rest

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        return self._engine.loop

    @property
    def is_on(self) -> bool:
        """Whether anything is pinned; then the times that users gave are kept, for comparing."""
        return self._book is not None

    @property
    def failure(self) -> KafkaError | None:
        return None if self._failure is None else self._failure.error

    # --- its beginning

    async def resume(
        self,
        saved: SavedProducer,
        *,
        is_fresh: bool = False,
        is_anew: bool = False,
        transaction: TransactionName | None = None,
    ) -> None:
        """Go on where the value says; raises with nothing sent where that cannot be done. A producer that was resumed
        before goes on to the value's topics too, under an identity that is saved already.

        `is_fresh`: the caller knows that nothing was written since the value was saved, so nobody need be asked.
        `is_anew`: everything that was produced before is stored and saved; what follows is this value's alone, in this
        `transaction` or in none.
        """
        engine = self._engine
        saved.check_placing(engine.partitioner.name, engine.settings.oncelog_keyless_run)
        async with self._turn:
            if is_fresh:
                resumed = await unchanged(engine.brokers, saved)
            else:
                resumed = await resume(engine.brokers, saved, _wall_ms())
            if self._book is None or is_anew:
                self._book = Book(saved.cluster_id, saved.partitioner, saved.keyless_run)
                self.started_from = saved
                engine.write_in(_transaction(engine, transaction))
                self._is_transactional = transaction is not None
            for name, topic in saved.topics.items():
                self._book.pin(name, topic.topic_id, topic.partition_count, topic.keyless_counter)
            self._begin(resumed)

    def resume_numbers(self, pid: int, generation: int, sequence: int) -> None:
        """Identity and next sequence as the user saved them: for every partition that is written to."""
        self._numbers = Identity(pid, generation), sequence
        self._engine.pin_by(lambda name: self.pin([name]))

    async def pin(self, names: Iterable[str]) -> None:
        """The records of these topics can be saved from here on: counts and identity are fixed, at the place
        reached."""
        async with self._turn:
            new = [name for name in names if self._book is None or self._book.partition_count(name) is None]
            if not new:
                return
            brokers = self._engine.brokers
            metadata = await brokers.refresh(new)
            for name in new:
                found = metadata.topics.get(name)
                if found is None or not found.partitions:
                    raise KafkaException(KafkaError(KafkaError._UNKNOWN_TOPIC, f"topic {name!r} is not there"))
            if self._book is None:
                run = self._engine.settings.oncelog_keyless_run
                self._book = Book(metadata.cluster_id or "", self._engine.partitioner.name, run)
            places = [Place(name, at) for name in new for at in metadata.topics[name].partitions]
            resumed = await self._first(places)
            for name in new:
                known = metadata.topics[name]
                self._book.pin(name, str(known.topic_id or ""), len(known.partitions))
            self._begin(resumed)

    async def _first(self, places: list[Place]) -> Resumed:
        """The beginnings of a topic's partitions that is pinned: as they stand, or with an identity of their own."""
        brokers = self._engine.brokers
        if self._numbers is not None:
            identity, sequence = self._numbers
            starts = await end_offsets(brokers, places, EARLIEST)
            begun = {place: opened(identity, sequence, starts[place]) for place in places}
            return await resume_partitions(brokers, begun, _wall_ms())
        boundaries = await self._once_idle(places)
        is_leased = (await brokers.connection(None)).is_oncelog
        ends = await end_offsets(brokers, places)
        partitions = {place: stands for place in places if (stands := as_it_stands(boundaries[place]))}
        if len(partitions) < len(places):
            fresh = await new_identity(brokers, places, _wall_ms())
            partitions = {place: opened(fresh, 0, ends[place]) for place in places} | partitions
        return Resumed(partitions, is_leased=is_leased, must_be_saved=True)

    async def _once_idle(self, places: list[Place]) -> dict[Place, Boundary | None]:
        """Wait for what was produced before."""
        self._engine.flush(+1)
        try:
            while any(not self._engine.is_idle(place) for place in places):
                await asyncio.sleep(PAUSE_S)
        finally:
            self._engine.flush(-1)
        return {place: self._engine.sender.boundary(place) for place in places}

    def _begin(self, resumed: Resumed) -> None:
        engine, book = self._engine, self._book
        assert book is not None
        self._is_leased = resumed.is_leased
        self._must_be_saved = self._must_be_saved or resumed.must_be_saved
        for place, each in resumed.partitions.items():
            book.open(place, each)
            self._go_on_as(place, each)
        engine.keep_times()
        for name in {place.topic for place in resumed.partitions}:
            count = book.partition_count(name)
            assert count is not None
            engine.pin_topic(name, book.topic_id(name), count, self._prepare(resumed.partitions))
        engine.wake()

    def _go_on_as(self, place: Place, partition: SavedPartition) -> None:
        """Have the Sender go on in the open span; only while nothing of the partition is under way."""
        sender, last = self._engine.sender, partition.last
        is_leased = self._is_leased and is_lease(last.identity)
        sender.resume(
            place,
            last.identity,
            last.next_sequence,
            int(monotonic_s() * 1000),
            next_offset=partition.next_offset,
            is_leased=is_leased,
            is_shared=not is_leased,
        )
        sender.pin(place)

    def _prepare(self, resumed: Mapping[Place, SavedPartition]) -> Callable[[Topic, Iterable[Unbatched]], None]:
        """A function that prepares a topic, before anyone can produce to its partitions."""

        def prepare(topic: Topic, partitions: Iterable[Unbatched]) -> None:
            assert self._book is not None
            topic.is_pinned = True
            topic.sticky_until_s = NEVER_S
            topic.sticky_choice = CounterChoice(self._book.keyless(topic.name))  # type: ignore[assignment]
            for partition in partitions:
                each = resumed.get(partition.place)
                if each is not None:  # one that is not part of the value cannot be produced to
                    self.replays.begin(partition, each, any_generation=self._is_leased)

        return prepare

    def missing(self) -> dict[Place, int]:
        """Outputs that stand in the log and that the application did not produce again so far."""
        return self.replays.missing()

    # --- saving

    async def save(self) -> SavedProducer:
        """The value at this boundary: every record handed over before is stored. It is the caller's to store it before
        the next record, since an identity may begin with it."""
        async with self._turn:
            value = await self._value()
            self._engine.hold(False)
            self._must_be_saved = False
            return value

    async def begin_commit(self) -> SavedProducer:
        """The value that `save` gives. Where an identity begins with it, nothing is sent before `end_commit`."""
        await self._turn.acquire()
        try:
            return await self._value()
        except BaseException:
            self._turn.release()
            raise

    async def end_commit(self, *, is_stored: bool) -> None:
        if is_stored:
            self._must_be_saved = False
        elif self._engine.is_held:
            self.stop(KafkaException(KafkaError(KafkaError._STATE, LEASE_NOT_SAVED, fatal=True)))
        self._engine.hold(False)
        self._turn.release()

    async def _value(self) -> SavedProducer:
        self._check_failure()
        book = self._book
        if book is None or not book.partitions:
            raise KafkaException(KafkaError(KafkaError._STATE, "nothing is pinned: there is nothing to save yet"))
        save = book.begin_save(self._pending)
        if not save.is_complete:
            done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting[id(save)] = save, done
            self._engine.flush(+1)
            try:
                await done
            finally:
                self._engine.flush(-1)
                self._waiting.pop(id(save), None)
                book.forget(save)
        await self._move_on(book, save)
        await self._change_leases(book, save)  # the last to wait for: what begins here is to be in the value
        return book.value(save, _wall_ms())

    async def _move_on(self, book: Book, save: Save) -> None:
        """Move on partitions that were not written to for long, now and then, to where nothing of this producer
        can be, so that retention does not take what would have to be read."""
        now_s = monotonic_s()
        if now_s - self._moved_at_s < self.move_every_s:
            return
        self._moved_at_s = now_s
        quiet = {place for place in book.partitions if book.is_idle(place) and len(save.partitions[place].spans) == 1}
        found = await high_waters(self._engine.brokers, save.partitions, quiet, _wall_ms())
        for place, offset in found.items():
            save.partitions[place] = replace(save.partitions[place], next_offset=offset)
            book.move(place, offset)

    async def _change_leases(self, book: Book, save: Save) -> None:
        """Leases begin here, where they are saved: those that wait for it, and new ones where an old one might end
        before the next save. What is under way is let finish first."""
        sender = self._engine.sender
        renewed = [place for place in book.partitions if sender.has_renewal(place)]
        ending = [place for place in self._ending(book) if place not in renewed]
        if not renewed and not ending:
            return
        fresh = await new_identity(self._engine.brokers, ending, _wall_ms()) if ending else None
        self._engine.hold(True)
        try:
            while any(not self._engine.is_idle(place) for place in (*renewed, *ending)):
                self._check_failure()
                await asyncio.sleep(PAUSE_S / 10)
        except BaseException:  # the one that waited for the value gave up, and nothing has begun
            self._engine.hold(False)
            raise
        for place in renewed:
            boundary = sender.boundary(place)
            assert boundary is not None, "an idle partition has a boundary"
            book.change_identity(save, place, boundary.identity)
        for place in ending:
            assert fresh is not None
            book.change_identity(save, place, fresh)
            self._go_on_as(place, book.partitions[place])

    def _ending(self, book: Book) -> list[Place]:
        """Leases that may end before the next save."""
        before_s, self._saved_at_s = self._saved_at_s, monotonic_s()
        since_ms = int(1_000 * (self._saved_at_s - before_s))
        wall_ms = _wall_ms()
        return [
            place for place, each in book.partitions.items() if may_end_unsaved(each.last.identity, wall_ms, since_ms)
        ]

    # --- what the engine tells

    def taken(self, batch: Batch) -> None:
        """A batch goes to the Sender."""
        if self._book is not None and self._book.partition_count(batch.topic) is not None:
            self._book.taken(batch.place, batch.record_count)
        if self._is_transactional:
            mark_transactional(batch.data)  # which is stamped, and so gets its CRC, when it is sent

    def look(self) -> None:
        """The metadata is new: a topic may be another one by now, and what follows must not go there."""
        if self._book is not None and self._failure is None:
            try:
                self._book.check_topics(self._engine.brokers.metadata)
            except TopicGone as gone:
                self.stop(gone)

    def turn(self) -> None:
        """Something may have been offered."""
        self.replays.match()

    def delivered(self, action: Delivered) -> bool:
        """False: it is looked at first, and reported later."""
        batch = action.batch
        place = batch.place
        if self._book is None or self._book.partition_count(batch.topic) is None:
            return True
        waiting = self._doubtful.get(place)
        if waiting is None and not action.was_in_doubt:
            self._stored(place, batch.record_count, action.base_offset + batch.record_count)
            return True
        if waiting is not None:
            waiting.append(action)
        else:
            self._doubtful[place] = deque([action])
            self._spawn(self._check_doubtful(place))
        return False

    def failed(self, batch: Batch | Records, error: KafkaError) -> None:
        """A record that failed would be lost when the input position is saved beyond it."""
        if self._book is not None and self._book.partition_count(batch.topic) is not None:
            self.stop(
                KafkaException(
                    KafkaError(
                        error.code(),
                        f"a record for {batch.topic}-{batch.partition} failed ({error.str()}), so this producer can be "
                        "saved no more; end it, and go on from the last save: what is stored is recognised",
                        fatal=True,
                    )
                )
            )

    def stop(self, failure: KafkaException) -> None:
        """Stop: nothing more is written."""
        if self._failure is None:
            self._failure = failure
            self.replays.give_up(failure.error)
            self._engine.stop(failure.error)
            for _, done in self._waiting.values():
                if not done.done():
                    done.set_exception(KafkaException(failure.error))

    async def close(self) -> None:
        """Close. Records that are being compared are reported too, as what they are: perhaps stored."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.replays.close()
        given_up = self.failure or KafkaError(KafkaError._PURGE_INFLIGHT)
        self.replays.give_up(given_up)
        for waiting in self._doubtful.values():
            while waiting:
                self._engine.report_failed(waiting.popleft().batch, given_up)

    async def _check_doubtful(self, place: Place) -> None:
        """One after the other, so that reports and accounts stay in order."""
        assert self._book is not None
        waiting = self._doubtful[place]
        while waiting:
            action = waiting[0]
            base_offset = action.base_offset
            if action.was_in_doubt:
                from_offset = self._book.partitions[place].next_offset
                try:
                    base_offset = await self.replays.check(action, from_offset, any_generation=self._is_leased)
                except KafkaException as failure:
                    self.stop(failure)
            if self._failure is None:
                self._stored(place, action.batch.record_count, base_offset + action.batch.record_count)
                self._engine.report_delivered(action._replace(base_offset=base_offset))
            else:
                self._engine.report_failed(action.batch, self._failure.error)
            waiting.popleft()
        del self._doubtful[place]

    def _pending(self, place: Place) -> int:
        """Records that were handed over and that the book does not know yet."""
        return self._engine.pending(place) + self.replays.outputs_waiting(place)

    def _dropped(self, place: Place, records: int, next_offset: int) -> None:
        assert self._book is not None
        self._book.taken(place, records)
        self._stored(place, records, next_offset)

    def _stored(self, place: Place, records: int, next_offset: int) -> None:
        assert self._book is not None
        for save in self._book.stored(place, records, next_offset):
            waiting = self._waiting.get(id(save))
            if waiting is not None and not waiting[1].done():
                waiting[1].set_result(None)

    def _over(self, partition: Unbatched) -> None:
        self._engine.closing.close(partition)

    def _spawn(self, coroutine: Any) -> None:
        task = asyncio.ensure_future(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _transaction(engine: SavingEngine, name: TransactionName | None) -> Transaction | None:
    if name is None:
        return None
    return Transaction(engine.brokers, name, (engine.settings.delivery_timeout_ms or FOREVER_MS) / 1000)


def _wall_ms() -> int:
    return int(wall_s() * 1000)
