"""What takes long and needs nothing of the loop's: requests put into structs, and answers into bytes, by a few threads.

They share the interpreter with the loop, which therefore asks for it back often (`GIVE_WAY_S`).
"""

import asyncio
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

THREADS = 2
GIVE_WAY_S = 0.001

Result = TypeVar("Result")


class Aside:
    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="oncelog-aside")

    async def run(self, work: Callable[..., Result], *arguments: object) -> Result:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work, *arguments)

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)


def give_way() -> None:
    """For a process that is a server and nothing else: threads hand the interpreter over sooner than by default."""
    sys.setswitchinterval(GIVE_WAY_S)
