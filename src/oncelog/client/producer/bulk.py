"""Arrow tables to records, by compiled loops: no Python object for a row (extra `[columns]`).

A table is looked at as a whole first, so that nothing of one that cannot be sent is sent. Then it goes piece by piece:
a piece is placed, encoded and handed over by the calling thread while earlier ones are under way.
"""

import random
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from oncelog.client.errors import KafkaError, KafkaException
from oncelog.client.partition_loops import KEYLESS, partitions_of
from oncelog.client.partitioners import KeylessCounter
from oncelog.client.producer.accumulator import (
    HEADER_OVERHEAD_BYTES,
    RECORD_OVERHEAD_BYTES,
    Topic,
    Unbatched,
    given_time,
)
from oncelog.client.producer.buffers import Buffers
from oncelog.client.producer.closing import BulkRows
from oncelog.client.producer.delivery import AllGiven, Records, Report
from oncelog.client.producer.delivery import Rows as TableRows
from oncelog.clock import monotonic_s, wall_s
from oncelog.producers.sequences import sequence_after
from oncelog.records.arrow import bytes_column, headers_column, timestamps
from oncelog.records.column_types import BytesColumn, HeadersColumn
from oncelog.records.encode_columns import encode
from oncelog.records.encode_loops import NO_PART
from oncelog.slots.batch import Batch
from oncelog.waiting import until_set

if TYPE_CHECKING:
    from oncelog.client.producer.engine import Engine

RECORD: Final = re.compile(r"record (\d+) of its batch: ")  # as `requests.py` says it
COLUMNS: Final = frozenset({"key", "value", "headers", "partition", "timestamp"})
LEAST_PIECE_BATCHES: Final = 4
MOST_PIECE_BYTES: Final = 32 << 20
PIECES_AT_ONCE: Final = 4  # of the queue's bytes, so that encoding and sending overlap
# One send keeps this much of its own under way, or this many pieces: what is sent soon is still in the processor's
# caches, and its memory is used again. Ten times as much was half as fast.
MOST_AHEAD_BYTES: Final = 24 << 20
PIECES_AHEAD: Final = 3

Times = NDArray[np.int64] | int
Parts = NDArray[np.int32]  # which partition each row goes to


class Range(NamedTuple):
    """Records that lie in one piece in one partition, under one identity."""

    partition: int
    first_offset: int
    record_count: int
    pid: int
    generation: int
    first_sequence: int


