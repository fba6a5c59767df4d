"""Lines and bars for a person who waits for Spark, made of counts. No Spark, no clock, no terminal in here."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

_TRACEBACK: Final = "Traceback (most recent call last):"
_TOLD: Final = re.compile(r"\boncelog(?:\.\w+)+: (.*)")  # what we raised, without frames
BAR_CELLS: Final = 24
SHORT_BAR_CELLS: Final = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """Tasks that Spark is running side by side."""

    number: int
    tasks: int
    done: int
    active: int = 0
    failed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """A micro-batch that is done; or several of one query, told together."""

    query: str
    first: int
    last: int
    rows: int
    took_ms: int
    behind: int | None

    def and_then(self, later: "Batch") -> "Batch":
        return Batch(
            query=self.query,
            first=self.first,
            last=later.last,
            rows=self.rows + later.rows,
            took_ms=self.took_ms + later.took_ms,
            behind=later.behind,
        )


def query_name(progress: Mapping[str, Any]) -> str:
    return str(progress.get("name") or f"query {str(progress['id'])[:8]}")


def batch_of(progress: Mapping[str, Any]) -> Batch:
    """A batch from the progress that Spark reports for each, as its JSON says it."""
    number = int(progress["batchId"])
    durations = progress.get("durationMs") or {}
    took_ms = int(progress.get("batchDuration") or durations.get("triggerExecution") or 0)
    behind = [records_behind(source) for source in progress.get("sources") or ()]
    known = [records for records in behind if records is not None]
    return Batch(
        query=query_name(progress),
        first=number,
        last=number,
        rows=int(progress.get("numInputRows") or 0),
        took_ms=took_ms,
        behind=sum(known) if known else None,
    )


def records_behind(source: Mapping[str, Any]) -> int | None:
    """The number of records beyond the batch's end, when Spark last asked; None for sources without offsets
    by topic and partition."""
    end, latest = _offsets(source.get("endOffset")), _offsets(source.get("latestOffset"))
    if end is None or latest is None:
        return None
    return sum(max(0, last - end.get(partition, 0)) for partition, last in latest.items())


def _offsets(said: object) -> dict[tuple[str, str], int] | None:
    """`{"topic": {"0": 23}}`, as our source and Spark's own for Kafka say it; names with a dollar are other things."""
    if isinstance(said, str):
        try:
            said = json.loads(said)
        except ValueError:
            return None
    if not isinstance(said, dict):
        return None
    topics = {topic: partitions for topic, partitions in said.items() if not topic.startswith("$")}
    if not all(isinstance(partitions, dict) for partitions in topics.values()):
        return None
    found = {(topic, index): offset for topic, by_index in topics.items() for index, offset in by_index.items()}
    return found if all(type(offset) is int for offset in found.values()) else None


# --- in words ---------------------------------------------------------------------------------------------------------


def batch_words(batch: Batch) -> str:
    batches = f"batch {batch.first}" if batch.first == batch.last else f"batches {batch.first} to {batch.last}"
    words = [f"{batches}: {_rows(batch.rows)} in {seconds(batch.took_ms)}"]
    if batch.rows and batch.took_ms:
        words.append(f"{batch.rows * 1000 / batch.took_ms:,.0f} rows/s")
    if batch.behind is not None:
        words.append(f"{batch.behind:,} behind" if batch.behind else "up to date")
    return f"{batch.query}, " + ", ".join(words)


def end_words(query: str, batches: int, rows: int, took_ms: int, error: str | None) -> str:
    count = f"{batches:,} batch" if batches == 1 else f"{batches:,} batches"
    if error is not None:
        return f"{query} stopped by an error after {count}: {reason(error)}"
    return f"{query} ended after {count}, {_rows(rows)} in {seconds(took_ms)}"


def reason(error: str) -> str:
    """The line of an error that says why: what a Python worker raised stands behind its frames, and in front of it
    stands only that there was a worker."""
    _, traceback, rest = error.rpartition(_TRACEBACK)
    if traceback:
        raised = next((line for line in rest.splitlines() if line and not line[0].isspace()), "")
        kind, colon, words = raised.partition(": ")
        if raised:
            return words if colon and kind.replace(".", "").isidentifier() else raised
    told = _TOLD.search(error)
    if told:
        return told[1]
    return error.strip().partition("\n")[0]


def stages_words(stages: Sequence[Stage], took_ms: int) -> str:
    tasks, done = sum(stage.tasks for stage in stages), sum(stage.done for stage in stages)
    failed = sum(stage.failed for stage in stages)
    trouble = f", {failed:,} failed" if failed else ""
    return f"{_stages(stages)}: {done:,} of {_tasks(tasks)} done{trouble}, {seconds(took_ms)}"


def bar(stages: Sequence[Stage], took_ms: int) -> str:
    """`stage 4 [======>           ] 12/40 tasks, 2 running, 1.4 s`"""
    tasks, done = sum(stage.tasks for stage in stages), sum(stage.done for stage in stages)
    running = sum(stage.active for stage in stages)
    failed = sum(stage.failed for stage in stages)
    trouble = f", {failed:,} failed" if failed else ""
    counts = f"{done:,}/{_tasks(tasks)}, {running:,} running{trouble}, {seconds(took_ms)}"
    return f"{_stages(stages)} [{_drawn(done, tasks, BAR_CELLS)}] {counts}"


def short_bar(stages: Sequence[Stage]) -> str:
    """A bar for a line that says much already: `[===>      ] 12/40`"""
    tasks, done = sum(stage.tasks for stage in stages), sum(stage.done for stage in stages)
    return f"[{_drawn(done, tasks, SHORT_BAR_CELLS)}] {done:,}/{tasks:,}"


def _drawn(done: int, tasks: int, cells: int) -> str:
    full = cells * done // tasks if tasks else 0
    return ("=" * full + ">" * (full < cells)).ljust(cells)


def fitted(parts: Iterable[str], width: int) -> str:
    """One line that does not wrap, because a wrapped one cannot be drawn over."""
    line = " | ".join(parts)
    return line if len(line) < width else line[: max(0, width - 2)] + "…"


def _stages(stages: Sequence[Stage]) -> str:
    numbers = [str(stage.number) for stage in stages]
    shown = ", ".join(numbers[:3]) + (", …" if len(numbers) > 3 else "")
    return f"stage {shown}" if len(numbers) == 1 else f"stages {shown}"


def _rows(count: int) -> str:
    return f"{count:,} row" if count == 1 else f"{count:,} rows"


def _tasks(count: int) -> str:
    return f"{count:,} task" if count == 1 else f"{count:,} tasks"


def seconds(ms: int) -> str:
    if ms < 10_000:
        return f"{ms / 1000:.1f} s"
    minutes, rest = divmod(ms // 1000, 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes:02} min"
    return f"{minutes} min {rest:02} s" if minutes else f"{rest} s"
