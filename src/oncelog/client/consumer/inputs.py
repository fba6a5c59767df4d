"""Many partitions at once, decoded on the loop that fetches them: piece by piece, as their reader asks.

What is fetched ahead is bounded in bytes, for all of them together. A piece is as many records as the reader takes at a
time: keys, values and numbers as columns over the memory of what the compiled loops have decoded at once, and lists
without them; or, where it asks for columns, all that were decoded at once. Its times are those of a header, where
records have that. There is no group here and nothing is committed.
"""

import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from oncelog import machine_code
from oncelog.client.consumer.chunk_readers import Position
from oncelog.client.consumer.decoding import (
    DECODING_LOOPS,
    FEW_RECORDS,
    HAS_COLUMNS,
    Damaged,
    columns_of,
    committed_records,
    records_from,
    time_in,
)
from oncelog.client.consumer.engine import Engine, Told, limits_of
from oncelog.client.errors import KafkaError, error_of
from oncelog.client.fetching.batches import LAST_OFFSET
from oncelog.client.fetching.cursor import Cursor
from oncelog.client.fetching.events import Chunk, Failed
from oncelog.client.net.brokers import Brokers
from oncelog.client.properties import ConsumerSettings
from oncelog.records.read import Record
from oncelog.slots import AnyPlace

if TYPE_CHECKING:
    from oncelog.records.column_types import Columns

_log: Final = logging.getLogger("oncelog.client")

T = TypeVar("T")

MOST_TRIES: Final = 3  # of what cannot be read

Headers = Sequence[tuple[bytes, bytes | None]]


class Piece(NamedTuple):
    """Records of one partition that follow one another, as columns."""

    offsets: Sequence[int]
    keys: Sequence[bytes | None]
    values: Sequence[bytes | None]
    times: Sequence[int]
    headers: Sequence[Headers] | None  # None: nobody asked for them, or no record here has any
    next_offset: int


def _joined(pieces: list[Piece]) -> Piece | None:
    """Producers that send at once make batches of a record or two."""
    if len(pieces) < 2:
        return pieces[0] if pieces else None
    headers = None
    if any(each.headers is not None for each in pieces):
        headers = _end_to_end(each.headers or [()] * len(each.offsets) for each in pieces)
    return Piece(
        _end_to_end(each.offsets for each in pieces),
        _cells([each.keys for each in pieces]),
        _cells([each.values for each in pieces]),
        _end_to_end(each.times for each in pieces),
        headers,
        pieces[-1].next_offset,
    )


def _cells(columns: list[Sequence[bytes | None]]) -> Sequence[bytes | None]:
    if all(isinstance(each, list | tuple) for each in columns):
        return _end_to_end(columns)
    from oncelog.records.column_types import BytesColumn

    return BytesColumn.joined([BytesColumn.of(each) for each in columns])


def _end_to_end(columns: Iterable[Sequence[T]]) -> list[T]:
    return list(chain.from_iterable(columns))


