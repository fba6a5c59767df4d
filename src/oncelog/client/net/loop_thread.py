"""A thread with an event loop in it: where a client works whose user knows nothing of asyncio."""

import asyncio
import concurrent.futures
import os
import sys
import threading
import weakref
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

from oncelog.client.errors import KafkaError, KafkaException
from oncelog.waiting import result_of, until_ended, until_set

T = TypeVar("T")

START_TIMEOUT_S = 60
FORKED: Final = "was made before the process forked: a forked process needs one of its own"


class LoopThread:
    """Runs from the moment it is made until `stop`. It is a daemon: a program that forgot it still ends."""

    def __init__(self, name: str = "oncelog-client") -> None:
        self._loop = _new_loop()
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._is_stopped = False
        self.is_forked = False  # this is the child of the process whose thread it is, and has only its memory
        started = threading.Event()
        self._loop.call_soon(started.set)
        self._thread.start()
        _threads.add(self)
        try:
            if not until_set(started, START_TIMEOUT_S):
                raise KafkaException(KafkaError(KafkaError._FAIL, "the client's thread did not start"))
        except BaseException:  # nobody else could
            self.stop()
            raise

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        return self._loop

    @property
    def is_current(self) -> bool:
        """Whether the caller is this very thread, which must never wait for itself."""
        return threading.current_thread() is self._thread

    def run(self, coroutine: Coroutine[Any, Any, T], timeout_s: float | None = None) -> T:
        """The coroutine's result. When the time is over, or Ctrl-C comes, the coroutine is cancelled."""
        if self.is_forked or self.is_current or self._is_stopped:
            coroutine.close()
            raise KafkaException(KafkaError(KafkaError._STATE, f"the client {self._why_not()}"))
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return result_of(future, timeout_s)
        except concurrent.futures.CancelledError:
            raise KafkaException(KafkaError(KafkaError._DESTROY, "the client was closed meanwhile")) from None
        except TimeoutError:
            if future.done():
                raise  # the coroutine's own
            future.cancel()
            if timeout_s is None:
                raise  # somebody's, out of a signal handler
            raise KafkaException(
                KafkaError(KafkaError._TIMED_OUT, f"no result within {timeout_s:g} s", retriable=True)
            ) from None
        except BaseException:
            future.cancel()
            raise

    def _why_not(self) -> str:
        if self.is_forked:
            return FORKED
        return "is called from its own callback: it would wait for itself" if self.is_current else "is closed"

    def call_soon(self, function: Callable[..., object], *arguments: Any) -> None:
        """Have it called in the thread; nothing happens once that has stopped."""
        if self.is_forked:  # it would wake the parent's
            return
        try:
            self._loop.call_soon_threadsafe(function, *arguments)
        except RuntimeError:
            if not self._loop.is_closed():
                raise

    def stop(self) -> None:
        """End the loop with everything that still runs on it; the second time nothing happens."""
        if self._is_stopped:
            return
        self._is_stopped = True
        self.call_soon(self._loop.stop)
        if not self.is_current and not self.is_forked:
            until_ended(self._thread)

    def _work(self) -> None:
        loop = self._loop
        asyncio.set_event_loop(loop)
        try:
            loop.run_forever()
        finally:
            try:
                left = asyncio.all_tasks(loop)
                for task in left:
                    task.cancel()
                if left:
                    loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
                loop.run_until_complete(loop.shutdown_asyncgens())
                loop.run_until_complete(loop.shutdown_default_executor())
            finally:
                asyncio.set_event_loop(None)
                loop.close()


def _new_loop() -> asyncio.AbstractEventLoop:
    if sys.platform == "win32":
        return asyncio.new_event_loop()
    import uvloop

    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop


_threads: Final[weakref.WeakSet[LoopThread]] = weakref.WeakSet()
_of_the_parent: Final[list[LoopThread]] = []


def _after_fork() -> None:
    """The child keeps them for good: to end a loop there would take the parent's sockets out of the selector that
    both share."""
    for thread in tuple(_threads):
        thread.is_forked = True
        _of_the_parent.append(thread)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
