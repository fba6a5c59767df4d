"""Granting pids, and remembering when they were granted.

A grant writes nothing to any log. It takes a pid from a block of 100 that was taken durably before from one sequence
for all brokers, so that no pid is granted twice, also not after a crash, which at worst wastes the rest of a block.

When a partition meets a pid that it does not know, it must tell a producer's first batch from one so late that its
entry has expired. `GrantHistory` answers that by when the pid's block was taken, by any server. A block is used only
for a short while after that, so a pid is never older than its block and never much younger. Every error of the history
is on one side: a pid may be taken for older than it is, and then its producer is refused and leases another; never for
younger, which could append a batch twice.
"""

from bisect import bisect_right
from collections import deque
from typing import NamedTuple, Protocol

from oncelog.producers.ring import PIDS
from oncelog.producers.sequences import GENERATIONS

FIRST_LEASED_PID = 1
END_OF_LEASED_PIDS = 1 << 32  # after the last one the numbers start again
BLOCK_PIDS = 100
MOST_PASSED_OVER = 1 << 32
LIFETIMES_NEW = 2
PERIODS_A_LIFETIME = 24


class Chance(Protocol):
    """`random.SystemRandom()` in a server, a seeded `random.Random` in tests."""

    def randrange(self, start: int, /) -> int: ...


class Period(NamedTuple):
    """Neighbouring blocks that were taken at about the same time."""

    first_pid: int
    end_pid: int
    opened_ms: int  # monotonic; not after the first of the blocks was taken


def first_leased(next_pid: int, count: int) -> int:
    """The first of `count` pids in a row, where the sequence stands at `next_pid`."""
    return next_pid if next_pid + count <= END_OF_LEASED_PIDS else FIRST_LEASED_PID


class GrantHistory(NamedTuple):
    """The leased pids of the last two lifetimes, put together to some fifty periods, as one reader of the sequence
    knows them. What was taken between two reads is as old as the first of these, at most: it was not there yet.

    Who reads seldom takes pids for older than they are, by the time between two reads. That time and the one for which
    a block is used must not come to a lifetime together, or a lease that lasts would be refused.
    """

    lifetime_ms: int
    periods: tuple[Period, ...] = ()  # oldest first
    next_pid: int = 0  # where the sequence stood at the last read; 0 before the first one
    read_ms: int = 0  # monotonic; when that read began

    @property
    def period_ms(self) -> int:
        return max(1, self.lifetime_ms // PERIODS_A_LIFETIME)

    def read(self, next_pid: int, began_ms: int) -> "GrantHistory":
        """The sequence stood there at `began_ms` or later: a read that may tell what was true before must not be
        told. Those who took a block themselves had read where it begins before."""
        if not self.next_pid:
            return self._replace(next_pid=next_pid, read_ms=began_ms)
        ahead = (next_pid - self.next_pid) % PIDS
        if ahead > PIDS // 2:
            return self  # answered late: another read has told more
        periods = self.periods
        if ahead:
            over = bisect_right(periods, began_ms - self._new_ms, key=lambda period: period.opened_ms)
            if self.next_pid < next_pid:
                periods = self._with(periods[over:], self.next_pid, next_pid)
            else:
                periods = self._with(periods[over:], self.next_pid, END_OF_LEASED_PIDS)
                periods = self._with(periods, FIRST_LEASED_PID, next_pid)
        return self._replace(periods=periods, next_pid=next_pid, read_ms=max(began_ms, self.read_ms))

    def may_be_new(self, pid: int, at_ms: int) -> bool:
        return any(
            period.first_pid <= pid < period.end_pid and at_ms - period.opened_ms < self._new_ms
            for period in reversed(self.periods)
        )

    @property
    def _new_ms(self) -> int:
        return self.lifetime_ms * LIFETIMES_NEW

    def _with(self, periods: tuple[Period, ...], first_pid: int, end_pid: int) -> tuple[Period, ...]:
        if first_pid == end_pid:
            return periods
        if periods and periods[-1].end_pid == first_pid and self.read_ms - periods[-1].opened_ms < self.period_ms:
            return (*periods[:-1], periods[-1]._replace(end_pid=end_pid))
        return (*periods, Period(first_pid, end_pid, self.read_ms))


class Block(NamedTuple):
    """Pids in a row that no other process grants."""

    first_pid: int
    end_pid: int


class Stock:
    """The blocks of one process, of which it grants."""

    def __init__(self, fresh_ms: int | None = None) -> None:
        """`fresh_ms`: for how long a block is used; None where pids do not age."""
        self._fresh_ms = fresh_ms
        self._blocks: deque[tuple[Block, int]] = deque()  # each with when it came

    def add(self, block: Block, now_ms: int) -> None:
        self._blocks.append((block, now_ms))

    def take(self, now_ms: int) -> int | None:
        """A pid, once; None where a block must be added first."""
        while self._blocks:
            (pid, end_pid), came_ms = self._blocks.popleft()
            if pid < end_pid and (self._fresh_ms is None or now_ms - came_ms < self._fresh_ms):
                self._blocks.appendleft((Block(pid + 1, end_pid), came_ms))
                return pid
        return None

    def is_low(self) -> bool:
        """Whether a block should be added before there is none."""
        return sum(end_pid - first_pid for (first_pid, end_pid), _ in self._blocks) < BLOCK_PIDS // 2


class Lease(NamedTuple):
    pid: int
    generation: int
    sequence: int
    expire_ms: int  # how long it may be used, counted from now


def lease_of(pid: int, lifetime_ms: int, random: Chance) -> Lease:
    return Lease(pid, random.randrange(GENERATIONS), 0, lifetime_ms)
