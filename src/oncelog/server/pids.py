"""Granting pids of one kind without waiting: the next block is reserved before the present one is used up. Only who is
faster than the disk, or than other brokers agree, waits for it, and nobody else does.
"""

import asyncio
from collections.abc import Awaitable, Callable

from oncelog.clock import Clock
from oncelog.producers.leases import BLOCK_PIDS, MOST_PASSED_OVER, PERIODS_A_LIFETIME, Block, Stock
from oncelog.server.ports import Cluster, PidKind


class Pids:
    def __init__(self, stock: Stock, reserve: Callable[[], Awaitable[Block]], clock: Clock) -> None:
        self._stock = stock
        self._reserve = reserve
        self._clock = clock
        self._reserving: asyncio.Task[None] | None = None

    async def take(self) -> int:
        """A new pid, granted once. Raises `ClusterStorageError` where none can be reserved."""
        while (pid := self._stock.take(self._clock.now().monotonic_ms)) is None:
            await asyncio.shield(self._more())
        if self._stock.is_low():
            self._more()
        return pid

    def _more(self) -> "asyncio.Task[None]":
        if self._reserving is None:
            self._reserving = asyncio.get_running_loop().create_task(self._add())
            self._reserving.add_done_callback(self._added)
        return self._reserving

    async def _add(self) -> None:
        block = await self._reserve()
        self._stock.add(block, self._clock.now().monotonic_ms)

    def _added(self, task: "asyncio.Task[None]") -> None:
        self._reserving = None
        if not task.cancelled():
            task.exception()  # told to who waits for it; the next one that finds no pid left tries again


def leased_pids(cluster: Cluster, clock: Clock, lifetime_ms: int) -> Pids:
    stock = Stock(fresh_ms=max(1, lifetime_ms // PERIODS_A_LIFETIME))
    return Pids(stock, lambda: cluster.reserve_pids(PidKind.LEASED, BLOCK_PIDS), clock)


def kafka_pids(cluster: Cluster, clock: Clock, known: int) -> Pids:
    """Pids for InitProducerId, from 2^32 on. They have no lifetime; a partition forgets them by its own clock.

    Every producer begins with epoch 0 and sequence 0, so what a second one of the same pid writes first would be taken
    for what the other wrote. `known` is the highest pid that a log knows: an older copy of what says which were granted
    may have been put back. One far above comes of no grant.
    """

    async def reserve() -> Block:
        block = await cluster.reserve_pids(PidKind.KAFKA, BLOCK_PIDS)
        if block.first_pid <= known < block.first_pid + MOST_PASSED_OVER:
            if known >= block.end_pid:
                await cluster.reserve_pids(PidKind.KAFKA, known - block.end_pid + 1)
            block = await cluster.reserve_pids(PidKind.KAFKA, BLOCK_PIDS)
        return block

    return Pids(Stock(), reserve, clock)