class Input:
    """The input of one partition, from an offset on."""

    def __init__(
        self,
        inputs: "Inputs",
        partition: AnyPlace,
        offset: int,
        stop_at: int | None,
        arrived: Callable[[], None],
        failed: Callable[[KafkaError], None],
        keeps_telling: bool,
        has_headers: bool,
        as_columns: bool,
    ) -> None:
        self.partition = partition
        self.has_headers = has_headers
        self.as_columns = as_columns
        self.keeps_telling = keeps_telling
        self.position = offset  # all before it was taken
        self.arrived = arrived
        self.failed = failed
        self.chunks: deque[Chunk] = deque()
        self.end_offset = -1  # the log ended there
        self._inputs = inputs
        self._stop_at = stop_at
        self._chunk: Chunk | None = None  # the one that is being taken
        self._rest: Iterator[_Rows] = iter(())
        self._rows: _Rows | None = None
        self._tries = 0

    @property
    def is_at_end(self) -> bool:
        """Nothing follows now: the log ended here, or nothing behind it is wanted."""
        if self._stop_at is not None and self.position >= self._stop_at:
            return True
        return self._chunk is None and not self.chunks and self.position <= self.end_offset

    @property
    def high_watermark(self) -> int:
        """The high watermark as the last answer had it; -1 before there was one."""
        return self._inputs.cursor(self).high_watermark

    @property
    def is_open(self) -> bool:
        """A transaction that is not over keeps back what stands behind it and is wanted, by the last answer."""
        cursor = self._inputs.cursor(self)
        stable = cursor.last_stable_offset
        is_wanted = self._stop_at is None or stable <= self._stop_at
        return self._inputs.reads_committed and is_wanted and 0 <= stable < cursor.high_watermark

    @property
    def told(self) -> int:
        """The code with which it failed last; 0 once something was fetched again."""
        return self._inputs.cursor(self).reported_code

    @property
    def fetches_from(self) -> int:
        return self._inputs.cursor(self).offset

    def stop_at(self, offset: int) -> None:
        """Nothing from this offset on is wanted."""
        self._stop_at = self._inputs.cursor(self).stop_at = offset

    def skip_to(self, offset: int) -> None:
        """Nothing before this offset is wanted any more."""
        self.position = max(self.position, offset)
        while self.chunks and self.chunks[0].next_offset <= offset:
            self._inputs.taken(self.chunks.popleft())

    def end(self) -> None:
        self._inputs.end(self)

    def take(self, most: int) -> Piece | None:
        """The next records, or None where there are none now."""
        pieces: list[Piece] = []
        try:
            while most > 0 and (piece := self._next(most)) is not None:
                pieces.append(piece)
                most -= most if self.as_columns else len(piece.offsets)
            if pieces:
                self._tries = 0
        except Damaged as damaged:
            self._damaged(damaged)
        return _joined(pieces)

    def _next(self, most: int) -> Piece | None:
        stop_at = LAST_OFFSET if self._stop_at is None else self._stop_at
        while self.position < stop_at:
            piece = None if self._rows is None else self._rows.take(most)
            if piece is not None:
                self.position = piece.next_offset
                return piece
            self._rows = next(self._rest, None)
            if self._rows is not None:
                continue
            if self._chunk is not None:  # what is no record at its end counts as taken, too
                self.position = max(self.position, min(self._chunk.next_offset, stop_at))
                self._chunk = None
            if not self.chunks or self._inputs.awaits_loops(self.chunks[0]):
                return None
            self._chunk = self.chunks.popleft()
            self._inputs.taken(self._chunk)
            self._rest = _rows_of(self._chunk, self.position, stop_at, self._inputs, self)
        self.drop()
        return None

    def _damaged(self, damaged: Damaged) -> None:
        """Read damaged records once more: they may be whole another time, or elsewhere."""
        chunk, self._tries = self._chunk, self._tries + 1
        self.drop()
        self.end_offset = -1  # it was seen behind what is let go, and comes again
        if self._tries >= MOST_TRIES or chunk is None:
            topic, index = self.partition
            words = f"{topic}-{index}: the batch at offset {damaged.offset} cannot be read: {damaged}"
            self.failed(KafkaError(KafkaError._BAD_MSG, words))
        else:
            self._inputs.again(chunk, self.position)

    def drop(self) -> None:
        """Let go of fetched records that were not taken."""
        for chunk in self.chunks:
            self._inputs.taken(chunk)
        self.chunks.clear()
        self._chunk = self._rows = None
        self._rest = iter(())


class UntilLoaded:
    """The chunks behind the first large one wait while the compiled loops are loaded: to read them without would
    take the processor from that. The first one waits, too, where their machine code is kept: that is loaded sooner than
    it would be read, and nobody makes objects of its records."""

    def __init__(self, go_on: Callable[[], object]) -> None:
        self._go_on = go_on
        self._is_asked = self._has_looked = False

    def __call__(self, chunk: Chunk) -> bool:
        """Whether this one waits."""
        if chunk.record_count <= FEW_RECORDS:
            return False
        if not self._has_looked:
            self._has_looked = True
            if HAS_COLUMNS and machine_code.is_near():
                DECODING_LOOPS.fetch()
        if not DECODING_LOOPS.is_loading:
            return False
        if not self._is_asked:
            self._is_asked = True
            DECODING_LOOPS.when_loaded(self._go_on)
        return True


