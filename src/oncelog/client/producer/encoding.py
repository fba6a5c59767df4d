"""Rows to batches: by the compiled loops where the extra `[columns]` is installed, otherwise in pure Python.

Importing the compiled loops takes a second and a hundred megabytes, which a program that sends a few records need not
pay. So they are fetched, in a thread of their own, by the first batch that is large enough to be worth it.
"""

import importlib.util
from collections.abc import Mapping, Sequence
from itertools import repeat
from typing import Any, Final, NamedTuple

from oncelog.client.in_background import InBackground
from oncelog.client.producer.accumulator import (
    CALLBACK,
    COLUMNS,
    HEADERS,
    KEY,
    RECORD_OVERHEAD_BYTES,
    TIME,
    VALUE,
    headers_bytes,
    time_ms,
)
from oncelog.client.producer.delivery import Records
from oncelog.records.build import build_batch
from oncelog.records.codecs import DEFAULT_LEVEL

WORTH_COMPILED_RECORDS: Final = 50  # below that a call into the loops costs more than pure Python
WORTH_IMPORT_RECORDS: Final = 2_000
MOST_KEPT_BYTES: Final = 16 << 20  # of the memory of batches, half of which is ever written to
# Times of one batch that lie further apart than this take more room than is counted for a record.
NEAR_MS: Final = 1 << 20
FAR_BYTES: Final = 8
ONE_BATCH_BYTES: Final = (1 << 31) - 1


class Encoded(NamedTuple):
    data: bytearray
    records: Records


class Encoder:
    """`target_bytes` is the most that a batch may have before compression, unless one record alone has more. Batches
    that are stamped later need no CRC before."""

    def __init__(
        self, codec: int, target_bytes: int, level: int = DEFAULT_LEVEL, *, is_stamped_later: bool = False
    ) -> None:
        self._codec = codec
        self._level = level
        self._target_bytes = target_bytes
        self._is_stamped_later = is_stamped_later
        self._buffers: Any = None

    def encode(
        self, topic: str, partition: int, rows: list[Any], wall_offset_s: float, *, keeps_times: bool = False
    ) -> list[Encoded]:
        """The batches of these rows, almost always one, with what is to be reported of each."""
        cells = _cells(rows)
        loops = compiled_loops() if cells.row_count >= WORTH_COMPILED_RECORDS else None
        if loops is not None and cells.headers is None:
            if self._buffers is None:
                self._buffers = loops.Buffers(MOST_KEPT_BYTES)
            columns = loops.Columns(
                loops.column(cells.keys, cells.null_keys), loops.column(cells.values, cells.null_values)
            )
            size_bytes = cells.row_count * RECORD_OVERHEAD_BYTES + columns.data_bytes
            records = _records(topic, partition, cells, size_bytes, wall_offset_s)
            records.times = cells.times if keeps_times else records.times
            parts = columns.encode(
                times_ms=loops.times_ms(cells.times, wall_offset_s),
                codec=self._codec,
                level=self._level,
                target_bytes=self._target_bytes,
                is_stamped_later=self._is_stamped_later,
                allocate=self._buffers.take,
            )
            return _paired(parts, records)
        records = _records(topic, partition, cells, _size_bytes(cells), wall_offset_s)
        records.times = cells.times if keeps_times else records.times
        if loops is None and cells.row_count >= WORTH_IMPORT_RECORDS:
            fetch_compiled_loops()
        return _paired(self._in_python(cells, wall_offset_s, records.size_bytes), records)

    @staticmethod
    def records(topic: str, partition: int, rows: list[Any], wall_offset_s: float) -> Records:
        """The records that a report about these rows names, with the size that they count against the budget."""
        cells = _cells(rows)
        return _records(topic, partition, cells, _size_bytes(cells), wall_offset_s)

    def _in_python(self, cells: "_Cells", wall_offset_s: float, size_bytes: int) -> list[tuple[bytearray, int]]:
        nothing: list[Any] = [None] * cells.row_count
        keys, values, headers = cells.keys or nothing, cells.values or nothing, cells.headers or nothing
        times_ms = [time_ms(each, wall_offset_s) for each in cells.times]
        rows = list(zip(keys, values, headers, times_ms, strict=True))
        is_wide = max(times_ms) - min(times_ms) > NEAR_MS
        overhead_bytes = RECORD_OVERHEAD_BYTES + (FAR_BYTES if is_wide else 0)
        if size_bytes + cells.row_count * (overhead_bytes - RECORD_OVERHEAD_BYTES) <= self._target_bytes:
            return [(build_batch(rows, codec=self._codec, level=self._level), len(rows))]
        parts = []
        for first, last in _pieces(keys, values, headers, overhead_bytes, self._target_bytes):
            parts.append((build_batch(rows[first:last], codec=self._codec, level=self._level), last - first))
        return parts


