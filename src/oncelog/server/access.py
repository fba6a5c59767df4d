"""What clients may do here. Handlers ask `Rights`, which each connection has of its own."""

from collections.abc import Callable
from typing import Final, Protocol

from oncelog.security.operations import Operation, Resource
from oncelog.server.settings import Settings
from oncelog.server.topics import Topics

ANONYMOUS: Final = "User:ANONYMOUS"


class Rights(Protocol):
    """Of one principal, at one host. What it answers may change with each step of the loop."""

    def may(self, operation: Operation, resource: Resource, name: str) -> bool: ...


class EveryRight:
    """Where nothing is asked."""

    def may(self, operation: Operation, resource: Resource, name: str) -> bool:
        return True


EVERY_RIGHT: Final = EveryRight()


class Access:
    """Who may do what; the same for all connections."""

    def __init__(self, settings: Settings, topics: Topics) -> None:
        self._told: list[Callable[[], None]] = []

    def rights(self, principal: str, host: str) -> Rights:
        return EVERY_RIGHT

    def tell_changes(self, told: Callable[[], None]) -> None:
        """Whenever rights may have become others."""
        self._told.append(told)
