"""What takes long and needs nothing of the loop, by two threads: requests put into structs and answers into bytes, or
what waits for the disk.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

THREADS = 2

Result = TypeVar("Result")


class Aside:
    def __init__(self, name: str) -> None:
        self.threads = ThreadPoolExecutor(THREADS, thread_name_prefix=f"oncelog-{name}")
        self.holding_much = asyncio.Semaphore(THREADS)  # for work whose memory nothing else counts

    async def run(self, work: Callable[..., Result], *arguments: object) -> Result:
        return await asyncio.get_running_loop().run_in_executor(self.threads, work, *arguments)

    def close(self) -> None:
        self.threads.shutdown(wait=False, cancel_futures=True)
