"""Leased pids in a circular buffer, sorted by pid: found by binary search, expired from the old end only.

Pids are issued roughly in order, so a new one nearly always goes to the end; a late one moves the few that overtook it.
No hole is ever punched: an entry leaves only when it is the oldest pid, which keeps some longer than they need and
none shorter. Pids run from 1 to 2^32 - 1 and then from 1 again, so they are unrolled to ever-growing numbers first.
"""

from array import array
from bisect import bisect_left
from collections.abc import Iterator

from oncelog.producers.entries import growth

PIDS = (1 << 32) - 1  # how many there are: 0 is nobody's
_HALF = PIDS // 2


class Ring:
    __slots__ = ("_capacity", "_count", "_newest", "_pids", "_rows", "_start")

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._pids = array("q")  # unrolled
        self._rows = array("I")
        self._start = 0
        self._count = 0
        self._newest = 0  # the greatest unrolled pid, or where the last one was

    def __len__(self) -> int:
        return self._count

    def __reversed__(self) -> Iterator[tuple[int, int]]:
        """(pid, row), newest pid first."""
        return map(self.at, range(self._count - 1, -1, -1))

    def at(self, place: int) -> tuple[int, int]:
        """(pid, row), counted from the oldest."""
        at = (self._start + place) % len(self._pids)
        return (self._pids[at] - 1) % PIDS + 1, self._rows[at]

    def pids(self) -> Iterator[int]:
        """The pids that are there now, oldest first."""
        return ((unrolled - 1) % PIDS + 1 for unrolled in self.places()[0])

    def find(self, pid: int) -> int:
        """The pid's row, or -1."""
        if not self._count:
            return -1
        unrolled = self._unroll(pid)
        at = self._position(unrolled)
        if at == self._count:
            return -1
        place = (self._start + at) % len(self._pids)
        return self._rows[place] if self._pids[place] == unrolled else -1

    def insert(self, pid: int, row: int) -> None:
        """The pid must not be there yet."""
        if self._count == len(self._pids):
            self._grow()
        unrolled = self._unroll(pid)
        at = self._position(unrolled) if self._count else 0
        size = len(self._pids)
        if at == 0 and self._count:
            self._start = (self._start - 1) % size
        else:
            self._shift_up(at)
        place = (self._start + at) % size
        self._pids[place] = unrolled
        self._rows[place] = row
        self._count += 1
        self._newest = self._pids[(self._start + self._count - 1) % size]

    def places(self) -> "tuple[array[int], array[int]]":
        """The unrolled pids, oldest first, and their rows."""
        start, end, size = self._start, self._start + self._count, len(self._pids)
        if end <= size:
            return self._pids[start:end], self._rows[start:end]
        return self._pids[start:] + self._pids[: end - size], self._rows[start:] + self._rows[: end - size]

    def put_back(self, pids: "array[int]", rows: "array[int]") -> None:
        """Replace the whole content by what `places` returned."""
        self._pids, self._rows = pids, rows
        self._start, self._count = 0, len(pids)
        self._newest = pids[-1] if pids else 0

    def oldest_row(self) -> int:
        return self._rows[self._start]

    def pop_oldest(self) -> int:
        """Take the oldest pid out; its row."""
        row = self._rows[self._start]
        self._start = (self._start + 1) % len(self._pids)
        self._count -= 1
        return row

    def size_bytes(self) -> int:
        return len(self._pids) * (self._pids.itemsize + self._rows.itemsize)

    def _unroll(self, pid: int) -> int:
        if not self._count:
            return pid
        newest = self._newest
        return newest + (pid - newest + _HALF) % PIDS - _HALF

    def _position(self, unrolled: int) -> int:
        """The number of entries that are older than this pid."""
        pids, start = self._pids, self._start
        size = len(pids)
        end = start + self._count
        if end <= size:
            return bisect_left(pids, unrolled, start, end) - start
        if pids[size - 1] >= unrolled:
            return bisect_left(pids, unrolled, start, size) - start
        return bisect_left(pids, unrolled, 0, end - size) + size - start

    def _shift_up(self, at: int) -> None:
        """Make room before the entry at this position, by moving everything newer one place on."""
        if at == self._count:
            return
        if self._start + self._count >= len(self._pids):  # they reach over the end of the arrays
            self._begin_at_zero()
        first, last = self._start + at, self._start + self._count
        for column in (self._pids, self._rows):
            column[first + 1 : last + 1] = column[first:last]

    def _begin_at_zero(self) -> None:
        start, self._start = self._start, 0
        self._pids = self._pids[start:] + self._pids[:start]
        self._rows = self._rows[start:] + self._rows[:start]

    def _grow(self) -> None:
        self._begin_at_zero()
        more = growth(len(self._pids), self._capacity)
        self._pids += array("q", bytes(8 * more))
        self._rows += array("I", bytes(4 * more))
