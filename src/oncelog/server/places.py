"""Connections by the hosts that they come from, each host's oldest first. Pure."""

from collections.abc import Collection
from typing import Generic, Protocol, TypeVar

from oncelog.security.hosts import place_of


class Visitor(Protocol):
    client_host: str


V = TypeVar("V", bound=Visitor)


class Places(Generic[V]):
    def __init__(self) -> None:
        self._by_place: dict[str, dict[V, None]] = {}

    def add(self, visitor: V) -> None:
        self._by_place.setdefault(place_of(visitor.client_host), {})[visitor] = None

    def discard(self, visitor: V) -> None:
        place = place_of(visitor.client_host)
        there = self._by_place.get(place)
        if there is not None:
            there.pop(visitor, None)
            if not there:
                del self._by_place[place]

    def count(self, host: str) -> int:
        return len(self._by_place.get(place_of(host), ()))

    def most(self) -> Collection[V]:
        """The values of the host that has most of them."""
        return max(self._by_place.values(), key=len, default=())
