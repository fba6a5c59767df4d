"""Waiting until a partition's high watermark has reached an offset."""

import asyncio

from oncelog.server.topics import Partition


async def wait_for_high_watermark(partition: Partition, offset: int, timeout_s: float) -> bool:
    """Whether it was reached in time; False too when the partition went offline or was deleted meanwhile."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout_s
    log = partition.log
    while log.high_watermark < offset:
        if log.offline is not None or partition.is_deleted:
            return False
        moved: asyncio.Future[None] = loop.create_future()

        def woken(moved: asyncio.Future[None] = moved) -> None:
            if not moved.done():
                moved.set_result(None)

        partition.waiters.add(woken)
        try:
            await asyncio.wait_for(moved, deadline - loop.time())
        except TimeoutError:
            return False
        finally:
            partition.waiters.discard(woken)
    return True
