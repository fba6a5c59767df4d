"""The amount taken of late, and the time that its taker must wait, by Kafka's sums.

A rate is the mean over the last windows, of which the first is whole and the last is not (Kafka's `SampledStat` under
its `Rate`). Above its limit, the wait is as long as it takes until the mean is down at the limit again.
"""

from collections.abc import Hashable
from typing import Generic, NamedTuple, TypeVar

MOST_MS = 2**31 - 1  # what an answer has room for

Who = TypeVar("Who", bound=Hashable)


class Windows(NamedTuple):
    """quota.window.num and quota.window.size.seconds"""

    number: int
    size_ms: int


class Rate:
    """A ring of sums, one more than there are windows: the oldest may have begun before all of them did."""

    __slots__ = ("_at", "_begun_ms", "_last_ms", "_sums", "fresh_until_ms", "total")

    def __init__(self, now_ms: int) -> None:
        self._at = 0
        self._begun_ms = [now_ms]
        self._last_ms = [now_ms]
        self._sums = [0.0]
        self.total = 0.0  # of all sums
        self.fresh_until_ms = now_ms  # before, no sum is too old

    def record(self, value: float, now_ms: int, windows: Windows) -> None:
        at = self._at
        if now_ms - self._begun_ms[at] >= windows.size_ms:
            at = self._at = (at + 1) % (windows.number + 1)
            if at < len(self._sums):
                self._reset(at, now_ms)
            else:
                self._begun_ms.append(now_ms)
                self._last_ms.append(now_ms)
                self._sums.append(0.0)
        self._sums[at] += value
        self.total += value
        self._last_ms[at] = now_ms

    def measured(self, now_ms: int, windows: Windows) -> tuple[float, int]:
        """The rate by the second, and over how many milliseconds it was measured."""
        oldest_ms = now_ms - windows.number * windows.size_ms
        for at, last_ms in enumerate(self._last_ms):
            if last_ms <= oldest_ms:
                self._reset(at, now_ms)
        elapsed_ms = now_ms - min(self._begun_ms)
        lacking = windows.number - 1 - elapsed_ms // windows.size_ms
        if lacking > 0:
            elapsed_ms += lacking * windows.size_ms
        elapsed_ms = max(elapsed_ms, 1)
        self.total = sum(self._sums)
        self.fresh_until_ms = min(self._last_ms) + windows.number * windows.size_ms
        return self.total * 1000 / elapsed_ms, elapsed_ms

    def _reset(self, at: int, now_ms: int) -> None:
        self._begun_ms[at] = self._last_ms[at] = now_ms
        self.total -= self._sums[at]
        self._sums[at] = 0.0


class Rates(Generic[Who]):
    """The rates of everybody who has a limit. Those used last are known: one that comes behind very many others begins
    anew."""

    def __init__(self, windows: Windows, most: int) -> None:
        self.windows = windows
        self._least_s = max((windows.number - 1) * windows.size_ms, 1) / 1000  # over which a rate is taken
        self._most = most
        self._rates: dict[Who, Rate] = {}  # the one used last comes last

    def __len__(self) -> int:
        return len(self._rates)

    def wait_ms(self, who: Who, limit: float, value: float, now_ms: int) -> int:
        """Take this much; the time to wait for it, 0 within the limit."""
        rate = self._of(who, now_ms)
        rate.record(value, now_ms, self.windows)
        if now_ms < rate.fresh_until_ms and rate.total <= limit * self._least_s:
            return 0  # whatever the time that has passed
        mean, span_ms = rate.measured(now_ms, self.windows)
        if mean <= limit:
            return 0
        if limit <= 0:
            return MOST_MS
        return min(int((mean - limit) / limit * span_ms + 0.5), MOST_MS)

    def take_back(self, who: Who, value: float, now_ms: int) -> None:
        """Take back an amount that was counted and not given."""
        self._of(who, now_ms).record(-value, now_ms, self.windows)

    def is_unused(self, who: Who, now_ms: int) -> bool:
        """Whether nothing was taken of late."""
        rate = self._rates.get(who)
        return rate is None or rate.measured(now_ms, self.windows)[0] <= 0

    def _of(self, who: Who, now_ms: int) -> Rate:
        rate = self._rates.pop(who, None)
        if rate is None:
            rate = Rate(now_ms)
            if len(self._rates) >= self._most:
                del self._rates[next(iter(self._rates))]
        self._rates[who] = rate
        return rate
