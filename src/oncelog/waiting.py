"""Waits that a signal ends.

Python runs a signal's handler only between two steps of the main thread, and a signal that comes just before the thread
goes to sleep in a lock does not wake it: so nothing here sleeps for long without looking up.
"""

from concurrent.futures import Future
from threading import Event, Thread
from typing import Final, TypeVar

from oncelog.clock import monotonic_s

T = TypeVar("T")

LOOKS_UP_EVERY_S: Final = 0.1


def until_set(event: Event, timeout_s: float | None = None) -> bool:
    """Wait as the event's own `wait` does."""
    if timeout_s is None:
        while not event.wait(LOOKS_UP_EVERY_S):
            pass
        return True
    give_up_s = monotonic_s() + timeout_s
    while not event.wait(min(timeout_s, LOOKS_UP_EVERY_S)):
        timeout_s = give_up_s - monotonic_s()
        if timeout_s <= 0:
            return event.is_set()
    return True


def result_of(future: "Future[T]", timeout_s: float | None = None) -> T:
    """Wait as the future's own `result` does."""
    if not future.done():
        done = Event()
        future.add_done_callback(lambda _: done.set())
        if not until_set(done, timeout_s):
            raise TimeoutError
    return future.result()


def until_ended(thread: Thread) -> None:
    """Wait as the thread's own `join` does."""
    while thread.is_alive():
        thread.join(LOOKS_UP_EVERY_S)
