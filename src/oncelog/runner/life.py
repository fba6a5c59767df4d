"""One life of a cell's holder: what its Cell asks for is done here, and it is told what came of that."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping
from datetime import timedelta
from functools import partial
from typing import Any, Final, TypeVar
from uuid import UUID

from oncelog.client import KafkaError, KafkaException
from oncelog.client.door import (
    Input,
    Requests,
    Tasks,
    TopicLog,
    kafka_pid,
    look_up,
    remembered_or_none,
    slots,
)
from oncelog.clock import Now, SystemClock, monotonic_s
from oncelog.flow.cell import Cell
from oncelog.flow.formats import RESET_DAMAGED
from oncelog.flow.messages import (
    EMPTY,
    Action,
    AppendClaim,
    Ended,
    Expect,
    Fetch,
    FinishFiles,
    LifeEnd,
    NeedPids,
    ReadBack,
    ReadJournal,
    Recall,
    Records,
    RunEnd,
    WriteRows,
)
from oncelog.flow.part_running import takes_columns
from oncelog.flow.parts import Part
from oncelog.records.build import build_batch
from oncelog.runner.cluster import Cluster, journal_batches
from oncelog.runner.damaged import Trouble
from oncelog.runner.gone import Used, UsedTopics, used_by
from oncelog.runner.portions import Portions
from oncelog.slots import Place, Span
from oncelog.slots.messages import BatchAnswer, LookUp, NeedMetadata, Produce
from oncelog.slots.replay import Slot

T = TypeVar("T")

CLOCK: Final = SystemClock()
GOODBYE_S: Final = 3.0  # for a goodbye where a topic is gone


class Life:
    def __init__(
        self,
        cluster: Cluster,
        cell: Cell,
        part: Part,
        ends: list[int | None],
        heard: dict[str, tuple[int, int]],
        ended: Callable[["Life", Ended], None],
    ) -> None:
        """`ends`: where each input is read up to, as far as that is known; without an end it is None. `heard`: of
        topics that the flow writes itself, behind which offset comes nothing older than a time."""
        self._heard = heard
        self.cell = cell
        self.is_over = False
        self.is_paused = False  # what it has in hand is committed, and no more input is taken
        self.is_cut = False  # where its inputs end is no end of its run
        self._portions = Portions()
        self.began_at: list[int] = []  # where its inputs stood when it was restored
        self._cluster = cluster
        self._brokers = cluster.brokers
        self._part = part
        self._stage = cell.stage
        self._topics = UsedTopics(used_by(cell.stage, cluster.command("flow reset", cell.stage.flow)), self._lose)
        reset = cluster.command("flow reset --to-latest", cell.stage.flow)
        self._trouble = Trouble(cell.stage, reset, self._input_failed, self._give_up)
        self._asks_for_time = cell.stage.has_plan or cell.stage.tells_time
        self._ends = ends
        self._ended = ended
        self._loop = asyncio.get_running_loop()
        self._requests = Requests(cluster.brokers, cluster.writing, self._answered, self._lost, self._unchecked)
        self._tasks = Tasks()
        self._looked: dict[Place, object] = {}  # on which connection the log was asked last
        inputs = len(self._stage.inputs)
        self._inputs: list[Input | None] = [None] * inputs
        self._asked: list[int | None] = [None] * inputs  # from which offset on, while nothing was given
        self._given = [-1] * inputs  # up to where it was
        self._told_end = [-1] * inputs
        self._high = [-1] * inputs
        self._told_time = [(-1, -1)] * inputs
        self._files = cluster.file_writer(part, f"{self._stage.name}-{self._stage.cell}")
        self._files_turn = asyncio.Lock()
        self._is_woken = False
        self._to_feed: set[int] = set()  # inputs, at the beginning of its next turn
        self._timer: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        for used in self._topics.used:
            if used.topic_id:
                self._requests.identify(used.name, UUID(used.topic_id))
        self.tell_leaders()
        self.cell.begin()
        self.wake()

    def pause(self, *, is_paused: bool) -> None:
        self.is_paused = is_paused
        for index in range(len(self._inputs)):
            self._feed_soon(index)

    def leave(self, at_end: RunEnd = RunEnd.OPEN) -> None:
        if not self.is_over:
            self.cell.leave(self._now(), at_end)
            self.wake()

    def end_at(self, index: int, offset: int) -> None:
        """An input is read up to here, which was not known before; it stands among the ends already."""
        if (reading := self._inputs[index]) is not None and not self.is_over:
            reading.stop_at(offset)
            self._feed_soon(index)

    def journal_ends(self, end_offset: int) -> None:
        if not self.is_over:
            self.cell.journal_ends(end_offset, self._now())
            self.wake()

    def high_watermark(self, index: int) -> int:
        return self._high[index] if (reading := self._inputs[index]) is None else reading.high_watermark

    async def close(self) -> None:
        self._stop()
        await self._tasks.close()
        await self._requests.close()
        if self._files is not None:
            await asyncio.to_thread(self._files.abandon)

    def _stop(self) -> None:
        self.is_over = True
        if self._timer is not None:
            self._timer.cancel()
        self._high = [self.high_watermark(index) for index in range(len(self._inputs))]
        for reading in self._inputs:
            if reading is not None:
                reading.end()
        self._inputs = [None] * len(self._inputs)

    def fail(self, why: str) -> None:
        """Something that the cell does not know of keeps it from going on."""
        self._end(Ended(LifeEnd.STOPPED, f"{self._stage.title}: {why}"))

    def _end(self, ended: Ended) -> None:
        if not self.is_over:
            self._stop()
            self._ended(self, ended)

    def _now(self) -> Now:
        return CLOCK.now()

    # --- turns

    def wake(self) -> None:
        if not self._is_woken and not self.is_over:
            self._is_woken = True
            self._cluster.turns.add(self._turn)

    def _turn(self) -> None:
        try:
            self._take_turn()
        except Exception as failure:  # else it would stand still, and nobody hear of it
            self.fail(f"{type(failure).__name__}: {failure}")
            raise

    def _take_turn(self) -> None:
        while self._to_feed and not self.is_over:
            self._feed(self._to_feed.pop())
        self._is_woken = False
        if self.is_over:
            return
        self._cluster.look()
        self._tell_time()
        began_s, left = monotonic_s(), self.cell.left
        actions = self.cell.actions(self._now())
        self._portions.took(monotonic_s() - began_s, left - self.cell.left)
        for action in actions:
            if not self.is_over:
                self._do(action)
        if not self.began_at:
            self.began_at = [source.next_offset for source in self.cell.sources]
        if not self.is_over:
            self._look_for_the_end()
            self._set_timer()

    def _tell_time(self) -> None:
        for index, each in enumerate(self._stage.inputs if self.cell.sources else ()):
            heard = self._heard.get(each.topic) if each.is_derived else None
            if heard is not None and self._told_time[index] != heard:
                self._told_time[index] = heard
                self.cell.heard(index, *heard, self._now())

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        due_ms = self.cell.next_due_ms()
        if due_ms is not None and not self._is_woken:
            wait_s = max(due_ms / 1000 - monotonic_s(), 0.001)
            self._timer = self._loop.call_later(wait_s, self.wake)

    def _do(self, action: Action) -> None:
        match action:
            case Produce():
                self._produce(action)
            case Expect():
                self._expect(action)
            case Fetch():
                self._asked[action.input] = action.from_offset
                self._feed(action.input)
            case NeedMetadata():
                self._cluster.want(action.topics)
            case Ended():
                self._end(action)
            case _:
                self._begin(_WAITED_FOR[type(action)](self, action))

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        self._tasks.begin(self._guarded(work))

    async def _guarded(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except KafkaException as failure:
            self.fail(failure.error.str())
        except Exception as failure:
            self.fail(f"{type(failure).__name__}: {failure}")
            raise
        self.wake()

    # --- what is sent

    def tell_leaders(self) -> None:
        if self.is_over:
            return
        self._topics.look(self._brokers.metadata)
        leader = self._brokers.metadata.leader
        places = (self._stage.journal, *(output.place for output in self._stage.outputs))
        known = {place: leader(*place)[0] for place in places if place.topic != self._topics.gone}
        self.cell.leaders(known, self._now())
        self.wake()

    def _input_failed(self, topic: str, why: str) -> None:
        self._begin(self._fail_unless_made_again(topic, why))

    async def _fail_unless_made_again(self, topic: str, why: str) -> None:
        if not self._topics.look(await self._brokers.refresh([topic])):
            self.fail(why)

    def deleted(self, topics: Collection[str]) -> None:
        self._topics.deleted(topics)

    def _lose(self, used: Used, what: str) -> None:
        """One of its topics. It says goodbye where the journal is still there: the next holder need not wait for it."""
        if self.is_over:
            return
        why = f"{self._stage.title}: {used.words(what)}"
        says_goodbye = used.name != self._stage.journal.topic and self.cell.forsake(used.name, why, self._now())
        ended = Ended(LifeEnd.STOPPED, why)
        if not says_goodbye:
            self._end(ended)
            return
        self._loop.call_later(GOODBYE_S, self._end, ended)
        self.wake()

    def _produce(self, request: Produce) -> None:
        """Connect, check, send: it leaves on the connection on which the log was asked, and on no other."""
        connection = self._requests.connected(request.node_id)
        if connection is None or any(self._looked.get(batch.place) is not connection for batch in request.batches):
            self._unchecked(request.request_id)
        else:
            self._requests.send(request)

    def _answered(self, request_id: int, answers: list[BatchAnswer] | None, throttle_ms: int) -> None:
        if not self.is_over:
            self.cell.answered(request_id, answers or (), self._now())
            self.wake()

    def _lost(self, request_id: int, error: KafkaError, was_sent: bool) -> None:
        if not self.is_over:
            self.cell.lost(request_id, self._now(), was_sent=was_sent)
            self.wake()

    def _unchecked(self, request_id: int) -> None:
        if not self.is_over:
            self.cell.unchecked(request_id, self._now())
            self.wake()

    # --- what is asked

    async def _asked_on_a_connection(self, place: Place, question: Callable[[], Awaitable[T]]) -> T:
        """Ask the log on a connection, so that what is known of it then may be sent on this connection."""

        async def once() -> tuple[object, T]:
            leader, _ = self._brokers.metadata.leader(*place)
            if leader < 0:
                raise KafkaException(KafkaError(KafkaError.LEADER_NOT_AVAILABLE, f"{place}", retriable=True))
            connection = await self._requests.connect(leader)
            return connection, await question()

        connection, found = await self._patiently(once, place)
        self._looked[place] = connection
        return found

    async def _patiently(self, question: Callable[[], Awaitable[T]], place: Place) -> T:
        return await self._cluster.patiently(question, lambda: self._brokers.refresh([place.topic]))

    async def _look_up(self, asked: LookUp) -> None:
        try:
            found = await self._asked_on_a_connection(asked.place, lambda: look_up(self._brokers, asked))
        except KafkaException:
            found = None
        self.cell.looked_up(asked.place, found, self._now())

    async def _read_journal(self, asked: ReadJournal) -> None:
        place = self._stage.journal
        wait = timedelta(milliseconds=asked.waits_ms)
        try:
            batches = await self._asked_on_a_connection(
                place, lambda: journal_batches(self._brokers, place, asked.from_offset, wait)
            )
        except KafkaException as failure:
            if failure.error.code() != KafkaError._BAD_MSG:
                raise
            self.fail(f"{failure.error.str()}. Restore it, or {RESET_DAMAGED}")
            return
        self.cell.journal_read(batches, self._now())

    async def _take_pids(self, asked: NeedPids) -> None:
        await self._brokers.refresh([self._stage.journal.topic])  # before it is begun anew
        if self._topics.look(self._brokers.metadata):
            return
        granted = [await self._cluster.patiently(lambda: kafka_pid(self._brokers)) for _ in range(asked.how_many)]
        self.cell.pids([identity.pid for identity in granted], self._now())

    async def _append_claim(self, asked: AppendClaim) -> None:
        place = self._stage.journal
        log = TopicLog(self._brokers, place.topic, self._cluster.patience, place.partition)
        claim = (asked.key, asked.value, (), asked.timestamp_ms)
        await self._patiently(lambda: log.produce(build_batch([claim])), place)
        self.cell.claimed(self._now())

    async def _recall(self, asked: Recall) -> None:
        """Recall as in "connect, check, send", but before there is anything to send."""
        leader = self._brokers.metadata.leader
        try:
            connections = {place: await self._requests.connect(leader(*place)[0]) for place in asked.places}
            found = await remembered_or_none(self._brokers, dict.fromkeys(asked.places, asked.pid))
        except KafkaException:
            return  # it is asked again when there is
        self._looked |= connections
        known = {place: each.last_timestamp_ms for place, each in found.items() if each is not None}
        self.cell.recalled(known, self._now())

    async def _read_back(self, asked: ReadBack) -> None:
        place = asked.place
        span = Span(asked.identity, asked.first_sequence, asked.records)

        async def read() -> list[Slot]:
            from_offset = max(asked.from_offset, 0)
            return [slot async for portion in slots(self._brokers, *place, span, from_offset) for slot in portion]

        found = await self._patiently(read, place)
        self.cell.read_back(place, found, self._now())

    # --- files

    async def _write_rows(self, asked: WriteRows) -> None:
        assert self._files is not None
        if await self._on_files(partial(self._files.write, asked.name, asked.rows)):
            self.cell.rows_written(asked.rows.nbytes, self._now())

    async def _finish_files(self, asked: FinishFiles) -> None:
        assert self._files is not None
        if await self._on_files(partial(self._files.finish, asked.about, asked.until_ms)):
            self.cell.files_finished(self._now())

    async def _on_files(self, work: Callable[[], None]) -> bool:
        """One after the other, in a thread; whether it went well."""
        from oncelog.runner.storing.place import Unreachable
        from oncelog.runner.storing.writing import Differs

        try:
            async with self._files_turn:
                await asyncio.to_thread(work)
        except (Unreachable, Differs) as why:
            self.cell.files_failed(str(why), self._now(), is_final=isinstance(why, Differs))
            return False
        return not self.is_over

    # --- input

    def _see(self, index: int, reading: Input) -> None:
        """Tell the cell the end of an input whose records are collected, or of a table."""
        if self.cell.sources and (self._stage.collect is not None or self._stage.inputs[index].is_table):
            end, high = self._ends[index], reading.position if reading.is_at_end else reading.high_watermark
            self.cell.seen(index, high if end is None else min(high, end), self._now())
            self.wake()

    def _feed_soon(self, index: int) -> None:
        """Feed an input in the cell's turn: records may arrive for a hundred cells at once."""
        self._to_feed.add(index)
        self.wake()

    def _feed(self, index: int) -> None:
        """Give the cell the records that are there, or say once for each place that there are none."""
        from_offset, reading = self._asked[index], self._inputs[index]
        if reading is not None and not self.is_paused:
            self._see(index, reading)
        if from_offset is None or self.is_over or self.is_paused or self.cell.wants_to_leave:
            return
        if reading is None or from_offset != self._given[index]:
            reading = self._begin_input(index, from_offset)
            self._see(index, reading)
        piece = reading.take(self._portions.records)
        if self.is_over or self._topics.look(self._brokers.metadata):
            return
        if piece is not None:
            self._give(index, Records(*piece[:5]), piece.next_offset)
        elif reading.is_at_end and self._told_end[index] != reading.position:
            self._told_end[index] = reading.position
            self._give(index, EMPTY, reading.position, is_open=reading.is_open)
        elif reading.is_at_end and self._asks_for_time:
            self.cell.at_its_end(index, self._now(), is_open=reading.is_open)
            self.wake()

    def _expect(self, expected: Expect) -> None:
        if (reading := self._inputs[expected.input]) is None:
            self._begin_input(*expected)
        else:
            reading.skip_to(expected.from_offset)
            self._given[expected.input] = expected.from_offset

    def _begin_input(self, index: int, from_offset: int) -> Input:
        if (before := self._inputs[index]) is not None:
            before.end()
        partition = self._stage.inputs[index].topic, self._stage.cell
        self._given[index] = from_offset
        found = self._inputs[index] = self._cluster.read(
            partition,
            from_offset,
            partial(self._feed_soon, index),
            partial(self._trouble.met, lambda: self._inputs[index]),
            self._ends[index],
            has_headers=self._part.inputs[index].has_headers,
            keeps_telling=self._asks_for_time and not self._stage.inputs[index].is_derived,
            as_columns=takes_columns(self._part),
        )
        return found

    def _give(self, index: int, records: Records, next_offset: int, *, is_open: bool = False) -> None:
        self._asked[index] = None
        self._given[index] = next_offset
        self.cell.fetched(index, records, next_offset, self._now(), is_open=is_open)
        self.wake()

    def _look_for_the_end(self) -> None:
        """Everything up to the ends was given, and more is asked for: then all of it is taken, and what was due by the
        time at the ends is done."""
        cell = self.cell
        asked = [
            end is not None and each is not None and each >= end
            for each, end in zip(self._asked, self._ends, strict=True)
        ]
        if all(asked) and cell.is_idle and not cell.wants_to_leave:
            self.leave(RunEnd.CUT if self.is_cut else RunEnd.WHOLE)

    def _give_up(self, why: str) -> None:
        """Give up as `fail` does, but what was read before is committed, and goodbye is said."""
        if not self.is_over:
            self.cell.stop(f"{self._stage.title}: {why}", self._now())
            self.wake()


_WAITED_FOR: Final[Mapping[type, Callable[[Life, Any], Coroutine[Any, Any, None]]]] = {
    LookUp: Life._look_up,
    ReadJournal: Life._read_journal,
    NeedPids: Life._take_pids,
    AppendClaim: Life._append_claim,
    Recall: Life._recall,
    ReadBack: Life._read_back,
    WriteRows: Life._write_rows,
    FinishFiles: Life._finish_files,
}
