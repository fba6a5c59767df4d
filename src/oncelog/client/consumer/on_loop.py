"""Waiting and callbacks of an `AsyncConsumer`: on the application's own event loop."""

import asyncio
import inspect
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

from oncelog.client.consumer.asked import closed_in_callback
from oncelog.client.consumer.calls import Call
from oncelog.client.consumer.operations import Operations
from oncelog.client.errors import KafkaError, KafkaException
from oncelog.client.properties import ConsumerSettings
from oncelog.clock import monotonic_s

T = TypeVar("T")

# Whether `commit()` returns before anything is committed. On a loop nobody else is held up by waiting for it.
COMMITS_LATER: Final = False


class OnLoop:
    """The driver on the loop that it is started on; `ready` gets what is then there."""

    def __init__(self, settings: ConsumerSettings, ready: Callable[[Operations], None]) -> None:
        self._settings = settings
        self._ready = ready
        self._something_came = asyncio.Event()
        self._started: Operations | None = None
        self._is_in_callback = False
        self.is_closed = False

    async def start(self) -> None:
        if self._started is None and not self.is_closed:
            wake = asyncio.get_running_loop().call_soon_threadsafe
            self._started = Operations(self._settings, self._something_came.set, wake)
            await self._started.start()
            self._ready(self._started)

    @property
    def operations(self) -> Operations:
        if self.is_closed:
            raise RuntimeError("Consumer closed")
        if self._started is None:
            raise RuntimeError("Consumer not started: use `async with`, or await start()")
        return self._started

    async def run(self, coroutine: Coroutine[Any, Any, T], timeout_s: float | None = None) -> T:
        try:
            async with asyncio.timeout(timeout_s) as limit:
                return await coroutine
        except TimeoutError:
            if not limit.expired():
                raise
            words = f"no result within {timeout_s:g} s"
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, words, retriable=True)) from None

    async def wait(self, give_up_s: float | None) -> bool:
        """Wait until something has come; False when the time is over."""
        self._something_came.clear()
        operations = self.operations
        if operations.has_something:
            return True
        left_s = None if give_up_s is None else give_up_s - monotonic_s()
        if left_s is not None and left_s <= 0:
            return False
        operations.is_waiting = True
        try:
            async with asyncio.timeout(left_s):
                await self._something_came.wait()
        except TimeoutError:
            return False
        finally:
            operations.is_waiting = False
        return True

    async def serve_calls(self) -> None:
        core = self.operations.core
        while core.calls:
            call = core.calls.popleft()
            self._is_in_callback = call.then is not None
            try:
                if call.function is not None:
                    result = call.function()
                    if inspect.isawaitable(result):
                        await result
            finally:
                self._is_in_callback = False
                if call.then is not None:
                    await self._follow(core.calls, core.tasks.begin(call.then()))

    async def _follow(self, calls: deque[Call], following: "asyncio.Task[None]") -> None:
        """Do what follows, though the poll is given up: the group waits for it. The next poll waits for it before
        anything else."""
        try:
            await asyncio.wait((following,))
        except asyncio.CancelledError:
            if not following.done():
                calls.appendleft(Call(None, lambda: self._follow(calls, following)))
            raise
        if not following.cancelled():
            following.result()

    async def close(self) -> None:
        if self.is_closed or self._started is None:
            self.is_closed = True
            return
        if self._is_in_callback:
            raise closed_in_callback()
        operations = self._started
        try:
            failure = await self._leave(operations)
            await operations.close()
            await self.serve_calls()
        except BaseException:
            await operations.core.close()
            raise
        finally:
            self.is_closed = True
        if failure is not None:
            raise failure

    async def _leave(self, operations: Operations) -> Exception | None:
        """The group waits for our callbacks, so they are served until we are out of it; what one of them raised first
        is said when all is over."""
        failure: Exception | None = None
        operations.begin_leaving(self._something_came.set)
        while not operations.has_left:
            self._something_came.clear()
            try:
                await self.serve_calls()
            except Exception as raised:
                failure = failure or raised
            if not operations.has_left and not operations.core.calls:
                await self._something_came.wait()
        return failure
