"""Produce requests of one connection that are committed and not answered yet: others must have what they appended, or
the disk. Later answers wait behind them."""

from collections import deque
from collections.abc import Callable

from oncelog.server.outgoing import Outgoing
from oncelog.server.produced import Commit


def _nothing() -> None:
    """Nobody is there."""


class Unanswered:
    def __init__(self, outgoing: Outgoing, moved: Callable[[], None]) -> None:
        """`moved` is called when a partition that is waited for has moved."""
        self._outgoing = outgoing
        self._moved = moved
        self._commits: deque[Commit] = deque()

    def __len__(self) -> int:
        return len(self._commits)

    def put(self, commit: Commit) -> None:
        """Send the answers at once, where they are true already and nothing waits before them."""
        if self._commits or (commit.awaited and not commit.is_settled()):
            self._commits.append(commit)
            self._wait_for(commit)
        else:
            self._outgoing.put(b"".join(commit.frames()))

    def look(self) -> None:
        """Answer what has become true, from the oldest on."""
        while self._commits and self._commits[0].is_settled():
            self._outgoing.put(b"".join(self._commits.popleft().frames()))
        if self._commits:
            self._wait_for(self._commits[0])

    def drop(self) -> None:
        """The connection is gone."""
        for commit in self._commits:
            for partition in commit.awaited:
                partition.waiters.discard(self._moved)
        self._commits.clear()
        self._moved = _nothing  # the connection and this point at each other, which only the collector would undo

    def _wait_for(self, commit: Commit) -> None:
        for partition in commit.awaited:
            partition.waiters.add(self._moved)
