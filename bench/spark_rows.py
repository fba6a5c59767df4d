"""The rows of the Spark table. A row runs one contestant once and returns named figures; `spark_page.py` sets them side
by side."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Any

from bench.spark_contestant import EMPTY, OURS, SPARK
from bench.spark_run import Run
from bench.spark_world import Shape

Figures = dict[str, float]
Measure = Callable[[Run, str], Figures]

FORMATS = {SPARK: "kafka", OURS: "oncelog", EMPTY: "empty"}
# Spark's producer is Kafka's own: its usual batches of 16 KB without lingering would be half as fast.
SPARK_PRODUCER = {"kafka.linger.ms": "5", "kafka.batch.size": "900000"}

HUNDRED = Shape(7_600_000, 100)
THOUSAND = Shape(1_000_000, 1000)
KEYED = Shape(3_000_000, 100, has_keys=True)
MICRO_ROWS = 100
MICRO_BATCHES = 60
MICRO_WARM_UP = 15
PARTITIONS = (1, 2, 4, 8, 16, 64)
SIZES = (10, 100, 1000, 10_000)
PLOTTED_BYTES = 300_000_000
PLOTTED_RECORDS = 3_000_000


@dataclass(frozen=True, slots=True)
class Row:
    name: str
    contestants: tuple[str, ...]
    measure: Measure
    warm_ups: int = 2
    is_plotted: bool = False


def source(run: Run, kind: str, shape: Shape, **more: Any) -> dict[str, str]:
    if kind != EMPTY:
        options = run.world.source_options(run.world.filled(shape), **more)
        return options | ({"includeHeaders": "true"} if shape.has_keys else {})
    made = {"rows": shape.records, "partitions": shape.partitions, "value.bytes": shape.value_bytes}
    return {key: str(value) for key, value in made.items()}


def figures(told: dict[str, Any], rows: int, server_cpu_s: float) -> Figures:
    return {
        "rows_per_s": rows / told["seconds"],
        "cpu_us": told["cpu_s"] / rows * 1e6,
        "server_cpu_us": server_cpu_s / rows * 1e6,
    }


# --- reading ----------------------------------------------------------------------------------------------------------


def read(shape: Shape, run: Run, kind: str, *, columns: tuple[str, ...] = ()) -> Figures:
    """All columns, or some: selected, and for a Python source also named as the schema, so that no others are made."""
    shape = run.scaled(shape)
    options = source(run, kind, shape)
    types = {"value": "binary", "offset": "bigint"}
    schema = ", ".join(f"{name} {types[name]}" for name in columns) if columns and kind != SPARK else None
    before = run.world.server_cpu_s()
    told = run.contestant(kind).do("read", format=FORMATS[kind], options=options, columns=list(columns), schema=schema)
    return figures(told, shape.records, run.world.server_cpu_s() - before)


# --- copying ----------------------------------------------------------------------------------------------------------


def copy(shape: Shape, run: Run, kind: str, *, sink: str | None = None) -> Figures:
    """A streaming query from topic to topic."""
    shape = run.scaled(shape)
    columns = ["key", "value", "headers"] if shape.has_keys else ["value"]
    with run.world.topic(shape.partitions) as out:
        before = run.world.server_cpu_s()
        told = run.contestant(kind).do(
            "query",
            format=FORMATS[kind],
            options=source(run, kind, shape),
            columns=columns,
            sink_format=sink or FORMATS[kind],
            sink_options=sink_options(run, kind, out),
            checkpoint=run.new_folder("checkpoint"),
        )
        spent = run.world.server_cpu_s() - before
        run.check_written(kind, out, shape.records)
    return figures(told, shape.records, spent)


def sink_options(run: Run, kind: str, out: str) -> dict[str, str]:
    if kind == EMPTY:
        return {}
    options = {"kafka.bootstrap.servers": run.world.servers, "topic": out}
    return options | (SPARK_PRODUCER if kind == SPARK else {})


def sealed_copy(shape: Shape, run: Run, kind: str) -> Figures:
    if kind == SPARK:
        return copy(shape, run, kind)
    shape = run.scaled(shape)
    with run.world.topic(shape.partitions) as out:
        before = run.world.server_cpu_s()
        told = run.contestant(kind).do(
            "sealed",
            format=FORMATS[kind],
            options=source(run, kind, shape),
            columns=["value"],
            sink_options=sink_options(run, kind, out),
            path=run.new_folder("sealed"),
            checkpoint=run.new_folder("checkpoint"),
        )
        spent = run.world.server_cpu_s() - before
        run.check_written(kind, out, shape.records)
    return figures(told, shape.records, spent)


def our_copy(shape: Shape, run: Run, kind: str) -> Figures:
    """`oncelog copy` against the same copy as a query of Spark's connector."""
    if kind == SPARK:
        return copy(shape, run, kind)
    shape = run.scaled(shape)
    with run.world.topic(shape.partitions) as out:
        before = run.world.server_cpu_s()
        told = run.contestant(kind).do(
            "copy", servers=run.world.servers, source=run.world.filled(shape), destination=out
        )
        spent = run.world.server_cpu_s() - before
        run.check_written(kind, out, shape.records)
    return figures(told, shape.records, spent)