class BatchEncoder:
    """One batch of columns, whose records all have the same time and headers of the same names. It is stamped later."""

    def __init__(self, codec: int, level: int = DEFAULT_LEVEL) -> None:
        self._codec = codec
        self._level = level
        self._buffers: Any = None

    def encode(
        self,
        keys: Sequence[bytes | None],
        values: Sequence[bytes | None],
        headers: Mapping[bytes, Sequence[bytes]],
        timestamp_ms: int,
    ) -> bytearray:
        count = len(keys)
        loops = compiled_loops() if count >= WORTH_COMPILED_RECORDS else None
        if loops is None:
            columns = [[(name, cell) for cell in cells] for name, cells in headers.items()]
            heads = zip(*columns, strict=True) if columns else repeat(())
            rows = [(key, value, each, timestamp_ms) for key, value, each in zip(keys, values, heads, strict=False)]
            batch = build_batch(rows, codec=self._codec, level=self._level)
            if count >= WORTH_IMPORT_RECORDS:
                fetch_compiled_loops()  # behind it, as it would wait for them
            return batch
        if self._buffers is None:
            self._buffers = loops.Buffers(MOST_KEPT_BYTES)
        sides = [
            loops.column(None if (nulls := cells.count(None)) == count else cells, nulls) for cells in (keys, values)
        ]
        data: bytearray
        ((data, _),) = loops.Columns(*sides, loops.headers(headers)).encode(
            times_ms=timestamp_ms,
            codec=self._codec,
            level=self._level,
            target_bytes=ONE_BATCH_BYTES,
            is_stamped_later=True,
            allocate=self._buffers.take,
        )
        return data


class _Cells(NamedTuple):
    """The columns of some rows; None where a column is null in every row."""

    row_count: int
    keys: list[bytes | None] | None
    values: list[bytes | None] | None
    headers: list[Any] | None
    times: list[float]
    callbacks: list[Any] | None
    null_keys: int  # how many
    null_values: int


def _cells(rows: list[Any]) -> _Cells:
    count = len(rows) // COLUMNS
    columns = rows[KEY::COLUMNS], rows[VALUE::COLUMNS], rows[HEADERS::COLUMNS], rows[CALLBACK::COLUMNS]
    nulls = [cells.count(None) for cells in columns]
    keys, values, headers, callbacks = (
        None if missing == count else cells for cells, missing in zip(columns, nulls, strict=True)
    )
    return _Cells(count, keys, values, headers, rows[TIME::COLUMNS], callbacks, nulls[0], nulls[1])


def _size_bytes(cells: _Cells) -> int:
    size_bytes = cells.row_count * RECORD_OVERHEAD_BYTES
    size_bytes += sum(headers_bytes(each) for each in cells.headers or () if each is not None)
    return size_bytes + sum(map(len, filter(None, cells.keys or ()))) + sum(map(len, filter(None, cells.values or ())))


def _records(topic: str, partition: int, cells: _Cells, size_bytes: int, wall_offset_s: float) -> Records:
    records = Records(topic, partition, cells.row_count, size_bytes)
    if cells.callbacks is not None:
        records.keys, records.values, records.headers = cells.keys, cells.values, cells.headers
        records.times, records.callbacks = cells.times, cells.callbacks
    records.wall_offset_s = wall_offset_s
    return records


def _pieces(
    keys: Sequence[Any], values: Sequence[Any], headers: Sequence[Any], overhead_bytes: int, most_bytes: int
) -> list[tuple[int, int]]:
    """The beginning and end of each batch, so that none is estimated to be too large."""
    pieces, first, size_bytes = [], 0, 0
    for at, (key, value, each) in enumerate(zip(keys, values, headers, strict=True)):
        row = overhead_bytes + len(key or b"") + len(value or b"") + (headers_bytes(each) if each else 0)
        if at > first and size_bytes + row > most_bytes:
            pieces.append((first, at))
            first, size_bytes = at, 0
        size_bytes += row
    pieces.append((first, len(values)))
    return pieces


def _paired(parts: list[tuple[bytearray, int]], records: Records) -> list[Encoded]:
    encoded = []
    for data, count in parts:
        if count == records.count:
            encoded.append(Encoded(data, records))
            break
        mine, records = records.cut(count)
        encoded.append(Encoded(data, mine))
    return encoded


# --- the compiled loops, once somebody needs them


def compiled_loops() -> Any:
    return _loops.found


def fetch_compiled_loops(*, wait: bool = False) -> None:
    """Import them and run them once; a process does this at most once, and not at all without the extra."""
    _loops.fetch(wait=wait)


def _fetch() -> Any:
    if importlib.util.find_spec("numba") is None or importlib.util.find_spec("numpy") is None:
        return None
    from oncelog.client.producer import encoding_columns

    encoding_columns.warm_up()
    return encoding_columns


_loops: Final = InBackground(_fetch)
