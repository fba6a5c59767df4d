"""Waiting until what was appended is safe, or nobody here can say any more whether it will be."""

import asyncio
from collections.abc import Callable

from oncelog.log.partition import End, Fate
from oncelog.server.topics import Partition


def when_settled(partition: Partition, end: End, settled: Callable[[Fate], None]) -> None:
    """Call back once, with SAFE or LOST: at once, unless answers wait for the disk or for followers."""

    def look() -> None:
        fate = partition.fate(end)
        if fate is Fate.WAITS:
            partition.waiters.add(look)
        else:
            settled(fate)

    look()


async def wait_until_settled(partition: Partition, end: End, timeout_s: float) -> Fate:
    """WAITS where the time was over first."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout_s
    while (fate := partition.fate(end)) is Fate.WAITS:
        moved: asyncio.Future[None] = loop.create_future()

        def woken(moved: asyncio.Future[None] = moved) -> None:
            if not moved.done():
                moved.set_result(None)

        partition.waiters.add(woken)
        try:
            await asyncio.wait_for(moved, deadline - loop.time())
        except TimeoutError:
            break
        finally:
            partition.waiters.discard(woken)
    return fate
