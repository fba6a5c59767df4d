"""The first records of a resumed producer: compared with what stands in the log, and reported with their old offsets.

What the application produces again is offered here by what makes batches of it; what stands there is read back by a
task for each partition. Records behind the replay wait until all of it was equal, so a difference stops the partition
before anything else is written to it. The same comparison decides about slots whose acknowledgement was in doubt.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from oncelog.client.errors import KafkaError, KafkaException
from oncelog.client.producer.accumulator import COLUMNS, HEADERS, KEY, TIME, VALUE, Unbatched
from oncelog.client.producer.delivery import Records, Report
from oncelog.client.saving.errors import in_words
from oncelog.client.saving.read_back import slots
from oncelog.clock import monotonic_s
from oncelog.records.read import records_of
from oncelog.slots import Place, Span
from oncelog.slots.chain import SavedPartition
from oncelog.slots.messages import Delivered
from oncelog.slots.replay import Dropped, Output, PartitionReplay

if TYPE_CHECKING:
    from oncelog.client.net.brokers import Brokers

SLOTS_AHEAD: Final = 20_000  # read back and not met by an output yet; then the reader waits


class Replay:
    """The replay of one partition."""

    def __init__(self, partition: Unbatched, resumed: SavedPartition, any_generation: bool) -> None:
        self.partition = partition
        self.resumed = resumed
        self.any_generation = any_generation
        self.both = PartitionReplay(partition.topic, partition.partition, resumed.records_to_drop)
        self.records: deque[Records] = deque()  # the outputs' reports, in their order
        self.offered = asyncio.Event()


class Replays:
    """`stored` gets records found in the log, `report` gets what the application is to hear."""

    def __init__(
        self,
        brokers: "Brokers",
        *,
        stored: Callable[[Place, int, int], None],
        report: Callable[[Report], None],
        over: Callable[[Unbatched], None],
        stop: Callable[[KafkaException], None],
    ) -> None:
        self._brokers = brokers
        self._stored = stored
        self._report = report
        self._over = over
        self._stop = stop
        self._running: dict[Place, Replay] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def begin(self, partition: Unbatched, resumed: SavedPartition, *, any_generation: bool) -> None:
        """The partition's first records will be compared; called before anything is produced to it."""
        if resumed.records_to_drop:
            replay = Replay(partition, resumed, any_generation)
            partition.replay = replay.both
            self._running[partition.place] = replay
            self._spawn(self._read_back(replay))

    def offer(self, partition: Unbatched, rows: list[Any], records: Callable[[list[Any]], Records]) -> list[Any]:
        """Rows of a partition whose lock the caller has, on any thread; those behind the replay are given back."""
        replay = self._running[partition.place]
        count = min(len(rows) // COLUMNS, replay.both.outputs_to_come)
        mine, rest = rows[: count * COLUMNS], rows[count * COLUMNS :]
        if mine:
            replay.records.append(records(mine))
            for at in range(0, len(mine), COLUMNS):
                time = mine[at + TIME]
                replay.both.offer(
                    Output(
                        mine[at + KEY],
                        mine[at + VALUE],
                        mine[at + HEADERS] or (),
                        int(-time) if time < 0 else None,  # negative where the user gave one
                    )
                )
        return rest

    def outputs_waiting(self, place: Place) -> int:
        replay = self._running.get(place)
        return 0 if replay is None else replay.both.outputs_waiting

    def missing(self) -> dict[Place, int]:
        """Outputs that are still to come, of partitions whose replay is not over; from any thread."""
        return {place: each.both.outputs_to_come for place, each in tuple(self._running.items())}

    def give_up(self, error: KafkaError) -> None:
        """Report as failed what was offered and not compared."""
        for replay in self._running.values():
            while replay.records:
                self._report(Report(replay.records.popleft(), error=error, done_s=monotonic_s()))

    def match(self) -> None:
        """Compare the records that were offered and read back meanwhile. On the loop."""
        for replay in tuple(self._running.values()):
            self.match_one(replay)

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def check(self, delivered: Delivered, from_offset: int, *, any_generation: bool) -> int:
        """The batch's acknowledgement was in doubt, so what stands in its slots may be another process's: compare.
        Its base offset; raises where it differs."""
        batch = delivered.batch
        place = batch.place
        span = Span(batch.identity, batch.first_sequence, batch.record_count)
        if delivered.base_offset >= 0:
            from_offset = delivered.base_offset
        times = batch.payload.times if isinstance(batch.payload, Records) else ()
        replay = PartitionReplay(*place, batch.record_count)
        for at, record in enumerate(records_of(batch.data)):
            is_given = bool(times) and times[at] < 0
            time_ms = record.timestamp_ms if is_given else None
            replay.offer(Output(record.key, record.value, record.headers, time_ms))
        base_offset = -1
        async for portion in slots(self._brokers, *place, span, from_offset, any_generation=any_generation):
            replay.stands(portion)
            with in_words():
                dropped = replay.dropped()
            if dropped and base_offset < 0:
                base_offset = dropped[0].slot.offset
        with in_words():
            replay.ended()
        return base_offset

    async def _read_back(self, replay: Replay) -> None:
        topic, index = replay.partition.place
        from_offset = replay.resumed.next_offset
        try:
            for span in replay.resumed.drops:
                reading = slots(self._brokers, topic, index, span, from_offset, any_generation=replay.any_generation)
                async for portion in reading:
                    from_offset = portion[-1].offset + 1
                    replay.both.stands(portion)
                    self.match_one(replay)
                    while replay.both.slots_waiting > SLOTS_AHEAD:
                        replay.offered.clear()
                        await replay.offered.wait()
            with in_words():
                replay.both.ended()
        except KafkaException as failure:
            self._stop(failure)

    def match_one(self, replay: Replay) -> None:
        replay.offered.set()
        try:
            with in_words():
                dropped = replay.both.dropped()
        except KafkaException as difference:
            self._stop(difference)
            return
        if dropped:
            self._tell(replay, dropped)
        if replay.both.is_over:
            partition = replay.partition
            with partition.lock:
                partition.replay = None
            del self._running[partition.place]
            self._over(partition)

    def _tell(self, replay: Replay, dropped: list[Dropped]) -> None:
        """One report for each piece of a batch that lies in the log in one piece."""
        place = replay.partition.place
        first = 0
        for at, (one, next_one) in enumerate(pairwise([*dropped, None]), 1):
            assert one is not None
            is_whole = next_one is None or next_one.slot.offset != one.slot.offset + 1
            is_whole = is_whole or next_one is None or next_one.slot.identity != one.slot.identity
            if is_whole or at - first == replay.records[0].count:
                self._tell_piece(replay, dropped[first:at])
                first = at
        self._stored(place, len(dropped), dropped[-1].slot.offset + 1)

    def _tell_piece(self, replay: Replay, dropped: list[Dropped]) -> None:
        records = replay.records.popleft()
        if records.count > len(dropped):
            records, rest = records.cut(len(dropped))
            replay.records.appendleft(rest)
        slot = dropped[0].slot
        self._report(
            Report(
                records,
                base_offset=slot.offset,
                pid=slot.identity.pid,
                generation=slot.identity.generation,
                first_sequence=slot.sequence,
                done_s=monotonic_s(),
            )
        )

    def _spawn(self, coroutine: Any) -> None:
        task = asyncio.ensure_future(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
