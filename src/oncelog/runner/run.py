"""A flow at work, as users have it in hand: with the names of Spark's StreamingQuery."""

import asyncio
import atexit
import gc
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, Protocol

from oncelog.client.door import LoopThread
from oncelog.clock import monotonic_s
from oncelog.flow.errors import FlowFailed, FlowRefused
from oncelog.flow.program import Program
from oncelog.runner.agreeing import Agreed
from oncelog.runner.cell_sharing import SharingEngine
from oncelog.runner.engine import Engine
from oncelog.runner.layout import Layout
from oncelog.runner.metrics import Scraped
from oncelog.runner.progress import CellProgress, Progress
from oncelog.waiting import until_set

END: Final = "end"
LINE_EVERY_S: Final = 1.0


def start(
    program: Program,
    properties: Mapping[str, Any],
    *,
    until: str | None = None,
    run_id: str | None = None,
    share: bool = False,
    metrics: str | None = None,
) -> "Run":
    """Returns when its topics are as they should be and its cells are at work; raises FlowRefused where they cannot
    be. With `share` other processes may do the same, and all share the cells."""
    engine = SharingEngine if share else Engine
    return Run(engine(program, properties, run_id, until_end=has_end(until)), metrics)


def has_end(until: str | None) -> bool:
    if until not in (None, END):
        raise FlowRefused(f'until={until!r} is not known: leave it out, or say until="end"')
    return until == END


class Running(Protocol):
    """The engine of a run: in this process, or one that has Spark's tasks do the work."""

    done: asyncio.Event

    @property
    def layout(self) -> Layout: ...
    @property
    def agreed(self) -> Agreed: ...
    @property
    def progress(self) -> Progress: ...
    @property
    def failure(self) -> FlowFailed | None: ...

    async def begin(self, wake: Callable[[Callable[[], None]], object]) -> None: ...
    async def close(self) -> None: ...
    def stop(self) -> None: ...


class Run:
    def __init__(self, engine: Running, metrics: str | None = None) -> None:
        """`metrics`: an address where they are served, HOST:PORT."""
        self._engine = engine
        self._scraped = None if metrics is None else Scraped(self, metrics)
        self.metrics: str | None = None  # where they are served
        self._thread = LoopThread("oncelog-flow")
        self._ended = threading.Event()
        self._exception: FlowFailed | None = None
        try:
            if self._scraped is not None:  # first: a port that is taken takes no cell from another run
                self.metrics = self._scraped.begin()
            self._thread.run(engine.begin(self._thread.call_soon))
        except BaseException:
            self._thread.stop()
            if self._scraped is not None:
                self._scraped.end()
            raise
        if self._scraped is not None:
            self._scraped.has_begun = True
        self._thread.call_soon(lambda: asyncio.ensure_future(self._until_done()))

    async def _until_done(self) -> None:
        try:
            await self._engine.done.wait()
            await self._engine.close()
        except FlowFailed as failed:
            self._exception = failed
        except Exception as failure:
            self._exception = FlowFailed(f"flow {self.name}: {type(failure).__name__}: {failure}")
            self._exception.__cause__ = failure
        except BaseException:
            self._exception = FlowFailed(f"flow {self.name}: its loop was stopped under it. Start the flow again")
            raise
        finally:
            self._engine.progress.ended()
            if self._scraped is not None:
                self._scraped.end()
            self._ended.set()

    @property
    def id(self) -> str:
        """The id of the flow, the same in each of its runs."""
        return self._engine.agreed.flow_id

    @property
    def run_id(self) -> str:
        return self._engine.agreed.run_id

    @property
    def name(self) -> str:
        return self._engine.layout.flow

    @property
    def is_active(self) -> bool:
        return not self._ended.is_set()

    @property
    def status(self) -> dict[str, Any]:
        last = self.last_progress
        is_there = last is not None and any(stage["lag"] for stage in last["stages"].values())
        message = self._engine.progress.line if self.is_active else "Stopped"
        return {"message": message, "isDataAvailable": is_there, "isTriggerActive": self.is_active}

    @property
    def last_progress(self) -> dict[str, Any] | None:
        recent = self.recent_progress
        return recent[-1] if recent else None

    @property
    def recent_progress(self) -> list[dict[str, Any]]:
        """Progress by the second: the last hundred looks."""
        return list(self._engine.progress.recent)

    @property
    def cells(self) -> Sequence[CellProgress]:
        """The cells as they were at the last look; in a run with `share` those of other processes, too."""
        return self._engine.progress.cells

    @property
    def is_paused(self) -> bool:
        return self._engine.progress.is_paused

    def exception(self) -> FlowFailed | None:
        """The cells that have stopped so far without being asked to, and why; the others go on. None where all is
        well."""
        return self._exception or self._engine.failure

    def await_termination(self, timeout: float | None = None) -> bool | None:
        """Wait until the run has ended; raises what `exception()` gives. With a timeout in seconds, returns whether it
        has."""
        has_ended = until_set(self._ended, timeout)
        if has_ended:
            self._thread.stop()
            if self._exception is not None:
                raise self._exception
        return None if timeout is None else has_ended

    def stop(self) -> None:
        """Commit what is done and say goodbye, within three seconds; then the run is over."""
        self._thread.call_soon(self._engine.stop)
        until_set(self._ended)
        self._thread.stop()

    # --- `Flow.run`

    def work(self) -> int | None:
        """Work until it ends on its own, or Ctrl-C or SIGTERM comes; raises what `exception()` gives. Returns the
        number of the signal, where one came first."""
        with _signals() as signals:
            line = _Line()
            while not until_set(self._ended, 0.1):
                line.show(self._engine.progress.line)
                if signals:
                    atexit.register(gc.freeze)  # who waits for the end waits for no search through all that is loaded
                    break
            line.end()
            self.stop()
        self.await_termination()
        return signals[0] if signals else None


@contextmanager
def _signals() -> Iterator[list[int]]:
    """The signals that came. The first one asks to stop, a second one does what it did before."""
    asked: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield asked
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def ask(number: int, _: object) -> None:
        asked.append(number)
        signal.signal(number, before[signal.Signals(number)])

    for number in before:
        signal.signal(number, ask)
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class _Line:
    """One line of a terminal, written over each time. Elsewhere nothing is shown: the log has a line a minute."""

    def __init__(self) -> None:
        self._is_shown = sys.stderr.isatty()
        self._due_s = 0.0

    def show(self, text: str) -> None:
        if self._is_shown and monotonic_s() >= self._due_s:
            self._due_s = monotonic_s() + LINE_EVERY_S
            sys.stderr.write(f"\r\x1b[K{text}")
            sys.stderr.flush()

    def end(self) -> None:
        if self._is_shown:
            sys.stderr.write("\n")
