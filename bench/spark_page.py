"""From figures to docs/benchmarks-spark.md: tables between marks, and two plots beside them."""

from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from bench.command import write_between
from bench.spark_contestant import EMPTY, OURS, SPARK
from bench.spark_plot import Plot, Series
from bench.spark_rows import BY_PARTITIONS, BY_SIZE
from bench.table import number

DOCS = Path(__file__).parents[1] / "docs"
PAGE = DOCS / "benchmarks-spark.md"
NAMES = {SPARK: "Spark's connector", EMPTY: "empty Python source and sink", OURS: "oncelog"}

Found = dict[str, dict[str, dict[str, list[float]]]]  # row, contestant, figure, one value a round


@dataclass(frozen=True, slots=True)
class Line:
    title: str
    row: str
    figure: str = "rows_per_s"
    against: str = SPARK
    at_least: float | None = None
    at_most: float | None = None
    against_figure: str | None = None  # where both are the same contestant's

    @property
    def goal(self) -> str:
        if self.at_least is not None:
            return f"≥ {self.at_least:g}x"
        return "" if self.at_most is None else f"≤ {self.at_most:g}x"


def _costs(title: str, row: str) -> tuple[Line, ...]:
    return (
        Line(f"{title}: processor µs a row", row, "cpu_us"),
        Line(f"{title}: the server's µs a row", row, "server_cpu_us"),
    )


LINES = (
    Line("read 7.6 M records of 100 bytes: rows/s", "read", at_least=3),
    Line("the same", "read", against=EMPTY),
    *_costs("the same", "read"),
    Line("read only `value` and `offset` of them: rows/s", "read_value"),
    Line("the same", "read_value", against=EMPTY),
    Line("read 1 M records of 1 KB: rows/s", "read_1kb", at_least=2),
    Line("read 3 M records with keys and headers: rows/s", "read_keyed", at_least=2),
    Line("copy 7.6 M as a query, exactly once: rows/s", "copy", at_least=2.5),
    Line("the same", "copy", against=EMPTY),
    *_costs("the same", "copy"),
    Line("copy 3 M with keys and headers, exactly once: rows/s", "copy_keyed"),
    Line("`oncelog copy` of 7.6 M: rows/s", "oncelog_copy", at_least=5),
    *_costs("the same", "oncelog_copy"),
    Line("sealed sink, copy of 7.6 M: rows/s", "sealed", at_least=0.8),
    Line(
        "direct sink by the same without saving and hashing: rows/s",
        "once_or_not",
        against=OURS,
        against_figure="unsaved_per_s",
        at_least=0.95,
    ),
    Line("micro-batch of 100 rows, 1 partition: ms", "micro_1", "triggerExecution_ms", against=EMPTY, at_most=1.2),
    Line("the same", "micro_1", "triggerExecution_ms"),
    Line("the same: processor ms a batch", "micro_1", "cpu_ms"),
    Line("micro-batch of 100 rows, 4 partitions: ms", "micro_4", "triggerExecution_ms", against=EMPTY, at_most=1.2),
    Line("the same", "micro_4", "triggerExecution_ms"),
    Line("the same: processor ms a batch", "micro_4", "cpu_ms"),
)
PARTS = ("latestOffset", "queryPlanning", "walCommit", "addBatch", "commitOffsets", "triggerExecution")


def of(found: Found, row: str, kind: str, figure: str) -> list[float]:
    return found.get(row, {}).get(kind, {}).get(figure, [])


def row_of(line: Line, found: Found) -> str | None:
    """Ratios are those within a round: their median, and from which to which they go."""
    ours = of(found, line.row, OURS, line.figure)
    theirs = of(found, line.row, line.against, line.against_figure or line.figure)
    if not ours or not theirs:
        return None
    pairs = [(mine, its) for mine, its in zip(ours, theirs, strict=False) if its]
    if not pairs:
        return None
    ratios = [mine / its for mine, its in pairs]
    middle = median(ratios)
    met = ""
    if line.at_least is not None:
        met = "yes" if middle >= line.at_least else "**no**"
    elif line.at_most is not None:
        met = "yes" if middle <= line.at_most else "**no**"
    name = "not saved, not hashed" if line.against_figure else NAMES[line.against]
    spread = f"{min(ratios):.2f} to {max(ratios):.2f}"
    cells = [line.title, number(median(ours)), number(median(theirs)), name, f"{middle:.2f}", spread, line.goal, met]
    return "| " + " | ".join(cells) + " |"


