"""A copy as a Spark job: one row for each task, which goes in as a number and comes out as what was copied.

Nothing else passes through the JVM. What fails for a reason that is known comes back as words, since whether to try
again is for the driver to say: Spark itself would try a refusal four times, and a broker that is away as often at once.
"""

import json
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple
from uuid import uuid4

from oncelog.client import KafkaException
from oncelog.client.door import is_retriable
from oncelog.spark.copying.job import Copied, CopyFailed, CopyRefused, Order, SparkGone, Task
from oncelog.spark.copying.lane import BadState, Lane

RESULT: Final = "result"
SCHEMA: Final = "result string"


class Outcome(NamedTuple):
    copied: Sequence[Copied] = ()
    failure: str = ""  # why it ended early
    may_pass: bool = False  # trying again may help


class CopyTasks:
    """What Spark pickles and calls: for each row, or, where a Spark Connect server gives tables only, for tables."""

    def __init__(self, tasks: Sequence[Task]) -> None:
        self._tasks = tasks

    def row(self, number: int) -> str:
        return json.dumps(outcome_of(self._tasks[number]))

    def tables(self, batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa

        for batch in batches:
            rows = [self.row(number) for number in batch.column(0).to_pylist()]
            yield pa.RecordBatch.from_arrays([pa.array(rows, pa.string())], names=[RESULT])


def outcome_of(task: Task) -> Outcome:
    from oncelog.spark.copying.moving import run

    try:
        return Outcome(run(task, uuid4().hex[:12]))
    except (CopyRefused, BadState) as refused:
        return Outcome(failure=str(refused))
    except KafkaException as failure:
        error = failure.error
        return Outcome(failure=error.str(), may_pass=error.retriable() or is_retriable(error.code()))


def outcomes(spark: Any, tasks: Sequence[Task]) -> list[Outcome]:
    """Run them on Spark, each as a task of its own."""
    try:
        return [_read(row) for row in _rows(spark, tasks)]
    except Exception as error:
        is_gone = isinstance(error, ConnectionError) or type(error).__name__ == "Py4JNetworkError"
        if is_gone:
            raise SparkGone(f"Spark's JVM has ended: {error}") from error
        if type(error).__module__.partition(".")[0] not in ("pyspark", "py4j"):
            raise
        raise CopyFailed(f"a task failed: {words_of(str(error))}") from error


def _rows(spark: Any, tasks: Sequence[Task]) -> list[str]:
    count, copying = len(tasks), CopyTasks(tasks)
    context = context_of(spark)
    if context is not None:  # half the time of planning a query, which a copy that follows does five times a second
        rows: list[str] = context.parallelize(range(count), count).map(copying.row).collect()
        return rows
    return [row[RESULT] for row in spark.range(0, count, 1, count).mapInArrow(copying.tables, SCHEMA).collect()]


def context_of(spark: Any) -> Any:
    """Spark's context, which the client of a Spark Connect server has none of."""
    from pyspark.errors import PySparkException

    try:
        return spark.sparkContext
    except PySparkException:
        return None


def words_of(text: str) -> str:
    """Of what Spark says of a failure, which is pages long: what Python said last, or the first line."""
    lines = [line.rstrip() for line in text.splitlines() if line.strip()]
    traces = [at for at, line in enumerate(lines) if line.startswith("Traceback (most recent call last)")]
    for line in lines[traces[-1] + 1 :] if traces else ():
        if not line.startswith(" "):
            return line
    return lines[0] if lines else "Spark does not say why"


def _read(text: str) -> Outcome:
    copied, failure, may_pass = json.loads(text)
    return Outcome([Copied(*each) for each in copied], failure, may_pass)


def shared_out(orders: Sequence[Order], lanes: dict[int, Lane], most_tasks: int) -> list[tuple[Order, ...]]:
    """The orders in a number of parts, about as much work in each: the largest first, to the part with least."""

    def left(order: Order) -> int:
        return max(1, order.end_offset - lanes[order.partition].offset)

    parts: list[list[Order]] = [[] for _ in range(max(1, min(most_tasks, len(orders))))]
    loads = [0] * len(parts)
    for order in sorted(orders, key=left, reverse=True):
        least = loads.index(min(loads))
        parts[least].append(order)
        loads[least] += left(order)
    return [tuple(part) for part in parts if part]
