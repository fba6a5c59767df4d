"""Who may go past which step: the test's side of `hooks.py`.

A `Stop` is set before the work begins; the first process that reaches its step with its facts stands still there and
is the stop's `Visit`. What a test then does to it, to its JVM or to a server happens while it stands at that step.
"""

import json
import os
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

from oncelog.chaos.process_tree import parent_of
from tests.lives.processes import await_end, kill
from tests.spark.kills.hooks import CONTROLLER, GO
from tests.waiting import ASK_AGAIN_SECONDS

PATIENCE_S = float(os.environ.get("KILLS_PATIENCE_S", "120"))
SITE = Path(__file__).parent / "site"  # in the path of every process under test: there stands what tells us of it


class Answered(Protocol):
    @property
    def is_answered(self) -> bool: ...
    def outcome(self) -> str: ...


@dataclass
class Visit:
    """One process at one step. It stands there until `release`, unless it was let pass at once."""

    step: str
    facts: dict[str, Any]
    connection: socket.socket | None = None

    @property
    def pid(self) -> int:
        return int(self.facts["pid"])

    @property
    def jvm(self) -> int:
        found = self.facts["jvm"]
        assert found is not None, f"the process at {self.step!r} has no JVM above it: {self.facts}"
        return int(found)

    def release(self) -> None:
        if self.connection is None:
            return
        try:
            self.connection.sendall(GO)
        except OSError:
            pass  # it was killed meanwhile
        self.connection.close()
        self.connection = None

    def kill(self) -> None:
        """kill -9 of the process that stands here, which goes no further."""
        kill(self.pid)
        await_end(self.pid)
        self.release()

    def kill_jvm(self) -> None:
        """kill -9 of the JVM above, the driver in local mode, an executor on a cluster; what stands here goes too."""
        kill(self.jvm)
        await_end(self.jvm)
        kill(self.pid)
        self.release()

    def orphan(self) -> None:
        """kill -9 of the JVM and of the daemon between, so that nobody tells this process that all is over."""
        daemon = parent_of(self.pid)
        if daemon != self.jvm:
            kill(daemon)
        kill(self.jvm)
        await_end(self.jvm)


@dataclass
class Stop:
    """Where the next process is to be held: the step, and what must be true of the facts that it tells."""

    steps: tuple[str, ...]
    wanted: dict[str, Any]
    skip: int = 0
    when: Callable[[dict[str, Any]], bool] | None = None
    last_seen: Callable[[], list[str]] = list
    visit: Visit | None = None
    arrived: threading.Event = field(default_factory=threading.Event)

    def matches(self, step: str, facts: dict[str, Any]) -> bool:
        if self.arrived.is_set() or step not in self.steps:
            return False
        if any(facts.get(name) != value for name, value in self.wanted.items()):
            return False
        return self.when is None or self.when(facts)

    def reached(self, request: Answered | None = None, timeout_s: float = PATIENCE_S) -> Visit:
        """Waits for a process to stand here. That it comes is what makes the test one of this step; where the request
        that should bring it here is answered first, it never will."""
        give_up = time.monotonic() + timeout_s
        while not self.arrived.wait(ASK_AGAIN_SECONDS):
            if request is not None and request.is_answered and not self.arrived.is_set():
                raise AssertionError(f"nobody reached {self}: {request.outcome()}")
            if time.monotonic() > give_up:
                raise AssertionError(f"nobody reached {self} within {timeout_s:g} s; the last were {self.last_seen()}")
        assert self.visit is not None
        return self.visit

    def __str__(self) -> str:
        return f"{self.steps} {self.wanted}"


class Controller:
    """Listens on a port of its own; each process that reaches a step is one connection."""

    def __init__(self) -> None:
        self.visits: list[Visit] = []
        self._stops: list[Stop] = []
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=100)
        self._thread = threading.Thread(target=self._listen, name="controller", daemon=True)

    @property
    def variables(self) -> dict[str, str]:
        """What the environment of every process under test needs."""
        return {CONTROLLER: f"127.0.0.1:{self._listener.getsockname()[1]}"}

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()
        self.let_go()

    def at(
        self, step: str, *, skip: int = 0, when: Callable[[dict[str, Any]], bool] | None = None, **facts: Any
    ) -> Stop:
        """Holds the process that comes to `step` with these facts, after `skip` others have passed."""
        return self.at_any((step,), skip=skip, when=when, **facts)

    def at_any(
        self,
        steps: tuple[str, ...],
        *,
        skip: int = 0,
        when: Callable[[dict[str, Any]], bool] | None = None,
        **facts: Any,
    ) -> Stop:
        stop = Stop(steps, facts, skip, when, self._last_seen)
        with self._lock:
            self._stops.append(stop)
        return stop

    def let_go(self) -> None:
        """Forgets all stops; whoever stands at one goes on."""
        with self._lock:
            stops, self._stops = self._stops, []
        for stop in stops:
            if stop.visit is not None:
                stop.visit.release()

    def seen(self, step: str, **facts: Any) -> list[Visit]:
        with self._lock:
            visits = list(self.visits)
        return [
            visit
            for visit in visits
            if visit.step == step and all(visit.facts.get(name) == value for name, value in facts.items())
        ]

    def _last_seen(self) -> list[str]:
        return [f"{visit.step} {visit.facts}" for visit in self.visits[-6:]]

    def _listen(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self._greet(connection)

    def _greet(self, connection: socket.socket) -> None:
        try:
            connection.settimeout(PATIENCE_S)
            with connection.makefile("rb") as lines:
                told = lines.readline()
        except OSError:
            told = b""
        if not told.endswith(b"\n"):  # killed while it spoke: it has not reached anything
            connection.close()
            return
        facts = json.loads(told)
        visit = Visit(facts.pop("step"), facts, connection)
        if not self._is_held(visit):
            visit.release()

    def _is_held(self, visit: Visit) -> bool:
        with self._lock:
            self.visits.append(visit)
            for stop in self._stops:
                if not stop.matches(visit.step, visit.facts):
                    continue
                if stop.skip:
                    stop.skip -= 1
                    continue
                stop.visit = visit
                stop.arrived.set()
                return True
        return False
