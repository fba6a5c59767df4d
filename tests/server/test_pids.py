"""Pids are granted while the disk is slow, full or broken: no request waits for it as long as there are some left."""

import asyncio
import threading
from typing import Any

import pytest

from oncelog.clock import ManualClock
from oncelog.producers.leases import BLOCK_PIDS, END_OF_LEASED_PIDS, Block, Stock
from oncelog.server.pids import Pids, kafka_pids
from oncelog.server.ports import ClusterStorageError

FIRST = END_OF_LEASED_PIDS


class SlowDisk:
    """What reserves a block, once the test lets it."""

    def __init__(self) -> None:
        self.next_pid = 1
        self.asked = 0
        self.threads: set[int] = set()
        self.is_broken = False
        self.goes_on = threading.Event()

    async def reserve_pids(self, kind: object = None, count: int = BLOCK_PIDS) -> Block:
        return await asyncio.to_thread(self.take, count)

    def take(self, count: int) -> Block:
        self.asked += 1
        self.threads.add(threading.get_ident())
        assert self.goes_on.wait(30)
        if self.is_broken:
            raise ClusterStorageError("the disk is full")
        first, self.next_pid = self.next_pid, self.next_pid + count
        return Block(first, first + count)


def run(work: Any) -> None:
    disk = SlowDisk()
    asyncio.run(work(disk, Pids(Stock(), disk.reserve_pids, ManualClock())))


def test_the_next_block_is_there_before_the_present_one_is_used_up() -> None:
    async def work(disk: SlowDisk, pids: Pids) -> None:
        disk.goes_on.set()
        first = [await pids.take()]
        disk.goes_on.clear()
        first += [await asyncio.wait_for(pids.take(), 30) for _ in range(BLOCK_PIDS - 1)]
        assert first == list(range(1, BLOCK_PIDS + 1)), "all of it, while the disk stands still"
        async with asyncio.timeout(30):
            while disk.asked < 2:
                await asyncio.sleep(0)
        disk.goes_on.set()
        assert await pids.take() == BLOCK_PIDS + 1
        assert disk.asked == 2
        assert threading.get_ident() not in disk.threads

    run(work)


def test_who_is_faster_than_the_disk_waits_and_the_loop_goes_on() -> None:
    async def work(disk: SlowDisk, pids: Pids) -> None:
        waiting = [asyncio.ensure_future(pids.take()) for _ in range(3 * BLOCK_PIDS)]
        await asyncio.sleep(0)
        waiting.pop().cancel()
        disk.goes_on.set()
        granted = await asyncio.gather(*waiting)
        assert len(set(granted)) == len(granted) == 3 * BLOCK_PIDS - 1
        assert disk.asked in (3, 4)

    run(work)


def test_a_disk_that_fails_is_told_when_no_pid_is_left_and_asked_again() -> None:
    async def work(disk: SlowDisk, pids: Pids) -> None:
        disk.goes_on.set()
        first = [await pids.take()]
        disk.is_broken = True
        first += [await pids.take() for _ in range(BLOCK_PIDS - 1)]
        assert first == list(range(1, BLOCK_PIDS + 1))
        for _ in range(2):
            with pytest.raises(ClusterStorageError, match="full"):
                while True:
                    assert await pids.take() > BLOCK_PIDS
        disk.is_broken = False
        assert await pids.take() == BLOCK_PIDS + 1

    run(work)


def test_pids_that_a_log_knows_are_passed_over_where_an_older_sequence_would_grant_them_again() -> None:
    async def granted_by(known: int) -> list[int]:
        disk = SlowDisk()
        disk.next_pid = FIRST
        disk.goes_on.set()
        cluster: Any = disk
        pids = kafka_pids(cluster, ManualClock(), known)
        return [await pids.take() for _ in range(2 * BLOCK_PIDS + 1)]

    for known in (FIRST, FIRST + 1, FIRST + BLOCK_PIDS - 1, FIRST + BLOCK_PIDS, FIRST + 12345):
        granted = asyncio.run(granted_by(known))
        assert granted[0] > known and granted == sorted(set(granted))
    for known in (-1, FIRST - 1, 2**63 - 1):  # what a client made up keeps nobody from new ones
        assert asyncio.run(granted_by(known))[0] == FIRST
