"""A Spark job of numbered tasks, each of which gives a line of text. Nothing else passes through the JVM."""

from collections.abc import Callable, Iterator
from typing import Any, Final

RESULT: Final = "result"
SCHEMA: Final = "result string"


class Rows:
    """Work that Spark pickles and calls: for each row, or, where a Spark Connect server gives tables only, for
    tables."""

    def __init__(self, work: Callable[[int], str]) -> None:
        self._work = work

    def row(self, number: int) -> str:
        return self._work(number)

    def tables(self, batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa

        for batch in batches:
            rows = [self._work(number) for number in batch.column(0).to_pylist()]
            yield pa.RecordBatch.from_arrays([pa.array(rows, pa.string())], names=[RESULT])


def lines(spark: Any, count: int, work: Callable[[int], str]) -> list[str]:
    """The lines of `count` tasks."""
    rows, context = Rows(work), context_of(spark)
    if context is not None:  # half the time of planning a query, which a copy that follows does five times a second
        found: list[str] = context.parallelize(range(count), count).map(rows.row).collect()
        return found
    return [row[RESULT] for row in spark.range(0, count, 1, count).mapInArrow(rows.tables, SCHEMA).collect()]


def context_of(spark: Any) -> Any:
    """Spark's context, which the client of a Spark Connect server has none of."""
    from pyspark.errors import PySparkException

    try:
        return spark.sparkContext
    except PySparkException:
        return None


def is_gone(error: Exception) -> bool:
    """Nothing more can be done in this process."""
    return isinstance(error, ConnectionError) or type(error).__name__ == "Py4JNetworkError"


def is_of_spark(error: Exception) -> bool:
    return type(error).__module__.partition(".")[0] in ("pyspark", "py4j")


def words_of(text: str) -> str:
    """The one line that says what failed, out of Spark's pages: what Python said last, or the first line."""
    found = [line.rstrip() for line in text.splitlines() if line.strip()]
    traces = [at for at, line in enumerate(found) if line.startswith("Traceback (most recent call last)")]
    for line in found[traces[-1] + 1 :] if traces else ():
        if not line.startswith(" "):
            return line
    return found[0] if found else "Spark does not say why"
