"""Columns of keys and what is known by them, without a Python object for each row (extra `[columns]`)."""

from collections.abc import Sequence
from typing import Final, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from oncelog.records import key_loops as loops
from oncelog.records.column_types import MOST_BYTES, Bytes, BytesColumn, Int32s, Int64s, read_only

T = TypeVar("T", bound=np.generic)

FEWEST_SLOTS: Final = 1 << 10
MOST_SORTED_BY_DIGITS: Final = 1 << 16  # numpy sorts numbers of 16 bits by their digits, which takes a fifth


class CannotBeNumbered(Exception):
    """Too many keys meet in one place of the table, as only those do that somebody has chosen; or they are too long."""


class Numbered(NamedTuple):
    numbers: Int32s  # of each row
    distinct: Int32s  # in the order in which they came first
    hits: Int32s  # how often each of these did


class KeyTable:
    """A number for each key: from 0 on, in the order in which they came."""

    def __init__(self) -> None:
        self._count = 0
        self._turn = 0
        self._ends = np.zeros(1, np.int32)
        self._data = np.empty(0, np.uint8)
        self._seen = np.empty(0, np.int64)
        self._hits = np.empty(0, np.int32)
        self._slots = np.zeros(FEWEST_SLOTS, np.uint64)
        self._seed = np.uint64(id(self._slots))  # another one in each process

    def __len__(self) -> int:
        return self._count

    @property
    def keys(self) -> BytesColumn:
        """The keys in the order of their numbers."""
        return BytesColumn(self._ends[: self._count + 1], self._data)

    def number(self, keys: BytesColumn) -> Numbered:
        """None of them is null. Raises CannotBeNumbered; those that were new until then stay."""
        rows = len(keys)
        self._make_room(rows, keys.size_bytes)
        self._turn += 1
        numbers, distinct = np.empty(rows, np.int32), np.empty(rows, np.int32)
        self._count, found, done = loops.number_keys(
            *_read(keys), self._seed, self._slots, self._ends, self._data, self._count, self._seen, self._turn,
            numbers, distinct, self._hits,
        )  # fmt: skip
        if done < rows:
            raise CannotBeNumbered(f"{loops.MOST_PROBES} keys meet in one place")
        distinct = distinct[:found]
        return Numbered(numbers, distinct, self._hits[distinct])

    def forget_from(self, number: int) -> None:
        """Keys that came last."""
        self._count = number
        self._place_all(len(self._slots))

    def _place_all(self, slots: int) -> None:
        self._slots = np.zeros(slots, np.uint64)
        loops.place_again(self._slots, read_only(self._ends), read_only(self._data), self._count, self._seed)

    def _make_room(self, rows: int, size_bytes: int) -> None:
        """Make room for this many new keys."""
        most, most_bytes = self._count + rows, int(self._ends[self._count]) + size_bytes
        if most_bytes > MOST_BYTES:
            raise CannotBeNumbered(f"the keys have more than {MOST_BYTES} bytes")
        if most > len(self._seen):
            room = max(most, 2 * len(self._seen))
            self._ends, self._seen = _larger(self._ends, room + 1), _larger(self._seen, room)
            self._hits = _larger(self._hits, room)
        if most_bytes > len(self._data):
            self._data = _larger(self._data, min(max(most_bytes, 2 * len(self._data)), MOST_BYTES))
        if 2 * most > len(self._slots):
            self._place_all(1 << (2 * most - 1).bit_length())


def _larger(array: NDArray[T], room: int) -> NDArray[T]:
    found = np.empty(room, array.dtype)
    found[: len(array)] = array
    return found


def _read(column: BytesColumn) -> tuple[Int32s, Bytes]:
    if column.ends[-1] > MOST_BYTES:
        raise CannotBeNumbered(f"the column has more than {MOST_BYTES} bytes")
    ends = column.ends if column.ends.dtype == np.int32 else column.ends.astype(np.int32)
    return read_only(ends), read_only(column.data)


def taken(column: BytesColumn, rows: Int64s | Int32s) -> BytesColumn:
    """These rows of a column."""
    ends = np.zeros(len(rows) + 1, np.int32)
    np.cumsum(np.diff(column.ends)[rows], out=ends[1:])
    data = np.empty(int(ends[-1]), np.uint8)
    loops.gather(*_read(column), read_only(np.asarray(rows, np.int64)), read_only(ends), data)
    return BytesColumn(ends, data, None if column.valid is None else column.valid[rows])


def taken_behind(prefix: bytes, column: BytesColumn, rows: Int64s | Int32s) -> BytesColumn:
    """These rows of a column without nulls, each with these bytes before it."""
    ends = np.zeros(len(rows) + 1, np.int32)
    np.cumsum(np.diff(column.ends)[rows] + len(prefix), out=ends[1:])
    data, before = np.empty(int(ends[-1]), np.uint8), np.frombuffer(prefix, np.uint8)
    loops.gather_behind(read_only(before), *_read(column), read_only(np.asarray(rows, np.int64)), read_only(ends), data)
    return BytesColumn(ends, data)


def as_text(numbers: Int64s) -> BytesColumn:
    """The numbers as text, in decimal."""
    ends = np.zeros(len(numbers) + 1, np.int32)
    data = np.empty(len(numbers) * loops.MOST_DIGITS, np.uint8)
    used = loops.write_numbers(read_only(numbers), ends, data)
    return BytesColumn(ends, data[:used].copy())


def partitions_of(keys: BytesColumn, partitions: int) -> Int32s:
    """The partitions of these keys, as Java's producer places them. No key is null."""
    found = np.empty(len(keys), np.int32)
    loops.place_keys(*_read(keys), partitions, found)
    return found


def by_part(parts: Int32s, part_count: int) -> Sequence[Int64s]:
    """The rows of each part, in their order."""
    small = parts.astype(np.uint16) if part_count <= MOST_SORTED_BY_DIGITS else parts
    order = np.argsort(small, kind="stable")
    return np.split(order, np.cumsum(np.bincount(small, minlength=part_count))[:-1])


def warm_up() -> None:
    """Have the loops compiled, or loaded."""
    table = KeyTable()
    keys = BytesColumn.of([b"a", b"bc", b"a"])
    table.number(keys)
    table.number(BytesColumn.of([b"%d" % each for each in range(FEWEST_SLOTS)]))
    by_part(partitions_of(taken(table.keys, table.number(keys).numbers), 2), 2)
    taken_behind(b"p", table.keys, np.array([0], np.int64))
    as_text(np.array([0], np.int64))
