"""Exactly what stands between two offsets of a partition, as columns: fetched ahead while what came before is decoded.

Offsets that a transaction's marker or compaction took are no rows; everything else between the two offsets is one, or
there is an error. An answer without records says nothing by itself: a range is over when an offset at its end or behind
it has been seen.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from oncelog.client.consumer.decoding import Damaged, columns_of, committed_records
from oncelog.client.consumer.engine import Told
from oncelog.client.consumer.range_engine import Idle, RangeEngine
from oncelog.client.errors import KafkaError, KafkaException, is_retriable
from oncelog.client.fetching.events import Chunk, Failed
from oncelog.client.net.warm_connections import cool, warm
from oncelog.clock import monotonic_s

if TYPE_CHECKING:
    from oncelog.records.column_types import Columns

OnLoss = Callable[[str], None]

PATIENCE_S: Final = 120.0
# The properties to fetch a range by, unless others are given: few large requests, and no more held than a few.
FETCH: Final = {
    "fetch.message.max.bytes": str(4 << 20),
    "queued.max.messages.kbytes": str(16 << 10),
    "queued.min.messages": str(10_000_000),
    "auto.offset.reset": "error",
}
UNFOLDED_BYTES: Final = 16 << 20
DAMAGED_TRIES: Final = 3
# A broker that says that something is not there may not know it yet: it is asked for this long.
DOUBTS_S: Final = 10.0
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
    topic_id: str = ""  # another topic of its name is not read; where empty, any is

    def __post_init__(self) -> None:
        if self.start < 0:
            raise ValueError(f"a range begins at an offset, and {self.start} is none")

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
    on_loss: OnLoss | None = None,
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
    on_loss: OnLoss | None = None,
) -> "Iterator[Columns]":
    """The columns that `read_range` reads, one step before Arrow."""
    if asked.start >= asked.end:
        return
    with _engine(properties, asked) as engine:
        yield from _Reader(engine, asked, columns, patience_s, on_loss).columns()


def read_batches(
    properties: Mapping[str, str],
    asked: Range,
    *,
    patience_s: float = PATIENCE_S,
    on_loss: OnLoss | None = None,
) -> Iterator[tuple[int, memoryview]]:
    """The bytes as they came, those of aborted transactions left out, each time with the offset from which on they
    count: whole batches, of which the first and the last may reach beyond that and the range, and perhaps a part of one
    more. They are the caller's; nobody has looked into them."""
    if asked.start >= asked.end:
        return
    with _engine(properties, asked) as engine:
        yield from _Reader(engine, asked, None, patience_s, on_loss).batches()


@contextmanager
def _engine(properties: Mapping[str, str], asked: Range) -> Iterator[RangeEngine]:
    client = warm(FETCH | dict(properties))
    try:
        place = asked.topic, asked.partition
        engine = RangeEngine(client, place, asked.start, asked.end, topic_id=asked.topic_id)
        try:
            yield engine
        finally:
            engine.close()
    finally:
        cool(client)


