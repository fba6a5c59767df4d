"""The streaming queries that are killed: what they read and write, and what happens to the rows on the way."""

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any, Self

# How many rows come of an integer: none, one or many, by what it leaves when divided by five. One on average.
COPIES = (1, 0, 3, 1, 0)
MOST_COPIES = 4  # an integer's rows are numbered below this
SEALED = "sealed"  # in the place of a format: written by foreachBatch
DIFFERS = 51  # one row in so many is not the same each time, where the test is of such rows


@dataclass(frozen=True, slots=True)
class Query:
    servers: str
    read: str
    write: str
    checkpoint: str
    source: str = "oncelog"
    sink: str = "oncelog"
    rows_a_batch: int = 1000
    middle: str = "same"
    placed: str = "by key"
    run: int = 0  # the how-manieth start of this query it is, for rows that differ between two
    reading: dict[str, str] = field(default_factory=dict)
    writing: dict[str, str] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Self:
        return cls(**values)


def start(spark: Any, query: Query, once: bool = True) -> Any:
    """To the end of what is there now, or (not `once`) until it is stopped."""
    rows = MIDDLES[query.middle](_source(spark, query), query)
    if query.sink == SEALED:
        return _start_sealed(rows, query)
    _register(spark, query.sink)
    writer = rows.selectExpr(*PLACED[query.placed]).writeStream.format(query.sink)
    writer = writer.option("kafka.bootstrap.servers", query.servers).option("topic", query.write)
    writer = writer.options(**query.writing).option("checkpointLocation", query.checkpoint)
    return (writer.trigger(availableNow=True) if once else writer).start()


def _start_sealed(rows: Any, query: Query) -> Any:
    import oncelog.spark

    options = {"kafka.bootstrap.servers": query.servers, **query.writing}
    sink = oncelog.spark.sealed(path=f"{query.checkpoint}-sealed", topic=query.write, **options)
    writer = rows.selectExpr(*PLACED[query.placed]).writeStream.foreachBatch(sink)
    return writer.option("checkpointLocation", query.checkpoint).trigger(availableNow=True).start()


def _register(spark: Any, sink: str) -> None:
    """Ours registers itself, and Spark's own is in its jars; those that are wrong on purpose are known here alone."""
    from tests.spark.kills.broken import BROKEN

    for source in BROKEN:
        if source.name() == sink:
            spark.dataSource.register(source)


def _source(spark: Any, query: Query) -> Any:
    reader = spark.readStream.format(query.source).option("kafka.bootstrap.servers", query.servers)
    reader = reader.option("subscribe", query.read).option("startingOffsets", "earliest")
    reader = reader.option("maxOffsetsPerTrigger", str(query.rows_a_batch)).options(**query.reading)
    return reader.load().selectExpr("CAST(CAST(value AS STRING) AS BIGINT) AS x", "partition", "offset")


def _many(rows: Any, query: Query) -> Any:
    copies = f"element_at(array({', '.join(map(str, COPIES))}), CAST(x % {len(COPIES)} AS INT) + 1)"
    numbers = f"slice(array({', '.join(map(str, range(MOST_COPIES)))}), 1, {copies})"
    return rows.selectExpr("partition", "offset", "x", f"explode({numbers}) AS n").selectExpr(
        "partition", "offset", f"x * {MOST_COPIES} + n AS x"
    )


def _differs_between_runs(rows: Any, query: Query) -> Any:
    """One row in fifty-one is another one each time that the query is started."""
    return rows.selectExpr("partition", "offset", f"IF(x % {DIFFERS} = 7, -x * 10 - {query.run}, x) AS x")


def _fewer_in_later_runs(rows: Any, query: Query) -> Any:
    return rows.where(f"{query.run} = 0 OR x % {DIFFERS} != 7")


def _one_lane_in_later_runs(rows: Any, query: Query) -> Any:
    return rows.coalesce(1) if query.run else rows


def _differs_between_attempts(rows: Any, query: Query) -> Any:
    from tests.spark.kills.attempts import another_row_each_attempt

    return rows.select("partition", "offset", "x").mapInArrow(another_row_each_attempt, rows_schema())


def _gated(rows: Any, query: Query) -> Any:
    """Rows pass a step of their own, one Arrow batch after the other: the sink's input stops where a test wants it."""
    from tests.spark.kills.attempts import gate

    return rows.select("partition", "offset", "x").mapInArrow(gate, rows_schema())


def _shuffled(rows: Any, query: Query) -> Any:
    """A second stage, in whose tasks the sink runs: their input can get lost and be made again. A shuffle does not keep
    an order, and Spark sorts no streams, so they are put into one here."""
    from tests.spark.kills.attempts import in_order

    return rows.select("partition", "offset", "x").repartition(2, "x").mapInArrow(in_order, rows_schema())


def rows_schema() -> str:
    return "partition INT, offset BIGINT, x BIGINT"


MIDDLES: dict[str, Callable[[Any, Query], Any]] = {
    "same": lambda rows, query: rows,
    "many": _many,
    "differs between runs": _differs_between_runs,
    "fewer in later runs": _fewer_in_later_runs,
    "one lane in later runs": _one_lane_in_later_runs,
    "differs between attempts": _differs_between_attempts,
    "gated": _gated,
    "shuffled": _shuffled,
    "to one task": lambda rows, query: rows.repartition(1),
}

VALUE = "CAST(CAST(x AS STRING) AS BINARY) AS value"
PLACED: dict[str, tuple[str, ...]] = {
    # Into another partition each time that the row is made; large, so that it is not the driver who sends it.
    "by chance": (VALUE, "CAST(rand() * 3 AS INT) AS partition", "CAST(repeat('x', 300) AS BINARY) AS key"),
    "by key": ("CAST(CAST(x % 97 AS STRING) AS BINARY) AS key", VALUE),
    "without key": (VALUE,),
    "by lane": (VALUE, "spark_partition_id() AS partition"),
}
