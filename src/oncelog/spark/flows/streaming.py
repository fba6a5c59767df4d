"""A flow with the face of a streaming query, for those who need the tab, listeners, or `availableNow`.

A batch is a tenancy: a row for each share of the cells, and a task that holds it. The query keeps nothing: how far the
flow is stands in its journals, as always.
"""

import asyncio
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from threading import Thread
from typing import TYPE_CHECKING, Any, Final

from oncelog.clock import monotonic_s, wall_s
from oncelog.flow.errors import FlowFailed
from oncelog.flow.program import Program
from oncelog.runner.layout import Layout
from oncelog.runner.life import CLOCK
from oncelog.runner.run import Run, has_end
from oncelog.runner.run_watching import Wake, WatchingEngine
from oncelog.runner.share import JournalEnds
from oncelog.spark.flows.driving import Cells, shared_out
from oncelog.spark.flows.starting import tasks_for
from oncelog.spark.flows.tenant import Tenant
from oncelog.spark.jobs import words_of

if TYPE_CHECKING:
    import pyarrow as pa

_log: Final = logging.getLogger("oncelog.flow")

TENURE_S: Final = 60.0
GOODBYES_S: Final = 5.0  # of the last tasks: they are heard of a moment later
PAUSE_S: Final = 0.05
WATCHES: Final = "oncelog-flow-query"  # the thread that waits for a query
LONGEST_S: Final = 10 * 365 * 86_400.0  # up to the ends
METRICS: Final = ("records", "commits", "state")
SCHEMA: Final = ", ".join(f"{name} bigint" for name in METRICS)


@dataclass(frozen=True)
class Shares:
    """Work that Spark pickles and calls for the rows of a batch, which are numbered through."""

    program: Program
    properties: Mapping[str, Any] = field(repr=False)  # a password may be among them
    run_id: str
    until_end: bool
    cells: Sequence[Cells]
    started_ms: int
    tenure_s: float
    began: JournalEnds

    def tables(self, batches: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
        import pyarrow as pa

        for batch in batches:
            rows = [self._hold(*divmod(number, len(self.cells))) for number in batch.column("value").to_pylist()]
            yield pa.RecordBatch.from_pylist(rows, pa.schema([(name, pa.int64()) for name in METRICS]))

    def _hold(self, tenancy: int, share: int) -> dict[str, int]:
        """Raises what stopped one of its cells when the time of the others is over."""
        tenant = Tenant(
            self.program,
            self.properties,
            self.run_id,
            self.until_end,
            self.cells[share],
            self.started_ms,
            tenancy,
            wall_s() + (LONGEST_S if self.until_end else self.tenure_s),
            0.0,
            "",
            began=self.began,
        )
        outcome, stages = tenant.hold()
        if outcome.failure or (self.until_end and not outcome.is_complete):
            raise FlowFailed(outcome.failure or f"flow {self.program.name}: its task ended before its input did")
        if outcome.cut_by:
            raise FlowFailed(f"flow {self.program.name}: its run is not at its end: {outcome.cut_by}")
        return {name: sum(stage[name] for stage in stages.values()) for name in METRICS}


class QueryEngine(WatchingEngine):
    """A query, whose tasks hold the cells, as a `Running`: it agrees on the run, and follows them until it is over."""

    async def begin(self, wake: Wake) -> None:
        await self.begin_watching(wake)

    def stop(self) -> None:
        if not self.done.is_set():
            self._tasks.begin(self._stop())

    async def _stop(self) -> None:
        give_up_s = monotonic_s() + GOODBYES_S
        while self._until_end and not self._watch.are_all_at_their_end and monotonic_s() < give_up_s:
            await asyncio.sleep(PAUSE_S)
        self.done.set()

    async def close(self) -> None:
        try:
            await self._tasks.close()
            await self.finish(is_complete=self._watch.are_all_at_their_end)
        finally:
            await self.close_watch()
        if self.failure is not None:
            raise self.failure


def stream(
    program: Program,
    properties: Mapping[str, Any],
    *,
    spark: Any,
    until: str | None = None,
    run_id: str | None = None,
    tasks: int | None = None,
    tenure: float = TENURE_S,
    metrics: str | None = None,
) -> Any:
    """The StreamingQuery."""
    at_once = tasks_for(program, spark, tasks)
    until_end = has_end(until)
    engine = QueryEngine(program, properties, run_id, until_end=until_end)
    watch = Run(engine, metrics)
    try:
        cells = shared_out(Layout(program), at_once)
        shares = Shares(program, properties, watch.run_id, until_end, cells, CLOCK.now().wall_ms, tenure, engine.began)
        source = spark.readStream.format("rate-micro-batch")
        rows = source.options(rowsPerBatch=len(cells), numPartitions=len(cells)).load()
        held = rows.mapInArrow(shares.tables, SCHEMA)
        told = held.observe(f"flow {program.name}", *(_sum_of(name) for name in METRICS))
        writer = told.writeStream.format("noop").queryName(f"flow {program.name}")
        query = (writer.trigger(availableNow=True) if until_end else writer).start()
    except BaseException:
        watch.stop()
        raise
    Thread(target=_outlive, args=(query, watch), name=WATCHES, daemon=True).start()
    return query


def _sum_of(name: str) -> Any:
    from pyspark.sql import functions

    return functions.sum(name).alias(name)


def _outlive(query: Any, watch: Run) -> None:
    """Outlive the query, in a thread. Its exception is for callers that wait for it; the run goes on another time."""
    try:
        query.awaitTermination()
    except Exception as failure:
        _log.warning("flow %s: run %s has failed: %s", watch.name, watch.run_id, words_of(str(failure)))
    finally:
        watch.stop()