class _Reader:
    def __init__(
        self,
        engine: RangeEngine,
        asked: Range,
        wanted: frozenset[str] | None,
        patience_s: float,
        on_loss: OnLoss | None,
    ) -> None:
        self._engine = engine
        self._asked = asked
        self._wanted = wanted
        self._patience_s = patience_s
        self._on_loss = on_loss
        self._at = asked.start
        self._trouble = ""
        self._damaged_tries = 0
        self._progress()

    def _progress(self) -> None:
        self._give_up_s = monotonic_s() + self._patience_s
        self._lost_if_so_at_s: float | None = None  # when to believe that something is not there

    def columns(self) -> "Iterator[Columns]":
        while self._at < self._asked.end:
            event = self._engine.next_event()
            if isinstance(event, Chunk):
                yield from self._read(event)
            else:
                self._no_records(event)

    def batches(self) -> Iterator[tuple[int, memoryview]]:
        while self._at < self._asked.end:
            event = self._engine.next_event()
            if not isinstance(event, Chunk):
                self._no_records(event)
                continue
            try:
                records = committed_records(event, self._at, check_crcs=self._engine.settings.check_crcs)
            except Damaged as damaged:
                self._damaged(event, damaged)
                continue
            start = self._at
            self._read_up_to(event.next_offset)
            yield start, records

    def _no_records(self, event: object) -> None:
        if isinstance(event, Failed):
            self._failed(event)
        elif isinstance(event, Told):
            self._wait_for(event.error)
        elif isinstance(event, Idle):
            self._idle()
        if monotonic_s() >= self._give_up_s:
            self._give_up()

    # --- records

    def _read(self, chunk: Chunk) -> "Iterator[Columns]":
        check_crcs = self._engine.settings.check_crcs
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
        self._read_up_to(chunk.next_offset)

    def _read_up_to(self, offset: int) -> None:
        self._at = min(max(self._at, offset), self._asked.end)
        self._damaged_tries = 0
        self._progress()

    def _damaged(self, chunk: Chunk, damaged: Damaged) -> None:
        """Read damaged records once more, but not for ever: they may be whole another time, or elsewhere."""
        self._damaged_tries += 1
        if self._damaged_tries == DAMAGED_TRIES:
            words = f"{self._asked}: what was fetched at offset {max(self._at, damaged.offset)} is damaged: {damaged}"
            raise KafkaException(KafkaError(KafkaError._BAD_MSG, words))
        self._engine.fetch_again(chunk, self._at)

    # --- what goes wrong

    def _failed(self, event: Failed) -> None:
        code = event.code
        if code in _OUT_OF_RANGE:
            self._out_of_range()
        elif code in _GONE:
            self._doubt()
            self._trouble = event.message
        elif code == KafkaError._LOG_TRUNCATION:
            # Records handed out already are not in the log any more: only a new attempt can say what is there now.
            raise KafkaException(KafkaError(code, f"{self._asked}: {event.message}", retriable=True))
        else:
            self._wait_for(KafkaError(code, event.message, retriable=is_retriable(code) or code == KafkaError._BAD_MSG))

    def _wait_for(self, error: KafkaError) -> None:
        """Wait for the end of what passes by itself; anything else is not waited for."""
        if not error.retriable():
            raise KafkaException(error)
        self._trouble = error.str()

    def _doubt(self) -> None:
        if self._lost_if_so_at_s is None:
            self._lost_if_so_at_s = monotonic_s() + DOUBTS_S

    @property
    def _is_certain(self) -> bool:
        return self._lost_if_so_at_s is not None and monotonic_s() >= self._lost_if_so_at_s

    def _idle(self) -> None:
        """Look at the log when no record has come for a while: is the range still there?"""
        bounds = self._engine.bounds()
        if isinstance(bounds, KafkaError):
            if bounds.code() in _GONE:
                self._doubt()
                if self._is_certain:
                    self._lost(f"{self._asked}: {bounds.str()}", self._asked.end)
            else:
                self._wait_for(bounds)
            return
        if bounds.end < self._asked.end and bounds.end <= self._at:
            self._doubt()
            if self._is_certain:
                self._lost(f"{self._asked}: the log ends at {bounds.end}", self._asked.end)
        elif bounds.committed_end < self._asked.end:
            self._trouble = f"an open transaction holds back what comes after offset {bounds.committed_end}"

    def _give_up(self) -> None:
        why = f": {self._trouble}" if self._trouble else ""
        words = f"{self._asked}: nothing more came at offset {self._at} in {self._patience_s:g} s{why}"
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT, words, retriable=True))

    def _out_of_range(self) -> None:
        bounds = self._engine.bounds()
        if isinstance(bounds, KafkaError):
            self._wait_for(bounds)
            self._engine.seek(self._at, is_later=True)
        elif bounds.start > self._at:
            first = min(bounds.start, self._asked.end)
            self._lost(
                f"{self._asked}: offsets {self._at} to {first} are gone, the log begins at {bounds.start}", first
            )
        elif bounds.end < self._at:
            self._doubt()
            if self._is_certain:
                self._lost(f"{self._asked}: the log ends at {bounds.end}, before offset {self._at}", self._asked.end)
            else:
                self._engine.seek(self._at, is_later=True)
        else:
            self._engine.seek(self._at, is_later=True)  # a broker that lagged behind said so

    def _lost(self, words: str, go_on_at: int) -> None:
        if self._on_loss is None:
            raise DataLost(words)
        self._on_loss(words)
        self._at = go_on_at
        self._progress()
        if go_on_at < self._asked.end:
            self._engine.seek(go_on_at)
