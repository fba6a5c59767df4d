"""From figures to docs/benchmarks-flows.md: a table between marks, and how cost grows as a plot beside it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from bench.command import write_between
from bench.flow_contestant import BYTEWAX, KINDS, OURS, OURS_SHARED, OURS_SPARK, QUIX, QUIX_FAST, SPARK, STREAMS
from bench.spark_page import Found, of
from bench.spark_plot import Plot, Series
from bench.table import number

DOCS = Path(__file__).parents[1] / "docs"
PAGE = DOCS / "benchmarks-flows.md"
SERVERS = {"kafka": "Apache Kafka 4.3.0 (-Xmx1g)", "oncelog": "`oncelog serve`"}
GROWN = {"records": 1.1, "keys": 10, "cells": 10, "partitions": 10}  # and what is no more than in proportion


@dataclass(frozen=True, slots=True)
class Line:
    title: str
    row: str
    figure: str
    at_least: Mapping[str, float] = field(default_factory=dict)  # ours by theirs
    at_most: Mapping[str, float] = field(default_factory=dict)
    below: float | None = None  # ours itself
    above: float | None = None
    of: str = OURS
    by: str = ""  # another figure of the row, by which this one is divided for its goal


LINES = (
    Line("count, every update written: records/s", "count", "records_per_s", {STREAMS: 4, QUIX: 20, SPARK: 200}),
    Line("the same: processor s a million", "count", "cpu_s", at_most={STREAMS: 1 / 3}),
    Line("the same: the server's s a million", "count", "server_cpu_s"),
    Line("the same: memory with 100,000 keys, MB", "count", "peak_mb", below=150),
    Line("the same: start to the first output, s", "count", "first_output_s"),
    Line("regroup and count: records/s", "regroup", "records_per_s", {STREAMS: 4}),
    Line("the same: processor s a million", "regroup", "cpu_s"),
    Line("latency at 1,000 records/s: p50, ms", "latency", "p50_ms"),
    Line("the same: p99, ms", "latency", "p99_ms", below=15),
    Line("the same: cores", "latency", "cores"),
    Line("latency with a plan: p99, ms", "latency_planned", "p99_ms", below=40),
    Line("a task of Spark after the other: the slowest record, ms", "hand_over", "most_ms", below=50, of=OURS_SPARK),
    Line("the same: p99, ms", "hand_over", "p99_ms"),
    Line("kill -9, started again: s to the first output", "kill", "first_output_s", below=2),
    Line("the same: records twice", "kill", "twice"),
    Line("the same: records missing", "kill", "missing"),
    Line("restore of a million keys from the log, s to the first output", "restore", "first_output_s", below=3),
    Line("the same with what the last life left on the disk", "restore_copy", "first_output_s"),
    Line("a topic to Parquet: records/s", "files", "records_per_s", {SPARK: 3}),
    Line("the same: processor s a million", "files", "cpu_s"),
    Line("the same: a run of a thousand records, s", "files", "start_s"),
    Line("a million idle keys with timers: rate, by that without", "timers", "kept", above=0.95),
    Line("the same: bytes of memory a key", "timers", "bytes_a_key"),
    Line("a hundred cells in a process: rate, by that with four", "cells", "kept", above=0.95),
    Line("the same: records/s", "cells", "records_per_s_many"),
    Line("the same: processor s a million, with four", "cells", "cpu_s_few"),
    Line("the same: processor s a million, with a hundred", "cells", "cpu_s_many"),
    Line("the same: memory, MB", "cells", "peak_mb_many"),
    Line("a million records, 10,000 keys, two cells, two partitions: processor s a million", "growth", "usual"),
    *(
        Line(f"the same with ten times the {what}", "growth", what, below=most, by="usual")
        for what, most in GROWN.items()
    ),
)
COLUMNS = (OURS, OURS_SHARED, OURS_SPARK, STREAMS, QUIX, QUIX_FAST, BYTEWAX, SPARK)


def ratio(line: Line, found: Found, kind: str) -> float | None:
    """Ours by theirs: the median of those within a round."""
    pairs = zip(of(found, line.row, OURS, line.figure), of(found, line.row, kind, line.figure), strict=False)
    ratios = [ours / theirs for ours, theirs in pairs if theirs]
    return median(ratios) if ratios else None


def goal_of(line: Line, found: Found) -> tuple[str, str]:
    """In words, and whether it was met."""
    goals: list[tuple[str, bool | None]] = []
    for sign, bounds in (("≥", line.at_least), ("≤", line.at_most)):
        for kind, bound in bounds.items():
            reached = ratio(line, found, kind)
            met = None if reached is None else reached >= bound if sign == "≥" else reached <= bound
            goals.append((f"{sign} {bound:.3g}x {kind}", met))
    own, unit = of(found, line.row, line.of, line.figure), ""
    if line.by:
        own = [each / by for each, by in zip(own, of(found, line.row, line.of, line.by), strict=True)]
        unit = f"x {line.by}"
    if line.below is not None:
        goals.append((f"≤ {line.below:g}{unit}", median(own) <= line.below if own else None))
    if line.above is not None:
        goals.append((f"≥ {line.above:g}{unit}", median(own) >= line.above if own else None))
    words = ["–" if met is None else "yes" if met else "**no**" for _, met in goals]
    return ", ".join(goal for goal, _ in goals), ", ".join(words)


def table(found: Found) -> str:
    kinds = [kind for kind in COLUMNS if any(kind in contestants for contestants in found.values())]
    titles = [KINDS[kind].title for kind in kinds]
    lines = ["| " + " | ".join(["what", *titles, "goal", "met"]) + " |", "|---|" + "--:|" * len(kinds) + "---|---|"]
    for line in LINES:
        if line.row in found:
            cells = [_cell(line, found, kind) for kind in kinds]
            lines.append("| " + " | ".join([line.title, *cells, *goal_of(line, found)]) + " |")
    return "\n".join(lines)


def _cell(line: Line, found: Found, kind: str) -> str:
    values = of(found, line.row, kind, line.figure)
    if not values:
        return ""
    by = None if kind == OURS else ratio(line, found, kind)
    return number(median(values)) + ("" if by is None else f" ({by:.2f}x)")


def heading(about: dict[str, Any]) -> str:
    here = about["machine"]
    return (
        f"On {SERVERS[about['server']]}: {here['cores']} cores ({here['processor']}), {here['memory_gb']} GB, "
        f"Linux {here['kernel']}, Python {here['python']}; {about['when']}, load average {about['load']:.1f} before. "
        f"Medians of {about['rounds']} round{'s' * (about['rounds'] > 1)}, contestants taking turns; in brackets, ours "
        f"by theirs."
    )


def section(about: dict[str, Any], found: Found) -> str:
    return f"{heading(about)}\n\n{table(found)}"


def growth(found: Found) -> str | None:
    """As SVG: what a million records cost, as it is and with one thing ten times as large."""
    series = []
    for kind in (OURS, STREAMS):
        for what in GROWN:
            ends = of(found, "growth", kind, "usual"), of(found, "growth", kind, what)
            if all(ends):
                points = [(float(times), median(each)) for times, each in zip((1, 10), ends, strict=True)]
                series.append(Series(f"{KINDS[kind].title}, {what}", points, is_ours=kind == OURS))
    return Plot("times", "processor s a million records", series).svg() if series else None


def mark(server: str, end: bool = False) -> str:
    return f"<!-- {'end of ' if end else ''}the figures on {server}: written by python -m bench.flows -->"


def write_page(kept: list[tuple[dict[str, Any], Found]]) -> None:
    """A row that was measured again stands in its last run only."""
    for server in dict.fromkeys(about["server"] for about, _ in kept):
        whole: Found = {}
        sections: list[str] = []
        for about, found in reversed([each for each in kept if each[0]["server"] == server]):
            rest = {name: figures for name, figures in found.items() if name not in whole}
            whole |= rest
            if rest:
                sections.insert(0, section(about, rest))
        if (svg := growth(whole)) is not None:
            picture = DOCS / f"benchmarks-flows-growth-{server}.svg"
            picture.write_text(svg)
            sections.append(f"![How the cost of a record grows]({picture.name})")
        write_between(PAGE, mark(server), mark(server, end=True), "\n\n".join(sections))