class BulkSend:
    """The fate of the rows of one `send`."""

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.record_count = 0
        self.delivered_count = 0
        self.failed_count = 0
        self.done_bytes = 0
        self.error: KafkaError | None = None  # the first one
        self.kept: object = None  # the producer, which would otherwise be collected before all rows are sent
        self._ranges: list[Range] = []
        self._is_whole = False  # all rows were handed over
        self._lock = threading.Lock()
        self._done = threading.Event()
        self._watchers: list[Callable[[], object]] = []

    @property
    def ranges(self) -> list[Range]:
        """The places of the delivered rows, by partition and offset."""
        with self._lock:
            found = sorted(self._ranges)
        merged: list[Range] = []
        for each in found:
            last = merged[-1] if merged else None
            if last is not None and _follows(last, each):
                merged[-1] = last._replace(record_count=last.record_count + each.record_count)
            else:
                merged.append(each)
        return merged

    def done(self) -> bool:
        return self._done.is_set()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until every row is delivered or has failed; False when the time is over."""
        return until_set(self._done, timeout)

    def result(self, timeout: float | None = None) -> list[Range]:
        """The ranges, when all rows are delivered; raises the first error where any row failed."""
        if not self.wait(timeout):
            raise TimeoutError(f"{self.record_count - self.delivered_count - self.failed_count} rows are under way")
        if self.error is not None:
            raise KafkaException(self.error)
        return self.ranges

    def __repr__(self) -> str:
        return (
            f"<BulkSend {self.topic}: {self.record_count} rows, {self.delivered_count} delivered, "
            f"{self.failed_count} failed>"
        )

    # --- what the producer tells

    @property
    def is_watched(self) -> bool:
        """Whether anybody is told by itself when all is done."""
        return bool(self._watchers)

    def finish(self, record_count: int) -> None:
        with self._lock:
            self._is_whole = True
            self.record_count = record_count
        self._look()

    def watch(self, watcher: Callable[[], object]) -> None:
        """Have it called, on any thread, when all is done."""
        self._watchers.append(watcher)
        if self._done.is_set():
            watcher()

    def report(self, report: Report) -> None:
        records = report.records
        with self._lock:
            self.done_bytes += records.size_bytes
            if report.error is None:
                self.delivered_count += records.count
                self._ranges.append(
                    Range(
                        records.partition,
                        report.base_offset,
                        records.count,
                        report.pid,
                        report.generation,
                        report.first_sequence,
                    )
                )
            else:
                self.failed_count += records.count
                self.error = self.error or _with_row(report.error, records)
        self._look()

    def _look(self) -> None:
        with self._lock:
            is_over = self._is_whole and self.delivered_count + self.failed_count >= self.record_count
            if not is_over or self._done.is_set():
                return
            self._done.set()
        for watcher in self._watchers:
            watcher()
        self.kept = None


def _follows(last: Range, each: Range) -> bool:
    return (
        last.partition == each.partition
        and last.first_offset >= 0
        and last.first_offset + last.record_count == each.first_offset
        and (last.pid, last.generation) == (each.pid, each.generation)
        and sequence_after(last.first_sequence, last.record_count) == each.first_sequence
    )


def _with_row(error: KafkaError, records: Records) -> KafkaError:
    """The error with the row of the table in it, where the broker named the record, or refused one that was sent
    alone."""
    named = RECORD.search(error.str())
    is_alone = records.count == 1 and error.code() == KafkaError.MSG_SIZE_TOO_LARGE
    if records.rows is None or (named is None and not is_alone):
        return error
    words = error.str() if named is None else f"{error.str()[: named.start()]}{error.str()[named.end() :]}"
    words = f"row {records.rows.row(0 if named is None else int(named[1]))}: {words}"
    return KafkaError(
        error.code(), words, fatal=error.fatal(), retriable=error.retriable(), maybe_stored=error.maybe_stored()
    )


class _Rows(NamedTuple):
    """A record batch as columns."""

    key: BytesColumn | None
    value: BytesColumn | None
    headers: HeadersColumn | None
    partition: NDArray[np.int64] | None
    times: NDArray[np.int64] | None
    sizes: NDArray[np.int64]


class Piece(NamedTuple):
    rows: "_Rows"
    first_row: int
    record_count: int
    size_bytes: int


class BulkWriter:
    """One `send`."""

    def __init__(self, engine: "Engine", topic: str, data: Any) -> None:
        self.handle = BulkSend(topic)
        self._engine = engine
        self._topic: Topic
        self._handed_over = 0
        self._taken_bytes = 0
        if engine.bulk_buffers is None:
            engine.bulk_buffers = Buffers()
        self._buffers: Buffers = engine.bulk_buffers
        self._most_bytes = engine.settings.message_max_bytes
        self._target_bytes = engine.closing.most_batch_bytes
        self._batches = [self._columns(batch, at) for at, batch in _record_batches(data)]
        self.handle.record_count = sum(len(rows.sizes) for rows in self._batches)

    def know(self, topic: Topic) -> None:
        """The topic's partitions are known now."""
        self._topic = topic
        count = len(topic.partitions)
        first = 0
        for rows in self._batches:
            if rows.partition is not None and len(rows.partition) and int(rows.partition.max()) >= count:
                row = first + int(np.argmax(rows.partition >= count))
                words = f"row {row}: there is no partition {int(rows.partition[row - first])}: {topic.name} has {count}"
                raise KafkaException(KafkaError(KafkaError._UNKNOWN_PARTITION, words))
            first += len(rows.sizes)
        self._choice = random.randrange(count)

    def pieces(self) -> Iterator[Piece]:
        """The table in its order, in pieces that fill about one batch for each partition."""
        most_kbytes = self._engine.settings.queue_buffering_max_kbytes
        wanted = min(max(LEAST_PIECE_BATCHES, len(self._topic.partitions)) * self._target_bytes, MOST_PIECE_BYTES)
        wanted = max(1, min(wanted, most_kbytes * 1024 // PIECES_AT_ONCE))
        first_row = 0
        for rows in self._batches:
            ends = np.cumsum(rows.sizes)
            start, before = 0, 0
            while start < len(ends):
                stop = max(start + 1, int(np.searchsorted(ends, before + wanted, "right")))
                size_bytes = int(ends[stop - 1]) - before
                yield Piece(_cut(rows, start, stop), first_row + start, stop - start, size_bytes)
                start, before = stop, int(ends[stop - 1])
            first_row += len(ends)

    def has_room(self, piece: Piece) -> bool:
        """Whether this one may follow already, as far as the queue and this send are concerned."""
        if not self._engine.budget.has_room_for_bytes(piece.size_bytes):
            return False
        under_way_bytes = self._taken_bytes - self.handle.done_bytes
        most_bytes = max(MOST_AHEAD_BYTES, PIECES_AHEAD * piece.size_bytes)
        return under_way_bytes + piece.size_bytes <= most_bytes

    def send(self, piece: Piece) -> None:
        """Hand a piece over; its room was made."""
        places = self._topic.partitions
        parts = self._chosen(piece.rows, piece.record_count, len(places)) if len(places) > 1 else None
        if parts is None:
            self._choice = (self._choice + 1) % len(places)
            places = (places[self._choice],)
        if any(place.replay is not None for place in places):
            parts = self._offer(piece, parts, places)
        if parts is None or parts.max() >= 0:
            self._encode(piece, parts, places)

    def finish(self) -> None:
        """No piece follows, be it because one failed."""
        self.handle.finish(self._handed_over)

    # --- what a table may be

    def _columns(self, batch: pa.RecordBatch, first_row: int) -> _Rows:
        names = batch.schema.names
        _check_names(names)
        key, value = (_bytes(batch, name) for name in ("key", "value"))
        headers = None
        if "headers" in names:
            headers = _checked("headers", lambda: headers_column(batch.column("headers")))
        partition = _partitions(batch.column("partition"), first_row) if "partition" in names else None
        times = _checked("timestamp", lambda: timestamps(batch.column("timestamp"))) if "timestamp" in names else None
        if times is not None and len(times) and int(times.min()) < 0:
            raise ValueError(f"row {first_row + int(times.argmin())}: a timestamp before 1970")
        sizes = np.full(batch.num_rows, RECORD_OVERHEAD_BYTES, np.int64)
        for column in (key, value):
            if column is not None:
                sizes += np.diff(column.ends)
        if headers is not None:
            sizes += _header_sizes(headers)
        if len(sizes) and int(sizes.max()) > self._most_bytes:
            row = int(sizes.argmax())
            words = f"row {first_row + row}: {int(sizes[row])} bytes where message.max.bytes is {self._most_bytes}"
            raise KafkaException(KafkaError(KafkaError.MSG_SIZE_TOO_LARGE, words))
        return _Rows(key, value, headers, partition, times, sizes)

    # --- where rows go

    def _chosen(self, rows: _Rows, count: int, partition_count: int) -> Parts | None:
        """A partition for each row; None where they may all go anywhere together."""
        chosen: Parts = np.full(count, KEYLESS, np.int32)
        if rows.key is not None or self._engine.partitioner.places_null:
            key = rows.key
            if key is None:
                key = BytesColumn(np.zeros(count + 1, np.int32), np.empty(0, np.uint8), np.zeros(count, np.bool_))
            chosen = partitions_of(self._engine.partitioner, key.data, key.ends, partition_count, key.valid)
        if rows.partition is not None:
            chosen = np.where(rows.partition >= 0, rows.partition, chosen).astype(np.int32)
        keyless = chosen < 0
        missing = int(np.count_nonzero(keyless))
        if not missing:
            return chosen
        counter = getattr(self._topic.sticky_choice, "counter", None)
        if isinstance(counter, KeylessCounter):
            turns = counter.choose_many(missing)
            chosen[keyless] = np.arange(turns.start, turns.stop, dtype=np.int64) // counter.run % partition_count
            return chosen
        if missing == count:
            return None
        self._choice = (self._choice + 1) % partition_count
        chosen[keyless] = self._choice
        return chosen

    def _offer(self, piece: Piece, parts: Parts | None, places: Sequence[Unbatched]) -> Parts:
        """Partitions in their replay get their rows one by one; the rows of the others are returned."""
        chosen: Parts = np.zeros(piece.record_count, np.int32) if parts is None else parts.copy()
        for index, place in enumerate(places):
            if place.replay is None:
                continue
            mine = np.flatnonzero(chosen == index)
            if len(mine):
                self._take(int(piece.rows.sizes[mine].sum()), len(mine))
                self._engine.closing.put_rows(place, self._as_rows(piece.rows, mine))
                self._handed_over += len(mine)
                chosen[mine] = NO_PART
        return chosen

    def _encode(self, piece: Piece, parts: Parts | None, places: Sequence[Unbatched]) -> None:
        """All other partitions get their rows as batches."""
        rows, closing = piece.rows, self._engine.closing
        now_s = monotonic_s()
        times: Times = int(wall_s() * 1000) if rows.times is None else rows.times
        encoded = encode(
            key=rows.key,
            value=rows.value,
            headers=rows.headers,
            timestamp_ms=times,
            parts=parts,
            part_count=len(places),
            codec=closing.codec,
            level=closing.level,
            target_bytes=self._target_bytes,
            allocate=self._buffers.take,
            is_stamped_later=self._engine.settings.enable_idempotence,
        )
        batches: dict[int, list[Batch]] = {}
        counts, sizes = [0] * len(places), [0] * len(places)
        for each in encoded:
            place = places[each.part]
            records = Records(place.topic, place.partition, each.record_count, each.plain_bytes)
            records.handle = self.handle
            records.rows = TableRows(piece.first_row, parts, each.part, counts[each.part])
            counts[each.part] += each.record_count
            sizes[each.part] += each.plain_bytes
            if rows.times is not None and closing.keeps_times:
                records.times = AllGiven(each.record_count)
            data: Any = each.data
            batch = Batch(place.topic, place.partition, data, each.record_count, int(now_s * 1000), records)
            batches.setdefault(each.part, []).append(batch)
        for part, mine in batches.items():
            self._take(sizes[part], counts[part])
            self._handed_over += counts[part]
            closing.put(places[part], mine)

    def _take(self, size_bytes: int, count: int) -> None:
        self._engine.budget.take_bulk(size_bytes, count)
        self._taken_bytes += size_bytes

    def _as_rows(self, rows: _Rows, mine: NDArray[np.int64]) -> BulkRows:
        """The rows one by one, as `produce` would have them: a resumed producer compares them with the log."""
        found = BulkRows()
        found.handle = self.handle
        now_s = monotonic_s()
        for row in mine.tolist():
            found += (
                None if rows.key is None else rows.key[row],
                None if rows.value is None else rows.value[row],
                (rows.headers[row] or None) if rows.headers is not None else None,
                now_s if rows.times is None else given_time(int(rows.times[row])),
                None,
            )
        return found


def _record_batches(data: Any) -> Iterator[tuple[int, pa.RecordBatch]]:
    """(number of the first row, batch)"""
    if isinstance(data, pa.RecordBatch):
        yield 0, data
        return
    if not isinstance(data, pa.Table):
        raise TypeError(f"an Arrow table or record batch is needed, not {type(data).__name__}")
    first = 0
    for batch in data.to_batches():
        yield first, batch
        first += batch.num_rows


def _check_names(names: list[str]) -> None:
    if "value" not in names:
        raise ValueError(f"there is no column `value`, which a table to be sent needs; its columns are {names}")
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ValueError(f"a column `{twice}` is there twice")
    unknown = sorted(set(names) - COLUMNS)
    if unknown:
        known = [name for name in names if name in COLUMNS]
        raise ValueError(f"columns {unknown} cannot be sent, only {sorted(COLUMNS)}: send table.select({known})")


def _bytes(batch: pa.RecordBatch, name: str) -> BytesColumn | None:
    if name not in batch.schema.names:
        return None
    found: BytesColumn = _checked(name, lambda: bytes_column(batch.column(name)))
    return found


def _checked(name: str, read: Callable[[], Any]) -> Any:
    try:
        return read()
    except (TypeError, ValueError, AttributeError, pa.ArrowException) as error:
        raise TypeError(f"column `{name}`: {error}") from None


def _partitions(column: pa.Array, first_row: int) -> NDArray[np.int64]:
    """Null stands for: as the partitioner says."""
    if not pa.types.is_integer(column.type) and not pa.types.is_null(column.type):
        raise TypeError(f"column `partition`: integers are needed, not {column.type}")
    found: NDArray[np.int64] = column.cast(pa.int64()).fill_null(KEYLESS).to_numpy(zero_copy_only=False)
    if len(found) and int(found.min()) < KEYLESS:
        words = f"row {first_row + int(found.argmin())}: there is no partition {int(found.min())}"
        raise KafkaException(KafkaError(KafkaError._UNKNOWN_PARTITION, words))
    return found


def _header_sizes(headers: HeadersColumn) -> NDArray[np.int64]:
    ends = headers.ends.astype(np.int64)
    sizes = np.diff(ends) * HEADER_OVERHEAD_BYTES
    for column in (headers.names, headers.values):
        sizes += np.diff(column.ends.astype(np.int64)[ends])
    return sizes


def _cut(rows: _Rows, start: int, stop: int) -> _Rows:
    if start == 0 and stop == len(rows.sizes):
        return rows
    piece = slice(start, stop)

    def cells(column: BytesColumn | None) -> BytesColumn | None:
        if column is None:
            return None
        first, last = int(column.ends[start]), int(column.ends[stop])
        valid = None if column.valid is None else column.valid[piece]
        return BytesColumn(column.ends[start : stop + 1] - first, column.data[first:last], valid)

    headers = rows.headers
    if headers is not None:
        headers = HeadersColumn(headers.ends[start : stop + 1], headers.names, headers.values)
    return _Rows(
        cells(rows.key),
        cells(rows.value),
        headers,
        None if rows.partition is None else rows.partition[piece],
        None if rows.times is None else rows.times[piece],
        rows.sizes[piece],
    )
