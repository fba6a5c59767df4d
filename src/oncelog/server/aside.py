"""What takes long and needs nothing of the loop: requests put into structs, and answers into bytes, by two threads."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

THREADS = 2

Result = TypeVar("Result")


class Aside:
    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="oncelog-aside")
        self.holding_much = asyncio.Semaphore(THREADS)  # for work whose memory nothing else counts

    async def run(self, work: Callable[..., Result], *arguments: object) -> Result:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work, *arguments)

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)
