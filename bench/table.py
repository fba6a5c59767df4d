"""From figures to the table that people read."""

from collections.abc import Callable, Iterable
from pathlib import Path
from statistics import median
from typing import Any

from bench.arena import KAFKA, ONCELOG
from bench.command import write_between
from bench.rows import BARE, SENDFILE, Line, Row

PAGE = Path(__file__).parents[1] / "docs" / "benchmarks.md"
BEGIN = "<!-- the table: written by ./dev bench -->"
END = "<!-- end of the table -->"

Measured = dict[str, dict[str, dict[str, list[float]]]]  # row, peer, figure, one value a round


def middle(measured: Measured, row: str, peer: str, figure: str) -> float | None:
    values = measured.get(row, {}).get(peer, {}).get(figure)
    return median(values) if values else None


def number(value: float | None) -> str:
    if value is None:
        return "–"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def verdict(line: Line, ours: float | None, theirs: float | None) -> str:
    if ours is None:
        return "–"
    if line.below is not None:
        return "yes" if ours < line.below else "**no**"
    if line.above is not None:
        return "yes" if ours >= line.above else "**no**"
    if theirs is None or (line.at_least is None and line.at_most is None):
        return ""
    ratio = ours / theirs
    met = (line.at_least is None or ratio >= line.at_least) and (line.at_most is None or ratio <= line.at_most)
    return "yes" if met else "**no**"


def table(rows: Iterable[Row[Any]], measured: Measured, other: str = "Kafka") -> str:
    head = ["what", "oncelog", "the other", "", "ratio", "goal", "met"]
    lines = ["| " + " | ".join(head) + " |", "|---|--:|--:|---|--:|---|---|"]
    names = {KAFKA: other, BARE: "bare", SENDFILE: "sendfile"}
    for row in rows:
        if row.name not in measured:
            continue
        for line in row.lines:
            ours = middle(measured, row.name, ONCELOG, line.figure)
            theirs = middle(measured, row.name, line.against, line.figure)
            ratio = f"{ours / theirs:.2f}" if ours is not None and theirs else ""
            cells = [line.title, number(ours), number(theirs), names[line.against] if theirs is not None else ""]
            lines.append("| " + " | ".join([*cells, ratio, line.goal, verdict(line, ours, theirs)]) + " |")
    return "\n".join(lines)


def latest(
    runs: list[tuple[dict[str, Any], Measured]], section: Callable[[dict[str, Any], Measured], str]
) -> list[str]:
    """The runs in writing; a row that was measured again stands in its last run only."""
    written: list[str] = []
    seen: set[str] = set()
    for about, measured in reversed(runs):
        rest = {name: peers for name, peers in measured.items() if name not in seen}
        seen |= rest.keys()
        if rest:
            written.insert(0, section(about, rest))
    return written


def write_page(text: str) -> None:
    write_between(PAGE, BEGIN, END, text)
