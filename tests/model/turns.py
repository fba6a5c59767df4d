"""Processes that take turns: each is a thread that runs only while it is its turn, up to the next point at which it
could be stopped or killed. Who runs next is the caller's choice, so a run is repeated by a seed or a list of choices.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

_here = threading.local()


class Killed(BaseException):
    """The process is gone; nothing of it runs any more."""


def point(name: str = "") -> None:
    """Here another one may have its turn, and this one may be killed."""
    at: Callable[[str], None] | None = getattr(_here, "at", None)
    if at is not None:
        at(name)


@contextmanager
def passing(at: Callable[[str], None]) -> Iterator[None]:
    """What happens at the points of this thread."""
    _here.at = at
    try:
        yield
    finally:
        _here.at = None


class Actor:
    """One process."""

    def __init__(self, name: str, work: Callable[[], Any]) -> None:
        self.name = name
        self.result: Any = None
        self.failure: Exception | None = None
        self.is_over = False
        self.is_doomed = False
        self._work = work
        self._turn = threading.Semaphore(0)
        self._yielded = threading.Semaphore(0)
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        self._turn.acquire()
        try:
            if not self.is_doomed:
                with passing(lambda name: self._pause()):
                    self.result = self._work()
        except Killed:
            pass
        except Exception as failure:
            self.failure = failure
        self.is_over = True
        self._yielded.release()

    def _pause(self) -> None:
        self._yielded.release()
        self._turn.acquire()
        if self.is_doomed:
            raise Killed

    @property
    def has_succeeded(self) -> bool:
        return self.is_over and self.failure is None and not self.is_doomed

    def go(self) -> None:
        """One turn, up to its next point."""
        self._turn.release()
        self._yielded.acquire()
        if self.is_over:
            self._thread.join()

    def kill(self) -> None:
        if not self.is_over:
            self.is_doomed = True
            self.go()
