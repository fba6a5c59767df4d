"""A flow with the face of a streaming query, for those who need the tab, listeners, or `availableNow`.

A batch is a tenancy: a row for each share of the cells, and a task that holds it. The query keeps nothing: how far the
flow is stands in its journals, as always.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from threading import Thread
from typing import TYPE_CHECKING, Any, Final

from oncelog.client.door import LoopThread
from oncelog.clock import wall_s
from oncelog.flow.errors import FlowFailed
from oncelog.flow.formats import Tenancy
from oncelog.flow.program import Program
from oncelog.runner.agreeing import Agreed
from oncelog.runner.engine import Engine, Share
from oncelog.runner.layout import Layout
from oncelog.runner.life import CLOCK
from oncelog.runner.run import has_end
from oncelog.spark.flows.driving import Cells, shared_out
from oncelog.spark.flows.starting import tasks_for
from oncelog.spark.flows.tenant import Tenant
from oncelog.spark.jobs import words_of

if TYPE_CHECKING:
    import pyarrow as pa

_log: Final = logging.getLogger("oncelog.flow")

TENURE_S: Final = 60.0
LONGEST_S: Final = 10 * 365 * 86_400.0  # up to the ends
METRICS: Final = ("records", "commits", "state")
SCHEMA: Final = ", ".join(f"{name} bigint" for name in METRICS)


@dataclass(frozen=True)
class Shares:
    """What Spark pickles and calls: for the rows of a batch, which are numbered through."""

    program: Program
    properties: Mapping[str, Any]
    run_id: str
    until_end: bool
    cells: Sequence[Cells]
    started_ms: int
    tenure_s: float

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
        )
        outcome, stages = tenant.hold()
        if outcome.failure or (self.until_end and not outcome.is_complete):
            raise FlowFailed(outcome.failure or f"flow {self.program.name}: its task ended before its input did")
        return {name: sum(stage[name] for stage in stages.values()) for name in METRICS}


def stream(
    program: Program,
    properties: Mapping[str, Any],
    *,
    spark: Any,
    until: str | None = None,
    run_id: str | None = None,
    tasks: int | None = None,
    tenure: float = TENURE_S,
) -> Any:
    """The StreamingQuery."""
    at_once = tasks_for(program, spark, tasks)
    until_end = has_end(until)
    agreed = _agreed(program, properties, run_id, until_end=until_end)
    cells = shared_out(Layout(program), at_once)
    shares = Shares(program, properties, agreed.run_id, until_end, cells, CLOCK.now().wall_ms, tenure)
    rows = spark.readStream.format("rate-micro-batch").options(rowsPerBatch=len(cells), numPartitions=len(cells)).load()
    held = rows.mapInArrow(shares.tables, SCHEMA)
    told = held.observe(f"flow {program.name}", *(_sum_of(name) for name in METRICS))
    writer = told.writeStream.format("noop").queryName(f"flow {program.name}")
    query = (writer.trigger(availableNow=True) if until_end else writer).start()
    if until_end:
        Thread(target=_finish, args=(query, program, properties, agreed.run_id), daemon=True).start()
    return query


def _sum_of(name: str) -> Any:
    from pyspark.sql import functions

    return functions.sum(name).alias(name)


def _finish(query: Any, program: Program, properties: Mapping[str, Any], run_id: str) -> None:
    """In a thread. The exception of a query that failed is for those who wait for it; its run goes on another time."""
    try:
        query.awaitTermination()
        _agreed(program, properties, run_id, until_end=True, is_finished=True)
    except Exception as failure:
        _log.warning("flow %s: run %s is not finished: %s", program.name, run_id, words_of(str(failure)))


def _agreed(
    program: Program,
    properties: Mapping[str, Any],
    run_id: str | None,
    *,
    until_end: bool,
    is_finished: bool = False,
) -> Agreed:
    """On the run: its topics are as they should be, and its ends stand in the register. No cell is held here."""
    share = Share({}, Tenancy(CLOCK.now().wall_ms, 0))
    engine = Engine(program, properties, run_id, until_end=until_end, share=share)
    thread = LoopThread("oncelog-flow")
    try:
        thread.run(engine.begin(thread.call_soon))
        if is_finished and not engine.agreed.is_finished:
            thread.run(engine.agreement.finish(engine.agreed.run_id))
        thread.run(engine.close())
    finally:
        thread.stop()
    return engine.agreed
