"""Connections that have not come to an understanding about TLS yet: what all of them together may cost.

A step of a handshake takes up to a millisecond of the processor, so steps take turns with all long work. Who does not
get on within `HANDSHAKE_MS` is gone, and when too many try at once the one that has tried longest: a crowd that only
opens connections must not keep others out.
"""

import asyncio
from typing import Final, Protocol

from oncelog.clock import Clock
from oncelog.server.turns import Turns

HANDSHAKE_MS: Final = 10_000
MOST_UNFINISHED: Final = 1_000
LOOK_S: Final = 0.5


class Unfinished(Protocol):
    def step(self) -> None:
        """Go on with what has arrived."""

    def give_up(self, reason: str) -> None: ...


class Handshakes:
    def __init__(self, clock: Clock, turns: Turns, most: int = MOST_UNFINISHED) -> None:
        self._clock = clock
        self._turns = turns
        self._most = most
        self._since_ms: dict[Unfinished, int] = {}  # the oldest first
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._since_ms)

    def begin(self, one: Unfinished) -> None:
        if len(self._since_ms) >= self._most:
            oldest = next(iter(self._since_ms))
            self.end(oldest)
            oldest.give_up(f"its TLS handshake was not over when {self._most} others had begun one")
        self._since_ms[one] = self._clock.now().monotonic_ms
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(LOOK_S, self._look)

    def end(self, one: Unfinished) -> None:
        self._since_ms.pop(one, None)

    def step(self, one: Unfinished) -> None:
        """At once, or when its turn has come."""
        if self._turns.is_over():
            self._turns.wait(one.step)
        else:
            one.step()

    def give_up_all(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for one in list(self._since_ms):
            self.end(one)
            one.give_up("the server stops")

    def _look(self) -> None:
        self._timer = None
        before_ms = self._clock.now().monotonic_ms - HANDSHAKE_MS
        for one, since_ms in list(self._since_ms.items()):
            if since_ms > before_ms:
                break
            self.end(one)
            one.give_up(f"its TLS handshake was not over after {HANDSHAKE_MS // 1000} s")
        if self._since_ms:
            self._timer = asyncio.get_running_loop().call_later(LOOK_S, self._look)
