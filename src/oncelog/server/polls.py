"""Fetches that wait at a partition, each until so much was appended there: one that would find too little sleeps on."""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

from oncelog.server.turns import TURN_MS

NEVER: Final = 1 << 63
MOST_AWAITED: Final = 1_000_000  # partitions, of all fetches that wait: some 350 bytes each


class Polls:
    """A look at those that wait costs nothing until the first of them has enough."""

    __slots__ = ("_least_bytes", "waiting")

    def __init__(self) -> None:
        self.waiting: dict[Callable[[], None], int] = {}
        self._least_bytes = NEVER  # no more than the least that one of them waits for

    def __len__(self) -> int:
        return len(self.waiting)

    def add(self, poll: Callable[[], None], appended_bytes: int) -> None:
        self.waiting[poll] = appended_bytes
        self._least_bytes = min(self._least_bytes, appended_bytes)

    def discard(self, poll: Callable[[], None]) -> None:
        self.waiting.pop(poll, None)

    def wake(self, appended_bytes: int) -> None:
        """Call those, and forget them, that wait for no more than this."""
        if appended_bytes < self._least_bytes:
            return
        due = [poll for poll, wanted_bytes in self.waiting.items() if wanted_bytes <= appended_bytes]
        for poll in due:
            del self.waiting[poll]
        self._least_bytes = min(self.waiting.values(), default=NEVER)
        for poll in due:
            poll()


class Looks:
    """The work of woken readers: a thousand may be woken at once, so it is done in turns. They have turns of
    their own, since long work would keep readers waiting."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._due: deque[Callable[[], None]] = deque()
        self._is_scheduled = False
        self.awaited = 0  # partitions

    def begin_wait(self, partitions: int) -> bool:
        """Whether a fetch that names `partitions` of them may wait; then `end_wait` follows."""
        may_wait = self.awaited + partitions <= MOST_AWAITED
        self.awaited += partitions if may_wait else 0
        return may_wait

    def end_wait(self, partitions: int) -> None:
        self.awaited -= partitions

    def add(self, look: Callable[[], None]) -> None:
        """Add a look, for the end of this round of the loop: what was appended may be followed by more."""
        self._due.append(look)
        if not self._is_scheduled:
            self._schedule()

    def _schedule(self) -> None:
        self._is_scheduled = True
        asyncio.get_running_loop().call_soon(self._take_turn)

    def _take_turn(self) -> None:
        self._is_scheduled = False
        end_ms = self._now_ms() + TURN_MS
        try:
            while self._due and self._now_ms() < end_ms:
                self._due.popleft()()
        finally:
            if self._due and not self._is_scheduled:
                self._schedule()
