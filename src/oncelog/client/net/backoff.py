"""The wait before a broker is tried again. Pure: chance and time are passed in."""

from collections.abc import Callable


class Backoff:
    """Doubles from `first_ms` to `most_ms`; a quarter less to a half more, so that many clients do not come at once."""

    def __init__(self, first_ms: int, most_ms: int, random: Callable[[], float]) -> None:
        self._first_ms = first_ms
        self._most_ms = max(first_ms, most_ms)
        self._random = random
        self.failures = 0
        self._not_before_ms = 0.0

    def failed(self, now_ms: float) -> None:
        pause_ms = min(self._first_ms * 2.0 ** min(self.failures, 30), self._most_ms)
        self.failures += 1
        self._not_before_ms = now_ms + min(pause_ms * (0.75 + 0.75 * self._random()), self._most_ms)

    def succeeded(self) -> None:
        self.failures = 0
        self._not_before_ms = 0.0

    def wait_ms(self, now_ms: float) -> float:
        return max(0.0, self._not_before_ms - now_ms)
