"""Connections that have not proven yet who they are. Their number has a bound, and so has the time of each.

Where there are too many, one of the host that has most of them is closed: who opens three hundred and says nothing
shuts out nobody else.
"""

import asyncio
from collections.abc import Callable
from typing import Protocol

from oncelog.server.places import Places

MOST_STRANGERS = 512
STRANGER_MS = 30_000
LOOK_S = 1.0


class Stranger(Protocol):
    client_host: str

    def turn_away(self, why: str) -> None: ...


class Strangers:
    def __init__(self, now_ms: Callable[[], int], most: int = MOST_STRANGERS) -> None:
        self._now_ms = now_ms
        self._most = most
        self._since: dict[Stranger, int] = {}  # the oldest first
        self._places: Places[Stranger] = Places()
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._since)

    def add(self, stranger: Stranger) -> None:
        if len(self._since) >= self._most:
            self.make_room()
        self._since[stranger] = self._now_ms()
        self._places.add(stranger)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(LOOK_S, self._look)

    def discard(self, stranger: Stranger) -> None:
        if self._since.pop(stranger, None) is not None:
            self._places.discard(stranger)

    def make_room(self) -> bool:
        """Close the oldest one of the host that has most; False where there is none."""
        oldest = next(iter(self._places.most()), None)
        if oldest is None:
            return False
        self._turn_away(oldest, "others want to come in, and it has not proven who it is")
        return True

    def _look(self) -> None:
        self._timer = None
        self.close_late(self._now_ms())
        if self._since:
            self._timer = asyncio.get_running_loop().call_later(LOOK_S, self._look)

    def close_late(self, now_ms: int) -> None:
        for stranger, since_ms in list(self._since.items()):
            if now_ms - since_ms < STRANGER_MS:
                break
            self._turn_away(stranger, f"it has not proven within {STRANGER_MS // 1000} s who it is")

    def _turn_away(self, stranger: Stranger, why: str) -> None:
        self.discard(stranger)
        stranger.turn_away(why)
