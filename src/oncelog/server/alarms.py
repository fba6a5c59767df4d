"""One timer for all groups: a heap of when each wants to be woken, and a timer for the first of them.

The name None is the coordinator's own alarm; a group can have any name that is a string.
"""

import logging
from collections import deque
from collections.abc import Callable
from heapq import heapify, heappop, heappush
from itertools import count
from typing import Protocol

from oncelog.log.work_steps import Pauses

logger = logging.getLogger(__name__)

STOOD_STILL_MS = 1_000  # a timer is so late where the process was stopped, or the machine slept
HEARING_MS = 2_000  # then nothing rings for so long: what clients and other brokers sent meanwhile is heard first
MAX_DELAY_MS = 60_000  # a sleeping laptop or a clock that jumps must not put an alarm off for longer


class TimerHandle(Protocol):
    def cancel(self) -> None: ...


CallLater = Callable[[float, Callable[[], None]], TimerHandle]
InTurns = Callable[[Pauses], None]


class Alarms:
    def __init__(
        self,
        call_later: CallLater,
        now_ms: Callable[[], int],
        ring: Callable[[str | None], None],
        in_turns: InTurns,
    ) -> None:
        self._call_later = call_later
        self._now_ms = now_ms
        self._ring = ring
        self._in_turns = in_turns
        self._wake_ms: dict[str | None, int] = {}
        self._heap: list[tuple[int, int, str | None]] = []
        self._due: deque[str | None] = deque()  # their time has come; members that were lost together end together
        self._order = count()  # a heap compares; names need not
        self._timer: TimerHandle | None = None
        self._timer_ms = 0
        self._is_hearing = False

    def set(self, name: str | None, wake_ms: int | None) -> None:
        """Set the one alarm of a name; None takes it away."""
        if self._wake_ms.get(name) == wake_ms:
            return
        if wake_ms is None:
            self._wake_ms.pop(name, None)
            return
        self._wake_ms[name] = wake_ms
        heappush(self._heap, (wake_ms, next(self._order), name))
        if len(self._heap) > 2 * len(self._wake_ms) + 16:
            self._heap = [(at_ms, next(self._order), each) for each, at_ms in self._wake_ms.items()]
            heapify(self._heap)
        self._arm()

    def stop(self) -> None:
        self._wake_ms.clear()
        self._heap.clear()
        self._due.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm(self) -> None:
        if not self._heap or self._is_hearing:
            return
        first_ms = self._heap[0][0]
        if self._timer is not None:
            if self._timer_ms <= first_ms:
                return
            self._timer.cancel()
        now_ms = self._now_ms()
        delay_ms = min(max(first_ms - now_ms, 0), MAX_DELAY_MS)
        self._timer_ms = now_ms + delay_ms
        self._timer = self._call_later(delay_ms / 1000, self._fire)

    def _fire(self) -> None:
        self._timer = None
        now_ms = self._now_ms()
        self._is_hearing = not self._is_hearing and now_ms - self._timer_ms >= STOOD_STILL_MS
        if self._is_hearing:
            self._timer = self._call_later(HEARING_MS / 1000, self._fire)
            return
        while self._heap and self._heap[0][0] <= now_ms:
            wake_ms, _, name = heappop(self._heap)
            if self._wake_ms.get(name) == wake_ms:
                del self._wake_ms[name]
                self._due.append(name)
        self._in_turns(self._ring_due())
        self._arm()

    def _ring_due(self) -> Pauses:
        while self._due:
            name = self._due.popleft()
            try:
                self._ring(name)
            except Exception:  # whatever befell one group, the clocks of the others go on
                logger.exception("what was due for the group %r failed", name)
            yield
