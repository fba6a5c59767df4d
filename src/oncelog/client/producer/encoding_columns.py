"""Rows to batches by the compiled loops (extra `[columns]`)."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from oncelog.client.producer.buffers import Buffers
from oncelog.records.column_types import BytesColumn, HeadersColumn, Int64s
from oncelog.records.encode_columns import encode
from oncelog.records.key_columns import taken

__all__ = ["Buffers", "Columns", "column", "headers", "times_ms", "warm_up"]


class Columns:
    """None for a column that is null, or of headers that are missing, in every row."""

    def __init__(
        self, key: BytesColumn | None, value: BytesColumn | None, headers: HeadersColumn | None = None
    ) -> None:
        self._key, self._value, self._headers = key, value, headers

    @property
    def data_bytes(self) -> int:
        return sum(len(each.data) for each in (self._key, self._value) if each is not None)

    def encode(self, times_ms: Int64s | int, **how: Any) -> list[tuple[Any, int]]:
        """(batch, number of records) as `encode` makes them."""
        batches = encode(key=self._key, value=self._value, headers=self._headers, timestamp_ms=times_ms, **how)
        return [(each.data, each.record_count) for each in batches]


def times_ms(times: Sequence[float], wall_offset_s: float) -> Int64s:
    """Times as the accumulator has them, as milliseconds since 1970."""
    found = np.array(times)
    wall_ms = (found + wall_offset_s) * 1000
    if found.min() < 0:  # given by the user, some of them
        wall_ms = np.where(found < 0, -found, wall_ms)
    milliseconds: Int64s = wall_ms.astype(np.int64)
    return milliseconds


def headers(columns: Mapping[bytes, Sequence[bytes]]) -> HeadersColumn | None:
    """Headers of the same names in each row."""
    if not columns:
        return None
    found = [BytesColumn.of(cells, 0) for cells in columns.values()]
    count, width = len(found[0]), len(found)
    values = found[0]
    if width > 1:  # row by row
        values = taken(BytesColumn.joined(found), np.arange(count * width).reshape(width, count).T.ravel())
    ends = np.arange(0, count * width + 1, width, dtype=np.int32)
    return HeadersColumn(ends, _repeated(list(columns), count), values)


def _repeated(cells: list[bytes], times: int) -> BytesColumn:
    lengths = np.array([0, *(len(cell) for cell in cells)])
    ends = np.zeros(times * len(cells) + 1, np.int32)
    ends[1:] = (np.cumsum(lengths)[1:] + lengths.sum() * np.arange(times)[:, None]).ravel()
    return BytesColumn(ends, np.frombuffer(b"".join(cells) * times, np.uint8))


def warm_up() -> None:
    """Have the loops compiled, or loaded."""
    Columns(column([None, b"k"], 1), column([b"v", b"v"], 0)).encode(times_ms([0.0, -1.0], 0.0))


def column(cells: Sequence[bytes | None] | None, nulls: int) -> BytesColumn | None:
    """`nulls` of the cells are null; None where all are."""
    return None if cells is None else BytesColumn.of(cells, nulls)
