"""Exactly what stands between two offsets of a partition, as columns: fetched ahead while what came before is decoded.

Offsets that a transaction's marker or compaction took are no rows; everything else between the two offsets is one, or
there is an error. An answer without records says nothing by itself: the range ends where an offset at its end or behind
it has been seen.
"""

import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from oncelog.client.consumer import asking
from oncelog.client.consumer.decoding import Damaged, columns_of, committed_records
from oncelog.client.consumer.engine import Engine, Told
from oncelog.client.consumer.reading import Position
from oncelog.client.errors import KafkaError, KafkaException, exception_of
from oncelog.client.fetching.values import EARLIEST, LATEST, Chunk, Event, Failed, Partition
from oncelog.client.net.warm import Warm, cool, warm
from oncelog.clock import monotonic_s

if TYPE_CHECKING:
    from oncelog.records.column_types import Columns

PATIENCE_S: Final = 120.0
# What a range is fetched by, unless the properties say otherwise: few large requests, and two of them held.
FETCH: Final = {
    "fetch.message.max.bytes": str(4 << 20),
    "queued.max.messages.kbytes": str(16 << 10),
    "queued.min.messages": str(10_000_000),
    "auto.offset.reset": "error",
}
UNFOLDED_BYTES: Final = 16 << 20
DAMAGED_TRIES: Final = 3
# An answer that says that something is not there may come from a broker that does not know yet: asked for this long.
SETTLE_S: Final = 10.0
_GONE: Final = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.UNKNOWN_TOPIC_ID, KafkaError._UNKNOWN_PARTITION})
_OUT_OF_RANGE: Final = frozenset({KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE})


class DataLost(Exception):
    """Records of the range are not there any more."""


@dataclass(frozen=True, slots=True)
class Range:
    topic: str
    partition: int
    start: int
    end: int  # not included

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} from offset {self.start} to {self.end}"


def read_range(
    properties: Mapping[str, str],
    topic: str,
    partition: int,
    start: int,
    end: int,
    *,
    columns: frozenset[str] | None = None,
    patience_s: float = PATIENCE_S,
    on_loss: Callable[[str], None] | None = None,
) -> Iterator[Any]:
    """The records from `start` on and before `end` as pyarrow RecordBatches, with the columns of `records.arrow.SCHEMA`
    that were asked for (`timestamp` brings `timestampType` along).

    Data that is gone is `DataLost`; with `on_loss` that is called with the words instead, and what is there is read.
    No progress for `patience_s` is a KafkaException.
    """
    from oncelog.records.arrow import to_arrow

    asked = Range(topic, partition, start, end)
    for found in read_columns(properties, asked, columns=columns, patience_s=patience_s, on_loss=on_loss):
        yield to_arrow(found)


def read_columns(
    properties: Mapping[str, str],
    asked: Range,
    *,
    columns: frozenset[str] | None = None,
    patience_s: float = PATIENCE_S,
    on_loss: Callable[[str], None] | None = None,
) -> "Iterator[Columns]":
    """As `read_range`, one step before Arrow."""
    if asked.start >= asked.end:
        return
    client = warm(FETCH | dict(properties))
    try:
        reader = _Reader(client, asked, columns, patience_s, on_loss)
        try:
            yield from reader.columns()
        finally:
            reader.close()
    finally:
        cool(client)


