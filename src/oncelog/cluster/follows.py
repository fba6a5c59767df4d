"""Whom this broker fetches from, partition by partition."""

from collections.abc import Callable, Iterable
from typing import Protocol

from oncelog.server.topic import Partition


class Following(Protocol):
    """Fetches from a leader what is appended there."""

    def follow(self, partition: Partition) -> None: ...

    def leave(self, partition: Partition) -> None: ...


class Follows:
    def __init__(self, follow: Callable[[int], Following]) -> None:
        """`follow` answers who fetches from that broker."""
        self._follow = follow
        self._followed: dict[Partition, int] = {}

    def obey(self, partitions: Iterable[Partition], now_ms: int) -> None:
        for partition in partitions:
            replica = partition.replica
            if replica is not None:
                replica.try_disk(now_ms)
            leader = replica.state.leader if replica is not None and replica.state and replica.fetch() else -1
            if self._followed.get(partition, -1) != leader:
                self.leave(partition)
                if leader >= 0:
                    self._followed[partition] = leader
                    self._follow(leader).follow(partition)

    def leave(self, partition: Partition) -> None:
        leader = self._followed.pop(partition, -1)
        if leader >= 0:
            self._follow(leader).leave(partition)
