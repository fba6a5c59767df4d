"""Bounds on what connections may hold together: a budget of bytes, and a small pool of large buffers."""

from collections import deque
from collections.abc import Callable


class Budget:
    """Bytes that may be held at a time. Whoever finds nothing left is called, in order, when something is given back.

    As in Kafka's memory pool, one taker may overdraw what is left; else the largest frame might never fit.
    """

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.held_bytes = 0
        self._waiting: deque[Callable[[], None]] = deque()

    @property
    def left_bytes(self) -> int:
        return max(self.limit_bytes - self.held_bytes, 0) if self.limit_bytes >= 0 else 2**63 - 1

    def take(self, size_bytes: int) -> bool:
        if self.left_bytes == 0:
            return False
        self.held_bytes += size_bytes
        return True

    def give_back(self, size_bytes: int) -> None:
        self.held_bytes -= size_bytes
        while self._waiting and self.left_bytes:
            self._waiting.popleft()()

    def wait(self, callback: Callable[[], None]) -> None:
        self._waiting.append(callback)

    def forget(self, callback: Callable[[], None]) -> None:
        if callback in self._waiting:
            self._waiting.remove(callback)


class LargeBuffers:
    """Buffers for frames that do not fit the shared receive buffer, kept for the next such frame.

    A fresh bytearray is filled with zeros and its pages are new to the process, which costs as much as receiving
    into it does.
    """

    STEP_BYTES = 4 * 2**20
    KEPT = 8

    def __init__(self) -> None:
        self._kept: list[bytearray] = []

    def take(self, frame_bytes: int) -> bytearray:
        """A buffer of at least the frame's size, or of STEP_BYTES for a larger one: it grows as the frame arrives, so
        that a client cannot make memory be filled by announcing a length."""
        wanted = min(frame_bytes, self.STEP_BYTES)
        for at, buffer in enumerate(self._kept):
            if len(buffer) >= wanted:
                return self._kept.pop(at)
        return bytearray(min(-(-wanted // 65536) * 65536, self.STEP_BYTES))

    def give_back(self, buffer: bytearray) -> None:
        if len(buffer) <= self.STEP_BYTES and len(self._kept) < self.KEPT:
            self._kept.append(buffer)
