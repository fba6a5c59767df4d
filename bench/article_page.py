"""The tables of `bench.article` in docs/chaos.md: each is a section of its own, so that one can be made anew alone."""

from collections.abc import Sequence
from pathlib import Path

from bench.command import write_between
from bench.process import machine
from oncelog.chaos.outcome import Outcome
from oncelog.chaos.report import counts, written_counts
from oncelog.chaos.sinks import DIRECT, KAFKA, SEALED

PAGE = Path(__file__).parents[1] / "docs" / "chaos.md"
BEGIN = "<!-- the tables: written by python -m bench.article -->"
END = "<!-- end of the tables -->"
TITLES = {
    "article": "The article's",
    "killed": "The producer's process killed",
    "spark": "Spark's driver killed, and its executors",
}
SENT = (
    "log",
    "client",
    "idempotence",
    "linger",
    "faults that hit work",
    "confirmed",
    "received",
    "unique",
    "duplicates",
    "in runs",
    "missing",
)
WRITTEN = (
    "log",
    "sink",
    "killed",
    "times that it hit work",
    "messages confirmed",
    "rows due",
    "rows written",
    "duplicates",
    "missing",
    "out of order",
)
WORDS = 4  # so many columns before the first that is aligned as a number
SINKS = {DIRECT: "ours, direct", SEALED: "ours, sealed", KAFKA: "Spark's own"}


def row(log: str, found: Outcome) -> str:
    cells = _sent(found) if found.options.spark is None else _written(found)
    return "| " + " | ".join([log, *cells]) + " |"


def _sent(found: Outcome) -> list[str]:
    said = counts(found)
    blocks = [run.duplicates for run in found.result.runs if run.duplicates]
    return [
        found.options.client,
        "on" if found.options.is_idempotent else "off",
        f"{found.options.linger_ms} ms",
        f"{_hits(found)}",
        f"{said['confirmed']:,}",
        f"{said['received']:,}",
        f"{said['unique']:,}",
        f"{said['duplicates']:,}",
        f"{len(blocks):,}" + (f", the largest {max(blocks):,}" if blocks else ""),
        f"{said['missing']:,}",
    ]


def _written(found: Outcome) -> list[str]:
    told, said = found.options.spark, written_counts(found)
    assert told is not None
    return [
        SINKS[told.sink],
        "an executor" if told.is_cluster else "the driver",
        f"{_hits(found)}",
        f"{counts(found)['confirmed']:,}",
        *(f"{said[name]:,}" for name in WRITTEN[5:]),
    ]


def _hits(found: Outcome) -> int:
    return sum(each.hit_work for each in found.happened)


def put(part: str, rows: Sequence[str], when: str) -> None:
    """Into the page, in the place of this table of before; the others stay."""
    inside = PAGE.read_text().split(BEGIN, 1)[1].split(END, 1)[0]
    sections = {title: text.strip() for title, _, text in (each.partition("\n") for each in inside.split("### ")[1:])}
    sections[TITLES[part]] = _section(SENT if part != "spark" else WRITTEN, rows, when)
    tables = "\n\n".join(f"### {title}\n\n{sections[title]}" for title in TITLES.values() if title in sections)
    write_between(PAGE, BEGIN, END, tables)


def _section(columns: Sequence[str], rows: Sequence[str], when: str) -> str:
    here = machine()
    head = f"{here['cores']} cores ({here['processor']}), Python {here['python']}; {when}; seed 1."
    words = WORDS - 1
    lines = "---|" * words + "--:|" * (len(columns) - words)
    return "\n".join([head, "", f"| {' | '.join(columns)} |", f"|{lines}", *rows])