def table(found: Found) -> str:
    rows = [row for line in LINES if (row := row_of(line, found)) is not None]
    if not rows:
        return ""
    head = "| what | oncelog | the other |  | ratio | rounds | goal | met |\n|---|--:|--:|---|--:|---|---|---|"
    return "\n".join([head, *rows])


def parts_table(found: Found) -> str:
    """Where the time of a micro-batch goes, as Spark reports it."""
    lines = []
    for row, partitions in (("micro_1", 1), ("micro_4", 4)):
        for kind in (SPARK, EMPTY, OURS):
            values = [of(found, row, kind, f"{part}_ms") for part in PARTS]
            if all(values):
                cells = [f"{NAMES[kind]}, {partitions}", *(f"{median(each):.0f}" for each in values)]
                lines.append("| " + " | ".join(cells) + " |")
    if not lines:
        return ""
    head = "| ms of a micro-batch; partitions | " + " | ".join(PARTS) + " |\n|---|" + "--:|" * len(PARTS)
    return "\n".join([head, *lines])


def cold_table(found: Found) -> str:
    """Seconds; behind a slash, processor seconds."""
    lines = []
    titles = {
        "spark": NAMES[SPARK],
        "cached": "oncelog, compiled loops cached",
        "uncached": "oncelog, compiled loops to be compiled",
    }
    for kind, title in titles.items():
        cells = [_cold_cell(found, kind, figure) for figure in ("session", "first", "second", "copy")]
        if all(cells):
            lines.append("| " + " | ".join([title, *cells]) + " |")
    if not lines:
        return ""
    head = (
        "| cold start, s / processor s | until the session is there | first read of 1,000 rows | second | first copy |"
    )
    return "\n".join([head, "|---|--:|--:|--:|--:|", *lines])


def _cold_cell(found: Found, kind: str, figure: str) -> str:
    waited, spent = (of(found, "cold", kind, f"{figure}_{unit}") for unit in ("s", "cpu_s"))
    return " / ".join(f"{median(each):.1f}" for each in (waited, spent) if each)


def heading(about: dict[str, Any]) -> str:
    here = about["machine"]
    servers = {
        "kafka": "Apache Kafka 4.3.0 (-Xmx1g)",
        "oncelog": "`oncelog serve`",
        "embedded": "the embedded log, `oncelog.Server()`",
    }
    return (
        f"On {servers[about['server']]}: {here['cores']} cores ({here['processor']}), {here['memory_gb']} GB, "
        f"Linux {here['kernel']}, Python {here['python']}, Spark {about['spark']}, `local[2]`, 2 GB a driver; "
        f"{about['when']}, load average {about['load']:.1f} before. Medians of {about['rounds']} rounds, contestants "
        f"taking turns; rounds: the smallest and the largest ratio."
    )


def section(about: dict[str, Any], found: Found) -> str:
    parts = [heading(about), table(found), parts_table(found), cold_table(found)]
    return "\n\n".join(part for part in parts if part)


def plots(found: Found, server: str) -> dict[str, str]:
    """File name, SVG."""
    made = {}
    by = (
        ("partitions", "partitions, records of 100 bytes", BY_PARTITIONS, "M records/s", 1e-6),
        ("bytes", "bytes a record, 4 partitions", BY_SIZE, "MB/s", 1e-6),
    )
    for name, axis, shapes, unit, factor in by:
        series = []
        for figure, doing in (("read_per_s", "read"), ("copy_per_s", "copy")):
            for kind in (OURS, SPARK):
                points = []
                for row, shape in shapes.items():
                    values = of(found, row, kind, figure)
                    if values:
                        times = shape.value_bytes if name == "bytes" else 1
                        at = shape.value_bytes if name == "bytes" else shape.partitions
                        points.append((at, median(values) * times * factor))
                if points:
                    series.append(
                        Series(f"{NAMES[kind]}, {doing}", points, is_ours=kind == OURS, is_dashed=doing != "read")
                    )
        if series:
            made[f"benchmarks-spark-{name}-{server}.svg"] = Plot(axis, unit, series).svg()
    return made


def mark(server: str, end: bool = False) -> str:
    return f"<!-- {'end of ' if end else ''}the figures on {server}: written by python -m bench.spark -->"


def write_page(server: str, text: str, page: Path = PAGE) -> None:
    """Replaces what stands between the marks of this server."""
    write_between(page, mark(server), mark(server, end=True), text)
