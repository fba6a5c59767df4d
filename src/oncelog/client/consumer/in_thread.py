"""Waiting and callbacks of a `Consumer`: in the application's thread, while another one fetches ahead."""

import asyncio
import threading
import weakref
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from functools import partial
from typing import Any, Final, TypeVar

from oncelog.client.consumer.asked import closed_in_callback
from oncelog.client.consumer.calls import Call
from oncelog.client.consumer.operations import Operations
from oncelog.client.errors import KafkaError, KafkaException
from oncelog.client.net.loop_thread import FORKED, LoopThread
from oncelog.client.net.shared_work import closed_meanwhile
from oncelog.client.properties import ConsumerSettings
from oncelog.clock import monotonic_s
from oncelog.waiting import result_of, until_set

T = TypeVar("T")
Then = Callable[[], Coroutine[Any, Any, None]]

CLOSE_TIMEOUT_S: Final = 30.0
# Whether `commit()` returns before anything is committed. A thread that waited could do nothing else meanwhile.
COMMITS_LATER: Final = True


class InThread:
    """The driver of a thread that knows nothing of asyncio; `ready` gets what is there at once."""

    def __init__(self, settings: ConsumerSettings, ready: Callable[[Operations], None]) -> None:
        self._something_came = threading.Event()
        self._thread = LoopThread("oncelog-consumer")
        self._is_in_callback = False
        self.is_closed = False
        try:
            self._started = self._thread.run(_start(settings, self._something_came.set, self._thread.call_soon))
        except BaseException:
            self._thread.stop()
            raise
        # A consumer that was forgotten does not leave its thread behind.
        self._finalizer = weakref.finalize(self, self._thread.stop)
        self._finalizer.atexit = False
        ready(self._started)

    @property
    def operations(self) -> Operations:
        if self.is_closed:
            raise RuntimeError("Consumer closed")
        if self._thread.is_forked:
            raise KafkaException(KafkaError(KafkaError._STATE, f"this consumer {FORKED}"))
        return self._started

    def run(self, coroutine: Coroutine[Any, Any, T], timeout_s: float | None = None) -> T:
        return self._thread.run(coroutine, timeout_s)

    def wait(self, give_up_s: float | None) -> bool:
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
            return until_set(self._something_came, left_s)
        finally:
            operations.is_waiting = False

    def serve_calls(self) -> None:
        calls = self.operations.core.calls
        while calls:
            call = calls[0]
            self._is_in_callback = call.then is not None
            try:
                calls.popleft()  # in here: a signal that comes right behind it keeps nobody waiting for what follows
                if call.function is not None:
                    call.function()
            finally:
                self._is_in_callback = False
                if call.then is not None:
                    self._follow(call.then)

    def _follow(self, then: Then) -> None:
        """Do what follows, though a signal ends the wait for it: the group waits for it. The next poll waits for it
        before anything else."""
        following: Future[None] = Future()
        try:
            self._thread.call_soon(self._begin, then, following)
            result_of(following)
        except BaseException:
            if not following.done():
                self._started.core.calls.appendleft(Call(None, partial(_rest, then, following)))
            raise

    def _begin(self, then: Then, following: "Future[None]") -> None:
        following.set_running_or_notify_cancel()
        self._started.core.tasks.begin(then()).add_done_callback(partial(_told, following))

    def close(self) -> None:
        if self.is_closed:
            return
        if self._thread.is_forked:
            self.is_closed = True
            return
        if self._is_in_callback:
            raise closed_in_callback()
        try:
            failure = self._leave()
            self.run(self._started.close(), CLOSE_TIMEOUT_S)
            self.serve_calls()
        finally:
            self.is_closed = True
            self._finalizer()
        if failure is not None:
            raise failure

    def _leave(self) -> Exception | None:
        """The group waits for our callbacks, so they are served until we are out of it; what one of them raised first
        is said when all is over."""
        failure: Exception | None = None
        give_up_s = monotonic_s() + CLOSE_TIMEOUT_S
        # No coroutine is made here: a signal would come between making it and handing it over.
        self._thread.call_soon(self._started.begin_leaving, self._something_came.set)
        while not self._started.has_left and monotonic_s() < give_up_s:
            self._something_came.clear()
            try:
                self.serve_calls()
            except Exception as raised:
                failure = failure or raised
            if not self._started.has_left and not self._started.core.calls:
                until_set(self._something_came, give_up_s - monotonic_s())
        return failure


async def _start(settings: ConsumerSettings, notify: Callable[[], None], wake: Callable[..., None]) -> Operations:
    operations = Operations(settings, notify, wake)
    await operations.start()
    return operations


async def _rest(then: Then, following: "Future[None]") -> None:
    """Do what a signal kept the application from waiting for, or even from handing over."""
    if following.running() or following.done():
        await asyncio.shield(asyncio.wrap_future(following))
    else:
        await then()


def _told(following: "Future[None]", task: "asyncio.Task[None]") -> None:
    if task.cancelled():
        following.set_exception(KafkaException(closed_meanwhile()))
    elif (failure := task.exception()) is not None:
        following.set_exception(failure)
    else:
        following.set_result(None)
