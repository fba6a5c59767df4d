"""Objects that take long to load: loaded once, in a thread of their own, at the first need."""

from collections.abc import Callable
from threading import Lock, Thread
from typing import Generic, TypeVar

from oncelog.waiting import until_ended

T = TypeVar("T")


class InBackground(Generic[T]):
    def __init__(self, load: Callable[[], T | None]) -> None:
        self.found: T | None = None
        self._load = load
        self._is_over = False
        self._lock = Lock()
        self._thread: Thread | None = None
        self._waiting: list[Callable[[], object]] = []

    @property
    def is_loading(self) -> bool:
        """False in a process that was forked meanwhile: it has no such thread."""
        return self._thread is not None and not self._is_over and self._thread.is_alive()

    def fetch(self, *, wait: bool = False) -> None:
        with self._lock:
            if self._thread is None:
                self._thread = Thread(target=self._run, name="oncelog-loops", daemon=True)
                self._thread.start()
        if wait:
            until_ended(self._thread)

    def when_loaded(self, call: Callable[[], object]) -> None:
        """Called in the thread that loads it, or at once where nothing is being loaded."""
        with self._lock:
            if self.is_loading:
                self._waiting.append(call)
                return
        call()

    def _run(self) -> None:
        try:
            self.found = self._load()
        finally:
            with self._lock:
                self._is_over, waiting = True, self._waiting
            for call in waiting:
                call()
