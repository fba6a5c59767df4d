"""Simulated time: a clock that jumps from one event to the next."""

from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count
from typing import Any

from oncelog.clock import Now

WALL_MS = 1_700_000_000_000


class Events:
    def __init__(self, now_ms: int) -> None:
        self.now_ms = now_ms
        self._events: list[tuple[int, int, int, Callable[[], Any]]] = []
        self._order = count()

    @property
    def now(self) -> Now:
        return Now(WALL_MS + self.now_ms, self.now_ms)

    def at(self, at_ms: int, rank: int, what: Callable[[], Any]) -> None:
        """Of what happens in the same millisecond the lower rank comes first, then what was planned first."""
        heappush(self._events, (at_ms, rank, next(self._order), what))

    def after(self, delay_ms: int, what: Callable[[], Any]) -> None:
        self.at(self.now_ms + delay_ms, 0, what)

    def run_until(self, end_ms: int, is_over: Callable[[], bool] = lambda: False) -> None:
        while self._events and self._events[0][0] <= end_ms:
            at_ms, _, _, what = heappop(self._events)
            self.now_ms = max(self.now_ms, at_ms)
            what()
            if is_over():
                return
        self.now_ms = max(self.now_ms, end_ms)
