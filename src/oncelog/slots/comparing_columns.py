"""The first of many records that is not the same, column by column (extra `[columns]`).

Rows that lie side by side in both are compared as one piece of bytes, so it costs little more than having read them.
"""

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from oncelog.records.column_types import Bools, BytesColumn, Columns, HeadersColumn, Int64s
from oncelog.records.header import LOG_APPEND_TIME
from oncelog.slots import comparing


class Rows(NamedTuple):
    """Some rows of columns, in order."""

    columns: Columns
    rows: Int64s

    @property
    def offsets(self) -> Int64s:
        assert self.columns.offset is not None
        found: Int64s = self.columns.offset[self.rows]
        return found


class Difference(NamedTuple):
    pair: int  # which of them
    words: str


def first_difference(stand: Rows, came: Rows) -> Difference | None:
    """The first pair that is not the same record; a time that the log gave to what stands is as good as any."""
    for at, end in _stretches(stand.rows, came.rows):
        mine = slice(int(stand.rows[at]), int(stand.rows[end - 1]) + 1)
        theirs = slice(int(came.rows[at]), int(came.rows[end - 1]) + 1)
        if not _is_equal(stand.columns, mine, came.columns, theirs):
            return _first(stand.columns, mine, came.columns, theirs, at)
    return None


def _stretches(mine: Int64s, theirs: Int64s) -> Iterator[tuple[int, int]]:
    """The stretches in which rows follow one another on both sides."""
    if not len(mine):
        return
    breaks = np.flatnonzero((np.diff(mine) != 1) | (np.diff(theirs) != 1)) + 1
    bounds = [0, *breaks.tolist(), len(mine)]
    yield from pairwise(bounds)


def _is_equal(one: Columns, rows: slice, two: Columns, others: slice) -> bool:
    assert one.key is not None and one.value is not None and one.headers is not None
    assert two.key is not None and two.value is not None and two.headers is not None
    return (
        _same_cells(one.key, rows, two.key, others)
        and _same_cells(one.value, rows, two.value, others)
        and _same_headers(one.headers, rows, two.headers, others)
        and bool(np.all(_same_times(one, rows, two, others)))
    )


def _same_cells(one: BytesColumn, rows: slice, two: BytesColumn, others: slice) -> bool:
    ends, other_ends = one.ends[rows.start : rows.stop + 1], two.ends[others.start : others.stop + 1]
    return (
        np.array_equal(ends - ends[0], other_ends - other_ends[0])
        and np.array_equal(one.data[ends[0] : ends[-1]], two.data[other_ends[0] : other_ends[-1]])
        and np.array_equal(_valid(one, rows), _valid(two, others))
    )


def _valid(column: BytesColumn, rows: slice) -> Bools:
    return np.ones(rows.stop - rows.start, np.bool_) if column.valid is None else column.valid[rows]


def _same_headers(one: HeadersColumn, rows: slice, two: HeadersColumn, others: slice) -> bool:
    ends, other_ends = one.ends[rows.start : rows.stop + 1], two.ends[others.start : others.stop + 1]
    if not np.array_equal(ends - ends[0], other_ends - other_ends[0]):
        return False
    pairs, other_pairs = slice(int(ends[0]), int(ends[-1])), slice(int(other_ends[0]), int(other_ends[-1]))
    return _same_cells(one.names, pairs, two.names, other_pairs) and _same_cells(
        one.values, pairs, two.values, other_pairs
    )


def _same_times(one: Columns, rows: slice, two: Columns, others: slice) -> Bools:
    assert one.timestamp_ms is not None and two.timestamp_ms is not None
    same: Bools = one.timestamp_ms[rows] == two.timestamp_ms[others]
    if np.any(one.batches.attributes & LOG_APPEND_TIME):
        same = same | (one.timestamp_type()[rows] == 1)
    return same


def _first(stand: Columns, rows: slice, came: Columns, others: slice, index: int) -> Difference:
    for at in range(rows.stop - rows.start):
        words = comparing.difference(
            _content(came, others.start + at), _content(stand, rows.start + at, may_be_the_logs=True)
        )
        if words:
            return Difference(index + at, words)
    raise AssertionError("rows that differ have a first one that does")


def _content(columns: Columns, row: int, *, may_be_the_logs: bool = False) -> comparing.Content:
    assert columns.key is not None and columns.value is not None and columns.headers is not None
    assert columns.timestamp_ms is not None
    is_the_logs = may_be_the_logs and columns.timestamp_type()[row] == 1
    time_ms = None if is_the_logs else int(columns.timestamp_ms[row])
    return comparing.Content(columns.key[row], columns.value[row], columns.headers[row] or (), time_ms)
