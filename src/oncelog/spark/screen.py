"""The place where progress is shown: a line that is drawn over in a terminal, lines one after another in a log.

Both are told the same things, by several threads: what runs, what a query has done, that it ended.
"""

import logging
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Final, Protocol, TextIO

from oncelog.clock import Clock, SystemClock
from oncelog.spark.drawn_line import DrawnLine, terminal_width
from oncelog.spark.progress import Batch, Stage, bar, batch_words, end_words, short_bar, stages_words

# Work that is shorter needs no bar, and one that would be drawn for an instant only flickers.
SHOW_AFTER_MS: Final = 500
# Batches that follow each other faster share a line in a log.
LINE_EVERY_MS: Final = 1000
# The time between two lines about a stage that is still running.
STAGE_EVERY_MS: Final = 30_000

_log: Final = logging.getLogger("oncelog.spark.progress")


class Screen(Protocol):
    """`ask_again_ms`: how often it wants to hear of what runs."""

    ask_again_ms: int

    def working(self, stages: Sequence[Stage]) -> None: ...
    def batch(self, run: str, batch: Batch) -> None: ...
    def ended(self, run: str, error: str | None) -> None: ...
    def close(self) -> None: ...


@dataclass(slots=True)
class _Query:
    """One run of a streaming query, so far."""

    last: Batch
    since_ms: int
    batches: int = 0
    rows: int = 0
    untold: Batch | None = None
    told_ms: int = -LINE_EVERY_MS

    def add(self, batch: Batch) -> None:
        self.last = batch
        self.batches += 1
        self.rows += batch.rows
        self.untold = batch if self.untold is None else self.untold.and_then(batch)


class _Since:
    """The time that stages have been running, which Spark's own counts do not say."""

    def __init__(self) -> None:
        self._first_seen_ms: dict[int, int] = {}

    def __call__(self, stages: Sequence[Stage], now_ms: int) -> int:
        self._first_seen_ms = {stage.number: self._first_seen_ms.get(stage.number, now_ms) for stage in stages}
        return now_ms - min(self._first_seen_ms.values(), default=now_ms)


class _Queries:
    def __init__(self) -> None:
        self._runs: dict[str, _Query] = {}

    def add(self, run: str, batch: Batch, now_ms: int) -> _Query:
        query = self._runs.setdefault(run, _Query(batch, now_ms - batch.took_ms))
        query.add(batch)
        return query

    def end(self, run: str) -> _Query | None:
        return self._runs.pop(run, None)

    def all(self) -> list[_Query]:
        return list(self._runs.values())


class Terminal:
    """One line at the bottom, drawn again and again, and nothing left of it afterwards but how each query ended."""

    ask_again_ms = 250

    def __init__(
        self,
        stream: TextIO,
        clock: Clock | None = None,
        width: Callable[[], int] = terminal_width,
    ) -> None:
        self._line = DrawnLine(stream, width)
        self._clock = clock or SystemClock()
        self._lock = Lock()
        self._since = _Since()
        self._queries = _Queries()
        self._stages: Sequence[Stage] = ()

    def working(self, stages: Sequence[Stage]) -> None:
        with self._lock:
            self._stages = stages
            self._draw()

    def batch(self, run: str, batch: Batch) -> None:
        with self._lock:
            self._queries.add(run, batch, self._clock.now().monotonic_ms)
            self._draw()

    def ended(self, run: str, error: str | None) -> None:
        with self._lock:
            query = self._queries.end(run)
            now_ms = self._clock.now().monotonic_ms
            if query is not None or error is not None:
                self._line.leave(_end(run, query, now_ms, error))
            self._draw()

    def close(self) -> None:
        with self._lock:
            self._stages = ()
            self._line.draw()

    def _draw(self) -> None:
        took_ms = self._since(self._stages, self._clock.now().monotonic_ms)
        parts = [batch_words(query.last) for query in self._queries.all()]
        if took_ms >= SHOW_AFTER_MS:
            parts.append(short_bar(self._stages) if parts else bar(self._stages, took_ms))
        self._line.draw(*parts)


class Lines:
    """One line a batch, one at the end of a query, and one now and then while a long stage runs."""

    ask_again_ms = 5000

    def __init__(self, say: Callable[[str], None] | None = None, clock: Clock | None = None) -> None:
        self._say = say or say_in_the_log
        self._clock = clock or SystemClock()
        self._lock = Lock()
        self._since = _Since()
        self._queries = _Queries()
        self._stages_told_ms = 0

    def working(self, stages: Sequence[Stage]) -> None:
        with self._lock:
            now_ms = self._clock.now().monotonic_ms
            took_ms = self._since(stages, now_ms)
            if took_ms < STAGE_EVERY_MS:
                self._stages_told_ms = 0
            elif took_ms - self._stages_told_ms >= STAGE_EVERY_MS:
                self._stages_told_ms = took_ms
                self._say(stages_words(stages, took_ms))
            for query in self._queries.all():
                self._tell(query, now_ms)

    def batch(self, run: str, batch: Batch) -> None:
        with self._lock:
            now_ms = self._clock.now().monotonic_ms
            self._tell(self._queries.add(run, batch, now_ms), now_ms)

    def ended(self, run: str, error: str | None) -> None:
        with self._lock:
            query = self._queries.end(run)
            if query is not None:
                self._tell(query, None)
            if query is not None or error is not None:
                self._say(_end(run, query, self._clock.now().monotonic_ms, error))

    def close(self) -> None:
        with self._lock:
            for query in self._queries.all():
                self._tell(query, None)

    def _tell(self, query: _Query, now_ms: int | None) -> None:
        """Tell a query's state. Without a time: whatever was not told yet."""
        if query.untold is None or (now_ms is not None and now_ms - query.told_ms < LINE_EVERY_MS):
            return
        self._say(batch_words(query.untold))
        query.untold = None
        if now_ms is not None:
            query.told_ms = now_ms


class Silent:
    """Progress that is not shown: Spark itself reports queries that an error stopped."""

    ask_again_ms = 0

    def working(self, stages: Sequence[Stage]) -> None:
        return

    def batch(self, run: str, batch: Batch) -> None:
        return

    def ended(self, run: str, error: str | None) -> None:
        return

    def close(self) -> None:
        return


def screen_for(stream: TextIO) -> Screen:
    return Terminal(stream) if stream.isatty() else Lines()


def say_in_the_log(line: str) -> None:
    """Say it by `logging`, where the program has set that up; else as a line on stderr, because nobody would see it
    there."""
    if _log.hasHandlers():
        _log.info(line)
    else:
        sys.stderr.write(f"oncelog: {line}\n")
        sys.stderr.flush()


def _end(run: str, query: _Query | None, now_ms: int, error: str | None) -> str:
    if query is None:
        return end_words(f"query {run[:8]}", 0, 0, 0, error)
    return end_words(query.last.query, query.batches, query.rows, now_ms - query.since_ms, error)
