"""Granting pids, and remembering when they were granted.

A grant writes nothing to any log. It takes a pid from a block of 100 that was reserved durably before, so that no pid
is granted twice, also not after a crash, which at worst wastes the rest of a block.

When a partition meets a pid that it does not know, it must tell a producer's first batch from one so late that its
entry has expired. `GrantHistory` answers that by the time of the reservation. A block is used only for a short while
after it, so a pid is never older than its block and never much younger. Every error of the history is on one side: a
pid may be taken for older than it is, and then its producer is refused and leases another; never for younger, which
could append a batch twice.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable
from typing import NamedTuple, Protocol

from oncelog.clock import Now
from oncelog.producers.sequences import GENERATIONS

FIRST_LEASED_PID = 1
END_OF_LEASED_PIDS = 1 << 32  # after the last one the numbers start again
BLOCK_PIDS = 100
MOST_PASSED_OVER = 1 << 32
LIFETIMES_NEW = 2
PERIODS_A_LIFETIME = 24
MAX_PERIODS = 1024

Reserve = Callable[[int], int]  # how many, durably; answers the first of them


class Chance(Protocol):
    """`random.SystemRandom()` in a server, a seeded `random.Random` in tests."""

    def randrange(self, start: int, /) -> int: ...


class Period(NamedTuple):
    """Neighbouring blocks that were reserved at about the same time."""

    first_pid: int
    end_pid: int
    opened_ms: int  # monotonic; when the first of the blocks was reserved


class GrantHistory:
    """The blocks of the last two lifetimes, put together to some fifty periods."""

    def __init__(self, lifetime_ms: int, periods: Iterable[Period] = ()) -> None:
        self.period_ms = max(1, lifetime_ms // PERIODS_A_LIFETIME)
        self._new_ms = lifetime_ms * LIFETIMES_NEW
        self.periods = list(periods)  # oldest first

    def note(self, first_pid: int, count: int, at_ms: int) -> None:
        """A block was reserved."""
        self._forget(at_ms)
        last = self.periods[-1] if self.periods else None
        if last is not None and last.end_pid == first_pid and at_ms - last.opened_ms < self.period_ms:
            self.periods[-1] = last._replace(end_pid=first_pid + count)
        else:
            self.periods.append(Period(first_pid, first_pid + count, at_ms))

    def may_be_new(self, pid: int, at_ms: int) -> bool:
        return any(
            period.first_pid <= pid < period.end_pid and at_ms - period.opened_ms < self._new_ms
            for period in reversed(self.periods)
        )

    def _forget(self, at_ms: int) -> None:
        over = bisect_right(self.periods, at_ms - self._new_ms, key=lambda period: period.opened_ms)
        del self.periods[: max(over, len(self.periods) - MAX_PERIODS + 1)]


class Lease(NamedTuple):
    pid: int
    generation: int
    sequence: int
    expire_ms: int  # how long it may be used, counted from now


class LeaseIssuer:
    """Grants leases, and is the `Grants` that partitions ask."""

    def __init__(self, reserve: Reserve, *, lifetime_ms: int, random: Chance, earlier: Iterable[Period] = ()) -> None:
        self._reserve = reserve
        self._lifetime_ms = lifetime_ms
        self._random = random
        self._history = GrantHistory(lifetime_ms, earlier)
        self._next_pid = 0
        self._end_pid = 0
        self._opened_ms = 0

    def grant(self, now: Now) -> Lease:
        """A pid that was never granted, as far as 2^32 of them reach. Nothing is granted when `reserve` raises."""
        block_is_stale = now.monotonic_ms - self._opened_ms >= self._history.period_ms
        if self._next_pid == self._end_pid or block_is_stale:
            self._open_block(now)
        pid = self._next_pid
        self._next_pid += 1
        return Lease(pid, self._random.randrange(GENERATIONS), 0, self._lifetime_ms)

    def may_be_new(self, pid: int, now: Now) -> bool:
        return self._history.may_be_new(pid, now.monotonic_ms)

    def _open_block(self, now: Now) -> None:
        first_pid = self._reserve(BLOCK_PIDS)
        self._history.note(first_pid, BLOCK_PIDS, now.monotonic_ms)
        self._next_pid, self._end_pid, self._opened_ms = first_pid, first_pid + BLOCK_PIDS, now.monotonic_ms


class KafkaPidIssuer:
    """Pids for InitProducerId, from 2^32 on. They have no lifetime; a partition forgets them by its own clock.

    Every producer begins with epoch 0 and sequence 0, so what a second one of the same pid writes first would be taken
    for what the other wrote. `known` is the highest pid that a log knows: an older copy of what says which were granted
    may have been put back. One far above comes of no grant.
    """

    def __init__(self, reserve: Reserve, known: int = -1) -> None:
        self._reserve = reserve
        self._known = known
        self._next_pid = 0
        self._end_pid = 0

    def grant(self) -> int:
        if self._next_pid == self._end_pid:
            first_pid = self._reserve(BLOCK_PIDS)
            if first_pid <= self._known < first_pid + MOST_PASSED_OVER:
                self._reserve(self._known - first_pid + 1)
                first_pid = self._reserve(BLOCK_PIDS)
            self._next_pid = first_pid
            self._end_pid = self._next_pid + BLOCK_PIDS
        pid = self._next_pid
        self._next_pid += 1
        return pid
