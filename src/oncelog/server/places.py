"""Connections by the hosts that they come from, each host's oldest first. Pure.

Each connection that comes may ask which host has most, so that is known at any time.
"""

from collections.abc import Collection
from typing import Generic, Protocol, TypeVar

from oncelog.security.hosts import place_of


class Visitor(Protocol):
    client_host: str


V = TypeVar("V", bound=Visitor)


class Places(Generic[V]):
    def __init__(self) -> None:
        self._by_place: dict[str, dict[V, None]] = {}
        self._of_size: dict[int, dict[str, None]] = {}  # hosts by their number of visitors
        self._most = 0

    def add(self, visitor: V) -> None:
        place = place_of(visitor.client_host)
        there = self._by_place.setdefault(place, {})
        if visitor not in there:
            there[visitor] = None
            self._moved(place, len(there) - 1, len(there))

    def discard(self, visitor: V) -> None:
        place = place_of(visitor.client_host)
        there = self._by_place.get(place, {})
        if visitor in there:
            del there[visitor]
            if not there:
                del self._by_place[place]
            self._moved(place, len(there) + 1, len(there))

    def _moved(self, place: str, before: int, now: int) -> None:
        if now:
            self._of_size.setdefault(now, {})[place] = None
        if before:
            left = self._of_size[before]
            del left[place]
            if not left:
                del self._of_size[before]
        if now > self._most or self._most not in self._of_size:
            self._most = now  # by one more or less: it has most, or had alone

    def count(self, host: str) -> int:
        return len(self._by_place.get(place_of(host), ()))

    def most(self) -> Collection[V]:
        """The values of the host that has most of them."""
        place = next(iter(self._of_size.get(self._most, ())), None)
        return () if place is None else self._by_place[place]
