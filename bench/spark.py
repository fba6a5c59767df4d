"""Spark's own Kafka connector, an empty Python source and sink, and ours, on one server in one run.

    python -m bench.spark [--server kafka|oncelog|embedded] [--rounds 5] [--only ROW ...] [--leave-out ROW ...] [--list]

Each contestant is a driver in a process of its own. In a row they are warmed up, then they take turns within each
round, and every other round goes backwards; a ratio is the median of those within a round. All values of all rounds
are kept in bench/results/, and docs/benchmarks-spark.md is written from them: after a run of all rows, or by
`--from FILE ...`.
"""

import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import click
import pyspark

from bench import spark_page, table
from bench.command import about_rows, chosen, circumstances, keep, kept_option, read
from bench.spark_cold import KINDS as COLD_KINDS
from bench.spark_cold import cold
from bench.spark_page import Found
from bench.spark_rows import ROWS, Row, forget
from bench.spark_run import Run
from bench.spark_world import World
from tests.peers.jars import MissingPeer, java, kafka_jars, spark_connector_jars

COLD = "cold"
NAMES = (*(row.name for row in ROWS), COLD)


def measure(run: Run, row: Row, rounds: int) -> dict[str, dict[str, list[float]]]:
    found: dict[str, dict[str, list[float]]] = {kind: {} for kind in row.contestants}
    for _ in range(row.warm_ups):
        for kind in row.contestants:
            row.measure(run, kind)
    for number in range(rounds):
        for kind in row.contestants if number % 2 == 0 else row.contestants[::-1]:
            _told(row.name, kind, found[kind], row.measure(run, kind))
    if row.is_plotted:
        forget(run, row)
    return found


def measure_cold(run: Run, rounds: int) -> dict[str, dict[str, list[float]]]:
    found: dict[str, dict[str, list[float]]] = {kind: {} for kind in COLD_KINDS}
    cold(run, "cached")  # fills the cache
    for number in range(rounds):
        for kind in COLD_KINDS if number % 2 == 0 else reversed(COLD_KINDS):
            _told(COLD, kind, found[kind], cold(run, kind))
    return found


def _told(row: str, kind: str, kept: dict[str, list[float]], figures: dict[str, float]) -> None:
    words = ", ".join(f"{name} {table.number(value)}" for name, value in figures.items())
    print(f"  {row} {kind}: {words}", flush=True)
    for name, value in figures.items():
        kept.setdefault(name, []).append(value)


def write_page(kept: list[tuple[dict[str, Any], Found]]) -> None:
    """A row that was measured again stands in its last run only."""
    for server in dict.fromkeys(about["server"] for about, _ in kept):
        seen: set[str] = set()
        sections: list[str] = []
        whole: Found = {}
        for about, found in reversed(kept):
            if about["server"] != server:
                continue
            rest = {name: figures for name, figures in found.items() if name not in seen}
            seen |= rest.keys()
            whole = rest | whole
            shown = {name: figures for name, figures in rest.items() if not _is_plotted(name)}
            if shown:
                sections.insert(0, spark_page.section(about, shown))
        spark_page.write_page(server, "\n\n".join(sections))
        for name, svg in spark_page.plots(whole, server).items():
            (spark_page.DOCS / name).write_text(svg)


def _is_plotted(name: str) -> bool:
    return any(row.name == name and row.is_plotted for row in ROWS)


@click.command(help=__doc__, context_settings={"max_content_width": 120})
@click.option("--server", type=click.Choice(["kafka", "oncelog", "embedded"]), default="kafka")
@about_rows
@kept_option
@click.option("--scale", default=1.0, help="The part of a row's records that is taken, for a look.")
@click.option("--memory", default="2g", help="Of each driver's JVM.")
@click.option("--folder", type=click.Path(path_type=Path), help="Where the server keeps its data.")
def main(
    server: str,
    rounds: int,
    scale: float,
    memory: str,
    only: tuple[str, ...],
    leave_out: tuple[str, ...],
    folder: Path | None,
    list_rows: bool,
    kept: tuple[Path, ...],
    page: bool | None,
) -> None:
    if list_rows:
        print("\n".join(NAMES))
        return
    if kept:
        write_page([read(path) for path in kept])
        return
    names = chosen(NAMES, only, leave_out)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # an exception, so that what was started is ended
    try:
        java()
        kafka_jars()
        spark_connector_jars()
    except MissingPeer as missing:
        raise click.ClickException(str(missing)) from missing
    about = circumstances(server=server, rounds=rounds, scale=scale, spark=pyspark.__version__)
    found: Found = {}
    with (
        tempfile.TemporaryDirectory(prefix="oncelog-bench-", dir=folder) as place,
        World(Path(place), server) as world,
        Run(Path(place), world, scale=scale, memory=memory) as run,
    ):
        for name in names:
            started = time.monotonic()
            row = next((row for row in ROWS if row.name == name), None)
            try:
                found[name] = measure_cold(run, rounds) if row is None else measure(run, row, rounds)
            except Exception as failure:
                print(f"  {name}: FAILED: {type(failure).__name__}: {failure}", flush=True)
                continue
            print(f"{name}: {time.monotonic() - started:.0f} s", flush=True)
    print("\n" + spark_page.section(about, found))
    print(f"\nkept in {keep(about, found, 'spark-')}")
    if page or (page is None and not only and not leave_out and scale == 1):
        write_page([(about, found)])
    if set(found) != set(names):
        sys.exit(1)


if __name__ == "__main__":
    main()
