"""Long work takes turns, so that no request holds the others up.

In each round of the event loop all long work together has a few milliseconds. What is not done by then waits in a
queue, whatever connection it came in by; each round takes up the first of it, and between two rounds the loop looks at
every connection.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor
from typing import TypeVar

from oncelog.log.work_steps import Pauses, Steps

TURN_MS = 5

Result = TypeVar("Result")
Callback = Callable[[], None]


async def called(wait: Callable[[Callback], None], forget: Callable[[Callback], None] = lambda callback: None) -> None:
    """Wait until what was passed to `wait` is called. It may be called when nobody waits any more."""
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def callback() -> None:
        if not future.done():
            future.set_result(None)

    wait(callback)
    try:
        await future
    finally:
        forget(callback)


class Turns:
    def __init__(self, now_ms: Callable[[], int], threads: Executor | None = None) -> None:
        self._now_ms = now_ms
        self._threads = threads
        self._waiting: deque[Callable[[], object]] = deque()
        self._began_ms: int | None = None  # in this round: when something first asked

    def is_over(self) -> bool:
        """Whether long work has had its part of this round."""
        now_ms = self._now_ms()
        if self._began_ms is None:
            self._begin(now_ms)
            return False
        return now_ms - self._began_ms >= TURN_MS

    def wait(self, callback: Callable[[], None]) -> None:
        """Call it when its turn has come."""
        self._waiting.append(callback)
        if self._began_ms is None:
            self._begin(self._now_ms())

    def wait_first(self, callback: Callable[[], object]) -> None:
        """Put a short callback first: it spares others their turns."""
        if self._began_ms is None:
            self._begin(self._now_ms())
        self._waiting.appendleft(callback)

    async def next(self) -> None:
        await called(self.wait)

    async def pause(self) -> None:
        """Pause between two steps of something long: others come first, where it has had its turn."""
        if self.is_over():
            await self.next()

    async def run(self, steps: Steps[Result], threads: Executor | None = None) -> Result:
        """The result of the steps, as many in a turn as fit. Steps that wait for the disk do so in a thread."""
        failure: Exception | None = None
        try:
            while True:
                try:
                    wait = next(steps) if failure is None else steps.throw(failure)
                except StopIteration as end:
                    result: Result = end.value
                    return result
                failure = None
                if wait is not None:
                    try:
                        await asyncio.get_running_loop().run_in_executor(threads or self._threads, wait)
                    except Exception as error:
                        failure = error
                if self.is_over():
                    await self.next()
        finally:
            steps.close()  # where nobody waits any more

    def go_through(self, steps: Pauses) -> None:
        """Do background work step by step, as many steps in a turn as fit."""
        for _ in steps:
            if self.is_over():
                self.wait(lambda: self.go_through(steps))
                return

    def _begin(self, now_ms: int) -> None:
        self._began_ms = now_ms
        asyncio.get_running_loop().call_soon(self._next_round)

    def _next_round(self) -> None:
        self._began_ms = None
        if self._waiting:
            self._begin(self._now_ms())
            self._waiting.popleft()()
