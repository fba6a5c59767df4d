"""How a `Consumer` waits and calls back: in the application's thread, while another one fetches ahead."""

import threading
import weakref
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

from oncelog.client.consumer.asked import closed_in_callback
from oncelog.client.consumer.operations import Operations
from oncelog.client.errors import KafkaError, KafkaException
from oncelog.client.net.loop_thread import FORKED, LoopThread
from oncelog.client.properties import ConsumerSettings
from oncelog.clock import monotonic_s
from oncelog.waiting import until_set

T = TypeVar("T")

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
            call = calls.popleft()
            self._is_in_callback = call.then is not None
            try:
                if call.function is not None:
                    call.function()
            finally:
                self._is_in_callback = False
                if call.then is not None:
                    self.run(call.then())

    def close(self) -> None:
        if self.is_closed:
            return
        if self._thread.is_forked:
            self.is_closed = True
            return
        if self._is_in_callback:
            raise closed_in_callback()
        try:
            self._leave()
            self.run(self._started.close(), CLOSE_TIMEOUT_S)
            self.serve_calls()
        finally:
            self.is_closed = True
            self._finalizer()

    def _leave(self) -> None:
        """The group waits for our callbacks, so they are served until we are out of it."""
        give_up_s = monotonic_s() + CLOSE_TIMEOUT_S
        # No coroutine is made here: a signal would come between making it and handing it over.
        self._thread.call_soon(self._started.begin_leaving, self._something_came.set)
        while not self._started.has_left and monotonic_s() < give_up_s:
            self._something_came.clear()
            self.serve_calls()
            if not self._started.has_left and not self._started.core.calls:
                until_set(self._something_came, give_up_s - monotonic_s())


async def _start(settings: ConsumerSettings, notify: Callable[[], None], wake: Callable[..., None]) -> Operations:
    operations = Operations(settings, notify, wake)
    await operations.start()
    return operations
