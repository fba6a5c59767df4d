"""Long work that needs nothing of the loop, by two threads: requests put into structs and answers into bytes, or
what waits for the disk.
"""

import asyncio
import os
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

THREADS = 2
YIELDING = 10  # how nice they are: all others go before them, and they still get some of a processor

Result = TypeVar("Result")


class Aside:
    def __init__(self, name: str, *, is_yielding: bool = False) -> None:
        """`is_yielding`: for what strangers can ask for without end, and what keeps a processor busy."""
        begin = _yield_to_others if is_yielding else None
        self.threads = ThreadPoolExecutor(THREADS, thread_name_prefix=f"oncelog-{name}", initializer=begin)
        self.holding_much = asyncio.Semaphore(THREADS)  # for work whose memory nothing else counts

    async def run(self, work: Callable[..., Result], *arguments: object) -> Result:
        return await asyncio.get_running_loop().run_in_executor(self.threads, work, *arguments)

    def close(self) -> None:
        self.threads.shutdown(wait=False, cancel_futures=True)


def _yield_to_others() -> None:
    if sys.platform == "linux":  # where each thread has a priority of its own
        thread = threading.get_native_id()
        # Nobody may take back how nice a process was started: that is enough, then.
        os.setpriority(os.PRIO_PROCESS, thread, max(YIELDING, os.getpriority(os.PRIO_PROCESS, thread)))
