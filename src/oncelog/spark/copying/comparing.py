"""Whether records of two logs are the same, column by column. Pure.

Rows that lie side by side in both are compared as one piece of bytes, so it costs little more than having read them.
"""

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from oncelog.records.column_types import Bools, BytesColumn, Columns, HeadersColumn, Int64s
from oncelog.records.header import LOG_APPEND_TIME

SHOWN_BYTES = 60


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


def difference(copied: Rows, source: Rows) -> Difference | None:
    """The first pair that is not the same record; a time that the destination's log gave counts as equal to any."""
    for at, end in _stretches(copied.rows, source.rows):
        mine = slice(int(copied.rows[at]), int(copied.rows[end - 1]) + 1)
        theirs = slice(int(source.rows[at]), int(source.rows[end - 1]) + 1)
        if not _is_equal(copied.columns, mine, source.columns, theirs):
            return _first(copied.columns, mine, source.columns, theirs, at)
    return None


def _stretches(mine: Int64s, theirs: Int64s) -> Iterator[tuple[int, int]]:
    """From where to where rows follow one another on both sides."""
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


def _first(one: Columns, rows: slice, two: Columns, others: slice, index: int) -> Difference:
    for at in range(rows.stop - rows.start):
        words = _words(one, rows.start + at, two, others.start + at)
        if words:
            return Difference(index + at, words)
    raise AssertionError("rows that differ have a first one that does")


def _words(one: Columns, row: int, two: Columns, other: int) -> str:
    for name in ("key", "value", "headers", "timestamp_ms"):
        here, there = getattr(one, name)[row], getattr(two, name)[other]
        if name == "timestamp_ms":
            if not _same_times(one, slice(row, row + 1), two, slice(other, other + 1))[0]:
                return f"the timestamp is {there} in the source and {here} in the copy"
        elif here != there:
            return f"the {name} is {_shown(there)} in the source and {_shown(here)} in the copy"
    return ""


def _shown(cell: object) -> str:
    text = repr(cell)
    return text if len(text) <= SHOWN_BYTES else f"{text[:SHOWN_BYTES]}..."
