"""Hosts that fail to prove who they are so often that they are not looked at for a while, each with an allowance."""

from collections import OrderedDict
from typing import NamedTuple

from oncelog.clock import MINUTE_MS
from oncelog.security.hosts import place_of

MOST_HOSTS = 4096


class _Spent(NamedTuple):
    failures: float  # that still count
    at_ms: int


class Failures:
    """Each host may fail `per_minute` times a minute, and as often at once. The one that was quiet for longest is
    forgotten first, where there are too many."""

    def __init__(self, per_minute: int) -> None:
        self._per_minute = per_minute
        self._spent: OrderedDict[str, _Spent] = OrderedDict()

    def __len__(self) -> int:
        return len(self._spent)

    def is_barred(self, host: str, now_ms: int) -> bool:
        return bool(self._per_minute) and self.failures(host, now_ms) > self._per_minute - 1

    def note(self, host: str, now_ms: int) -> None:
        if not self._per_minute:
            return
        place = place_of(host)
        failures = self.failures(host, now_ms)
        self._spent[place] = _Spent(min(failures + 1, self._per_minute), now_ms)
        self._spent.move_to_end(place)
        if len(self._spent) > MOST_HOSTS:
            self._spent.popitem(last=False)

    def failures(self, host: str, now_ms: int) -> float:
        """The failures that still count."""
        spent = self._spent.get(place_of(host))
        if spent is None:
            return 0
        return max(spent.failures - (now_ms - spent.at_ms) * self._per_minute / MINUTE_MS, 0)