class _Reader:
    def __init__(
        self,
        client: Warm,
        asked: Range,
        wanted: frozenset[str] | None,
        patience_s: float,
        on_loss: Callable[[str], None] | None,
    ) -> None:
        self._client = client
        self._asked = asked
        self._partition: Partition = (asked.topic, asked.partition)
        self._wanted = wanted
        self._patience_s = patience_s
        self._on_loss = on_loss
        self._at = asked.start
        self._something_came = threading.Event()
        self._give_up_s = monotonic_s() + patience_s
        self._trouble: KafkaError | None = None
        self._gone_since_s: float | None = None
        self._damaged_tries = 0
        self._engine: Engine = client.thread.run(self._begin())

    async def _begin(self) -> Engine:
        engine = Engine(
            self._client.settings,
            self._client.brokers,
            self._find_committed,
            self._something_came.set,
            self._client.thread.call_soon,
        )
        engine.fetcher.assign(self._partition, self._at, stop_at=self._asked.end)
        engine.pump()
        return engine

    async def _find_committed(self, partitions: list[Partition]) -> Mapping[Partition, tuple[int, int]]:
        raise AssertionError("a range begins at an offset")

    def close(self) -> None:
        self._client.thread.run(self._engine.close())

    def columns(self) -> "Iterator[Columns]":
        while self._at < self._asked.end:
            event = self._next()
            if isinstance(event, Chunk):
                yield from self._read(event)
            elif isinstance(event, Failed):
                self._failed(event)
            elif isinstance(event, Told):
                self._note(event.error)

    def _next(self) -> Event | Told:
        """The next thing that is not stale, waited for."""
        engine = self._engine
        while True:
            event = engine.next_event()
            if event is not None:
                if isinstance(event, Chunk):
                    engine.taken(event)
                if event.is_current:
                    return event
                continue
            self._something_came.clear()
            if engine.has_events:
                continue
            left_s = self._give_up_s - monotonic_s()
            if left_s <= 0:
                self._give_up()
            self._something_came.wait(left_s)

    def _give_up(self) -> None:
        why = f": {self._trouble.str()}" if self._trouble is not None else ""
        words = f"{self._asked}: nothing more came at offset {self._at} in {self._patience_s:g} s{why}"
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT, words, retriable=True))

    # --- records

    def _read(self, chunk: Chunk) -> "Iterator[Columns]":
        check_crcs = self._client.settings.check_crcs
        end = self._asked.end
        try:
            records = committed_records(chunk, self._at, check_crcs=check_crcs)
            for found in columns_of(
                records,
                self._at,
                check_crcs=check_crcs,
                end_offset=end,
                wanted=self._wanted,
                unfolded_bytes=UNFOLDED_BYTES,
            ):
                self._at = max(self._at, found.next_offset)
                if found.row_count:
                    yield found
        except Damaged as damaged:
            self._damaged(chunk, damaged)
            return
        self._at = min(max(self._at, chunk.next_offset), end)
        self._progress()

    def _progress(self) -> None:
        self._give_up_s = monotonic_s() + self._patience_s
        self._trouble = None
        self._gone_since_s = None
        self._damaged_tries = 0

    def _damaged(self, chunk: Chunk, damaged: Damaged) -> None:
        """It may be whole another time, or elsewhere; not for ever."""
        self._damaged_tries += 1
        if self._damaged_tries == DAMAGED_TRIES:
            words = f"{self._asked}: what was fetched at offset {max(self._at, damaged.offset)} is damaged: {damaged}"
            raise KafkaException(KafkaError(KafkaError._BAD_MSG, words))
        position = Position(self._at, -1)
        self._client.thread.call_soon(self._engine.damaged, chunk, position)

    # --- what goes wrong

    def _note(self, error: KafkaError) -> None:
        """Something that belongs to no partition; what does not pass by itself is not waited for."""
        if not error.retriable():
            raise KafkaException(error)
        self._trouble = error

    def _failed(self, event: Failed) -> None:
        code = event.code
        if code in _OUT_OF_RANGE:
            self._out_of_range()
        elif code in _GONE:
            self._is_gone(event.message)
        elif code == KafkaError._LOG_TRUNCATION:
            # What was handed out already is not in the log any more: only a new attempt can say what is there now.
            raise KafkaException(KafkaError(code, f"{self._asked}: {event.message}", retriable=True))
        else:
            self._note(KafkaError(code, event.message, retriable=_may_pass(code)))

    def _out_of_range(self) -> None:
        first, last = self._client.thread.run(self._bounds())
        if first <= self._at <= last:
            self._seek(self._at)  # a broker that lagged behind said so
            return
        if first > self._at:
            lost = f"offsets {self._at} to {min(first, self._asked.end)} of {self._asked} are not in the log any more"
            self._lost(f"{lost}, which begins at {first}")
            self._seek(min(first, self._asked.end))
            return
        self._lost(f"{self._asked}: the log ends at {last}, before offset {self._at}")
        self._at = self._asked.end

    def _is_gone(self, message: str) -> None:
        """A broker that does not know the topic may not know it yet."""
        now_s = monotonic_s()
        self._gone_since_s = self._gone_since_s or now_s
        self._lost(f"{self._asked}: {message}")
        self._at = self._asked.end

    def _lost(self, words: str) -> None:
        if self._on_loss is None:
            raise DataLost(words)
        self._on_loss(words)

    def _seek(self, offset: int) -> None:
        self._at = offset

        async def seek() -> None:
            self._engine.fetcher.seek(self._partition, offset)
            self._engine.pump()

        self._client.thread.run(seek())
        self._progress()

    async def _bounds(self) -> tuple[int, int]:
        """Where the log begins and ends now."""
        brokers = self._client.brokers
        await brokers.refresh([self._asked.topic])
        leader, epoch = brokers.metadata.leader(*self._partition)
        offsets = []
        for time in (EARLIEST, LATEST):
            (answer,) = await asking.list_offsets(
                brokers, leader, [(self._partition, epoch, time)], read_committed=False
            )
            if answer.found.error_code:
                raise exception_of(answer.found.error_code, f"{self._asked}: the log's bounds")
            offsets.append(answer.found.offset)
        return offsets[0], offsets[1]


def _may_pass(code: int) -> bool:
    from oncelog.client.errors import is_retriable

    return is_retriable(code)
