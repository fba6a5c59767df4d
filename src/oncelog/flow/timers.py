"""The keys that are due, in the order of time and key. New timers are in a heap; all others are in sorted runs, each
in one piece. So one that is due tomorrow is its key and 16 bytes, and nothing looks at it until then.
"""

from array import array
from collections.abc import Iterable, Iterator
from heapq import heapify, heappop, heappush, heapreplace
from itertools import accumulate
from math import inf
from typing import Final

RUN: Final = 8_192
TIME_BYTES: Final = 8
ZERO: Final = 1 << 63  # is added to times, so that their bytes are in their order

Timer = tuple[int, bytes]


def check_time(time_ms: object) -> None:
    """Check the time before it is kept: another kind of number could not be read back."""
    if type(time_ms) is not int or not -ZERO <= time_ms < ZERO:
        raise ValueError(f"a timer for {time_ms!r}: give it a whole number of milliseconds, as an int of 64 bits")


def written(time_ms: int, key: bytes) -> bytes:
    return (time_ms + ZERO).to_bytes(TIME_BYTES, "big") + key


def read(entry: bytes) -> Timer:
    return int.from_bytes(entry[:TIME_BYTES], "big") - ZERO, entry[TIME_BYTES:]


class Run:
    def __init__(self, entries: Iterable[bytes]) -> None:
        ordered = sorted(entries)
        self._piece = b"".join(ordered)
        self._ends = array("Q", accumulate(map(len, ordered)))
        self._at = self._taken = 0  # so far it is taken, in bytes and in entries

    @property
    def first(self) -> bytes:
        return self._piece[self._at : self._ends[self._taken]]

    def take(self) -> None:
        self._at = self._ends[self._taken]
        self._taken += 1

    @property
    def is_half_taken(self) -> bool:
        return self._taken * 2 >= len(self._ends)

    def rest(self) -> Iterator[bytes]:
        while self._taken < len(self._ends):
            yield self.first
            self.take()


class Timers:
    def __init__(self) -> None:
        self.first_ms: float = inf  # the next one
        self._last: list[bytes] = []  # a heap
        self._runs: list[tuple[bytes, int, Run]] = []  # a heap of how they begin, and of numbers that differ
        self._begun = 0

    def push(self, time_ms: int, key: bytes) -> None:
        heappush(self._last, written(time_ms, key))
        if time_ms < self.first_ms:
            self.first_ms = time_ms
        if len(self._last) > RUN:
            self._begin_run()

    @property
    def first(self) -> Timer | None:
        entry = self._first
        return None if entry is None else read(entry)

    def pop(self) -> Timer:
        entry = self._first
        assert entry is not None
        if self._last and self._last[0] is entry:
            heappop(self._last)
        else:
            self._take()
        first = self._first
        self.first_ms = inf if first is None else read(first)[0]
        return read(entry)

    @property
    def _first(self) -> bytes | None:
        if self._runs and not (self._last and self._last[0] <= self._runs[0][0]):
            return self._runs[0][0]
        return self._last[0] if self._last else None

    def _begin_run(self) -> None:
        run, self._last = Run(self._last), []
        self._begun += 1
        heappush(self._runs, (run.first, self._begun, run))

    def _take(self) -> None:
        """Take from the first run. What is left of one goes back before few keep a large piece."""
        _, number, run = self._runs[0]
        run.take()
        if not run.is_half_taken:
            heapreplace(self._runs, (run.first, number, run))
            return
        heappop(self._runs)
        self._last.extend(run.rest())
        heapify(self._last)
        if len(self._last) > RUN:
            self._begin_run()
