"""The turns of all cells on a loop.

A loop makes all that is ready in one pass, and looks at no socket, signal or clock meanwhile. A hundred cells that are
ready would keep it away for a hundred turns. So a pass makes as many as its time is for, and the others wait for the
next.
"""

from collections import deque
from collections.abc import Callable
from typing import Final

from oncelog.clock import monotonic_s

PASS_S: Final = 0.05  # and what the last turn takes


class Turns:
    def __init__(
        self, soon: Callable[[Callable[[], None]], object], clock_s: Callable[[], float] = monotonic_s
    ) -> None:
        """`soon`: has something called in the loop's next pass."""
        self._soon = soon
        self._clock_s = clock_s
        self._due: deque[Callable[[], None]] = deque()
        self._is_asked_for = False

    def add(self, turn: Callable[[], None]) -> None:
        """One after the other, in this order."""
        self._due.append(turn)
        self._ask()

    def _ask(self) -> None:
        if not self._is_asked_for:
            self._is_asked_for = True
            self._soon(self._pass)

    def _pass(self) -> None:
        self._is_asked_for = False
        until_s = self._clock_s() + PASS_S
        try:
            for _ in range(len(self._due)):  # not those that are asked for meanwhile
                self._due.popleft()()
                if self._clock_s() >= until_s:
                    break
        finally:  # behind a turn that raises, too
            if self._due:
                self._ask()
