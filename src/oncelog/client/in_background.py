"""What takes long to load, loaded once, in a thread of its own, when somebody first needs it."""

from collections.abc import Callable
from threading import Lock, Thread
from typing import Generic, TypeVar

from oncelog.waiting import until_ended

T = TypeVar("T")


class InBackground(Generic[T]):
    def __init__(self, load: Callable[[], T | None]) -> None:
        self.found: T | None = None
        self._load = load
        self._lock = Lock()
        self._thread: Thread | None = None

    def fetch(self, *, wait: bool = False) -> None:
        with self._lock:
            if self._thread is None:
                self._thread = Thread(target=self._run, name="oncelog-loops", daemon=True)
                self._thread.start()
        if wait:
            until_ended(self._thread)

    def _run(self) -> None:
        self.found = self._load()
