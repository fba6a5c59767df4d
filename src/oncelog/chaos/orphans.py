"""Processes that are stopped (SIGSTOP) until another has taken their place, and then go on behind its back."""

import os
import signal
from collections.abc import Sequence
from contextlib import suppress
from enum import Enum, auto
from typing import Final

from oncelog.chaos.process_tree import ticks_of

DRAIN_S: Final = 1.0  # what was on its way when it was stopped has arrived
STILL_S: Final = 2.0  # in which the journals of what still works grow
PATIENCE_S: Final = 90.0


class Heir(Enum):
    HELD = auto()  # by what is stopped
    TAKEN = auto()
    NONE = auto()  # it held nothing
    LEFT = auto()  # nobody came


class Succession:
    """Whether another has the cells of what was stopped: then each journal has grown. Pure."""

    def __init__(self, now_s: float) -> None:
        self._began_s = now_s
        self._ends: Sequence[int] = ()  # of the journals, when nothing of it was on its way any more
        self._has_stood_still = False

    def look(self, ends: Sequence[int], now_s: float) -> Heir:
        waited_s = now_s - self._began_s
        if not self._ends:
            self._ends = ends if waited_s >= DRAIN_S else ()
            return Heir.HELD
        if all(end > before for end, before in zip(ends, self._ends, strict=True)):
            return Heir.TAKEN if self._has_stood_still else Heir.NONE
        self._has_stood_still |= waited_s >= DRAIN_S + STILL_S
        return Heir.LEFT if waited_s > PATIENCE_S else Heir.HELD


class Orphan:
    def __init__(self, pids: Sequence[int], now_s: float) -> None:
        self._pids = pids
        self.succession = Succession(now_s)
        self._send(signal.SIGSTOP)

    def go_on(self) -> None:
        self._send(signal.SIGCONT)

    def _send(self, what: signal.Signals) -> None:
        for pid in self._pids:
            with suppress(ProcessLookupError):  # it has ended meanwhile
                os.kill(pid, what)


def busiest(pids: Sequence[int], before: dict[int, int]) -> list[int]:
    """The processes that have worked since, the one that did most first."""
    worked = {pid: ticks_of(pid) - before.get(pid, 0) for pid in pids}
    return sorted((pid for pid in pids if worked[pid] > 0), key=lambda pid: -worked[pid])