def once_or_not(run: Run, kind: str) -> Figures:
    """The direct sink, and the same with saving and hashing switched off, one behind the other in one process."""
    is_first = run.turn() % 2 == 0
    sinks = ("oncelog", "oncelog-unsaved") if is_first else ("oncelog-unsaved", "oncelog")
    rates = {sink: copy(HUNDRED, run, kind, sink=sink)["rows_per_s"] for sink in sinks}
    return {"rows_per_s": rates["oncelog"], "unsaved_per_s": rates["oncelog-unsaved"]} | {
        "share": rates["oncelog"] / rates["oncelog-unsaved"]
    }


# --- small batches ----------------------------------------------------------------------------------------------------


def micro(partitions: int, run: Run, kind: str) -> Figures:
    """Micro-batches of 100 rows, one behind the other: medians of their parts as Spark reports them, ms."""
    rows = MICRO_ROWS * MICRO_BATCHES
    shape = Shape(rows, 100, partitions)
    options = source(run, kind, shape)
    options["trigger.rows" if kind == EMPTY else "maxOffsetsPerTrigger"] = str(MICRO_ROWS)
    with run.world.topic(partitions) as out:
        told = run.contestant(kind).do(
            "query",
            format=FORMATS[kind],
            options=options,
            columns=["value"],
            sink_format=FORMATS[kind],
            sink_options=sink_options(run, kind, out),
            checkpoint=run.new_folder("checkpoint"),
        )
        run.check_written(kind, out, rows)
    batches = told["batches"][MICRO_WARM_UP:]
    parts = {name for batch in batches for name in batch}
    found = {f"{name}_ms": median(batch.get(name, 0) for batch in batches) for name in sorted(parts)}
    return found | {"cpu_ms": told["cpu_s"] / MICRO_BATCHES * 1000}


# --- what is plotted --------------------------------------------------------------------------------------------------


def plotted(shape: Shape, run: Run, kind: str) -> Figures:
    """Reading and copying; the topic is given back afterwards, so that the disk does not fill up."""
    reading = read(shape, run, kind)
    copying = copy(shape, run, kind)
    return {"read_per_s": reading["rows_per_s"], "copy_per_s": copying["rows_per_s"]}


def plotted_shape(partitions: int, value_bytes: int) -> Shape:
    return Shape(min(PLOTTED_RECORDS, PLOTTED_BYTES // value_bytes), value_bytes, partitions)


BY_PARTITIONS = {f"partitions_{count}": plotted_shape(count, 100) for count in PARTITIONS}
BY_SIZE = {f"bytes_{size}": plotted_shape(4, size) for size in SIZES}

ALL = (SPARK, EMPTY, OURS)
BOTH = (SPARK, OURS)
ROWS = (
    Row("read", ALL, partial(read, HUNDRED)),
    Row("read_value", ALL, partial(read, HUNDRED, columns=("value", "offset"))),
    Row("read_1kb", BOTH, partial(read, THOUSAND)),
    Row("read_keyed", BOTH, partial(read, KEYED)),
    Row("copy", ALL, partial(copy, HUNDRED)),
    Row("copy_keyed", BOTH, partial(copy, KEYED)),
    Row("sealed", BOTH, partial(sealed_copy, HUNDRED)),
    Row("oncelog_copy", BOTH, partial(our_copy, HUNDRED)),
    Row("once_or_not", (OURS,), once_or_not),
    Row("micro_1", ALL, partial(micro, 1), warm_ups=1),
    Row("micro_4", ALL, partial(micro, 4), warm_ups=1),
    *(
        Row(name, BOTH, partial(plotted, shape), warm_ups=1, is_plotted=True)
        for name, shape in (BY_PARTITIONS | BY_SIZE).items()
    ),
)


def of_the_plots(row: Row, run: Run) -> None:
    """Give the disk space of a point's topic back."""
    shape = (BY_PARTITIONS | BY_SIZE)[row.name]
    if run.scaled(shape) not in (run.scaled(each) for each in (HUNDRED, THOUSAND, KEYED)):
        run.world.delete(run.scaled(shape).name)


def forget(run: Run, row: Row) -> None:
    """Give the disk space of a plotted row's topic back."""
    shape = run.scaled((BY_PARTITIONS | BY_SIZE)[row.name])
    if shape.name not in (run.scaled(each).name for each in (HUNDRED, THOUSAND, KEYED)):
        run.world.delete(shape.name)