class Inputs:
    """All that one loop reads, over connections of their own for each `purpose`. A partition is read once at a time."""

    def __init__(
        self,
        settings: ConsumerSettings,
        brokers: Brokers,
        wake: Callable[[Callable[[], None]], object],
        purpose: str,
        time_header: bytes,
    ) -> None:
        self.time_header = time_header
        self.check_crcs = settings.check_crcs
        self.reads_committed = settings.isolation_level == "read_committed"
        self.awaits_loops = UntilLoaded(lambda: wake(self._go_on))
        self._inputs: dict[AnyPlace, Input] = {}
        self._engine = Engine(settings, brokers, _nothing_is_committed, self._drain, wake, purpose)
        self._engine.fetcher.limits = replace(limits_of(settings), reports_end=True, reset="error")

    async def close(self) -> None:
        await self._engine.close()

    def __contains__(self, partition: AnyPlace) -> bool:
        return partition in self._inputs

    def begin(
        self,
        partition: AnyPlace,
        offset: int,
        arrived: Callable[[], None],
        failed: Callable[[KafkaError], None],
        stop_at: int | None = None,
        *,
        keeps_telling: bool = False,
        has_headers: bool = False,
        as_columns: bool = False,
    ) -> Input:
        """`arrived` is called where something can be taken now, or the end was reached, and where it `keeps_telling`
        as often as a broker says that this still is the end; `failed` where it stands still until somebody does
        something."""
        found = self._inputs[partition] = Input(
            self, partition, offset, stop_at, arrived, failed, keeps_telling, has_headers, as_columns
        )
        self._engine.fetcher.assign(partition, offset, stop_at=stop_at)
        self._engine.pump()
        return found

    # --- what an input asks

    def cursor(self, one: Input) -> Cursor:
        return self._engine.fetcher.cursors[one.partition]

    def taken(self, chunk: Chunk) -> None:
        self._engine.taken(chunk)

    def again(self, chunk: Chunk, offset: int) -> None:
        self._engine.damaged(chunk, Position(offset))

    def end(self, one: Input) -> None:
        one.drop()
        if self._inputs.get(one.partition) is one:
            del self._inputs[one.partition]
            self._engine.fetcher.unassign(one.partition)

    def _go_on(self) -> None:
        """The loops are loaded: what waited for them can be taken."""
        for each in list(self._inputs.values()):
            if each.chunks:
                each.arrived()

    def _drain(self) -> None:
        """Give what was fetched to its partition."""
        arrived: dict[AnyPlace, Input] = {}
        while (event := self._engine.next_event()) is not None:
            if isinstance(event, Told):
                _log.warning("%s", event.error.str())
                continue
            one = self._inputs.get(event.cursor.partition) if event.is_current else None
            if one is None:
                if isinstance(event, Chunk):
                    self._engine.taken(event)
            elif isinstance(event, Failed):
                one.failed(error_of(event.code, event.message))
            else:
                arrived[one.partition] = one
                if isinstance(event, Chunk):
                    one.chunks.append(event)
                else:
                    one.end_offset = event.offset
                    if one.keeps_telling:
                        event.cursor.end_reported_at = -1
        for one in arrived.values():
            one.arrived()


async def _nothing_is_committed(partitions: list[AnyPlace]) -> Mapping[AnyPlace, tuple[int, int]]:
    raise AssertionError(f"{partitions} begin at an offset")


class _Rows:
    """Decoded rows, of which the next can be taken."""

    def __init__(self, count: int, time_header: bytes, one: Input) -> None:
        self._at, self._count = 0, count
        self._time_header = time_header
        self._has_headers = one.has_headers

    def take(self, most: int) -> Piece | None:
        first = self._at
        last = self._at = min(first + most, self._count)
        return self._piece(first, last) if first < last else None

    def _piece(self, first: int, last: int) -> Piece:
        raise TypeError("rows of one kind or the other")


class _ColumnRows(_Rows):
    def __init__(self, columns: "Columns", time_header: bytes, one: Input) -> None:
        super().__init__(columns.row_count, time_header, one)
        self._columns = columns

    def _piece(self, first: int, last: int) -> Piece:
        from oncelog.client.consumer.header_times import header_times

        columns = self._columns
        assert columns.offset is not None and columns.headers is not None
        assert columns.key is not None and columns.value is not None
        offsets, times = columns.offset[first:last], header_times(columns, first, last, self._time_header)
        next_offset = int(offsets[-1]) + 1
        keys, values = columns.key[first:last], columns.value[first:last]
        headers = [columns.headers[row] for row in range(first, last)] if self._has_headers else None
        return Piece(offsets.data, keys, values, times.data, headers, next_offset)


class _RecordRows(_Rows):
    """Rows of records that were read without the compiled loops."""

    def __init__(self, records: list[Record], time_header: bytes, one: Input) -> None:
        super().__init__(len(records), time_header, one)
        self._records = records

    def _piece(self, first: int, last: int) -> Piece:
        keys, values, headers, own, offsets = zip(*self._records[first:last], strict=True)
        times = [time_in(each, self._time_header, own_ms) for each, own_ms in zip(headers, own, strict=True)]
        return Piece(offsets, keys, values, times, headers if self._has_headers else None, offsets[-1] + 1)


def _rows_of(chunk: Chunk, start_offset: int, stop_at: int, how: "Inputs", one: Input) -> Iterator[_Rows]:
    records = committed_records(chunk, start_offset, check_crcs=how.check_crcs)
    are_many = chunk.record_count > FEW_RECORDS
    if are_many and DECODING_LOOPS.found is not None:
        for columns in columns_of(records, start_offset, check_crcs=how.check_crcs, end_offset=stop_at):
            yield _ColumnRows(columns, how.time_header, one)
        return
    for _, found in records_from(records, start_offset, check_crcs=how.check_crcs):
        rows = [each for each in found if each.offset < stop_at]
        yield _RecordRows(rows, how.time_header, one)
    if are_many:  # behind the first chunk, so that a flow that starts does not wait for the loops
        DECODING_LOOPS.fetch()
