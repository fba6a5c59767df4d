"""Brokers that grant leased pids of one sequence, as servers do, but for the threads."""

from collections.abc import Callable
from typing import Final

from oncelog.clock import DAY_MS, Clock, Now
from oncelog.producers.leases import BLOCK_PIDS, Block, GrantHistory, Stock, first_leased

NOTHING_KNOWN: Final = GrantHistory(DAY_MS)


class Sequence:
    """The durable sequence, which compare-and-set alone changes."""

    def __init__(self, next_pid: int = 1) -> None:
        self.next_pid = next_pid
        self.taken: list[Block] = []


class Granting:
    """One broker; it is the `Grants` that its partitions ask, too."""

    def __init__(self, sequence: Sequence, clock: Clock, history: GrantHistory = NOTHING_KNOWN) -> None:
        self.sequence = sequence
        self.clock = clock
        self.history = history
        self.stock = Stock(self.history.period_ms)

    @property
    def now_ms(self) -> int:
        return self.clock.now().monotonic_ms

    def read(self) -> None:
        self.history = self.history.read(self.sequence.next_pid, self.now_ms)

    def take(self, meanwhile: Callable[[], object] = lambda: None) -> bool:
        """A block; nothing where somebody was faster. `meanwhile` happens between its read and its write."""
        began_ms, next_pid = self.now_ms, self.sequence.next_pid
        meanwhile()
        if self.sequence.next_pid != next_pid:
            return False
        first_pid = first_leased(next_pid, BLOCK_PIDS)
        block = Block(first_pid, first_pid + BLOCK_PIDS)
        self.sequence.next_pid = block.end_pid
        self.sequence.taken.append(block)
        self.history = self.history.read(next_pid, began_ms).read(block.end_pid, began_ms)
        self.stock.add(block, self.now_ms)
        return True

    def grant(self) -> int:
        while (pid := self.stock.take(self.now_ms)) is None:
            self.take()
        return pid

    def may_be_new(self, pid: int, now: Now | None = None) -> bool:
        return self.history.may_be_new(pid, (now or self.clock.now()).monotonic_ms)
