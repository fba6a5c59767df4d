"""Flows and what else there is for keyed, stateful work from topic to topic, on one server in one run.

    python -m bench.flows [--server kafka|oncelog] [--rounds 3] [--only ROW ...] [--leave-out ROW ...] [--list]

Each contestant is a program in processes of its own (`bench/flow_peers/`), and what it does is seen by a reader of the
topic that it writes. Contestants take turns within each round, and every other round goes backwards; a ratio
is the median of those within a round. All values of all rounds are kept in bench/results/, and docs/benchmarks-flows.md
is written from them: after a run of all rows, or by `--from FILE ...`.
"""

import signal
import sys
import tempfile
import time
from pathlib import Path

import click

from bench import flow_page
from bench.command import about_rows, chosen, circumstances, keep, kept_option, read
from bench.flow_contestant import KINDS
from bench.flow_rows import ROWS, Field, Row
from bench.spark_page import Found
from bench.spark_world import World
from bench.table import number
from oncelog import machine_code
from tests.peers.jars import MissingPeer, java, kafka_jars


def measure(field: Field, row: Row, rounds: int, kinds: list[str]) -> dict[str, dict[str, list[float]]]:
    found: dict[str, dict[str, list[float]]] = {kind: {} for kind in kinds}
    for turn in range(1 if row.once else rounds):
        for kind in kinds if turn % 2 == 0 else kinds[::-1]:
            started_s = time.monotonic()
            try:
                figures = row.measure(field, kind)
            except Exception as failure:
                print(f"  {row.name} {kind}: FAILED: {type(failure).__name__}: {failure}", flush=True)
                continue
            words = ", ".join(f"{name} {number(value)}" for name, value in figures.items())
            print(f"  {row.name} {kind}: {words}   ({time.monotonic() - started_s:.1f} s)", flush=True)
            for name, value in figures.items():
                found[kind].setdefault(name, []).append(value)
    return found


@click.command(help=__doc__, context_settings={"max_content_width": 120})
@click.option("--server", type=click.Choice(["kafka", "oncelog"]), default="kafka")
@about_rows
@kept_option
@click.option("--kind", "kinds", multiple=True, type=click.Choice(list(KINDS)), help="A contestant; all by default.")
@click.option("--scale", default=1.0, help="The part of a row's records that is taken, for a look.")
@click.option("--folder", type=click.Path(path_type=Path), help="Where the server keeps its data.")
def main(
    server: str,
    rounds: int,
    kinds: tuple[str, ...],
    scale: float,
    only: tuple[str, ...],
    leave_out: tuple[str, ...],
    folder: Path | None,
    list_rows: bool,
    kept: tuple[Path, ...],
    page: bool | None,
) -> None:
    names = chosen((row.name for row in ROWS), only, leave_out)
    if list_rows:
        print("\n".join(names))
        return
    if kept:
        flow_page.write_page([read(path) for path in kept])
        return
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # an exception, so that what was started is ended
    about = circumstances(server=server, rounds=rounds, scale=scale)
    found: Found = {}
    try:
        java()
        kafka_jars()
        for kind in kinds or KINDS:
            KINDS[kind].command()  # which fetches what it needs
        if not machine_code.is_there():
            machine_code.make()  # as `oncelog warm --loops` does
    except (MissingPeer, machine_code.NoMachineCode) as missing:
        raise click.ClickException(str(missing)) from missing
    with (
        tempfile.TemporaryDirectory(prefix="oncelog-bench-", dir=folder) as place,
        World(Path(place), server) as world,
    ):
        field = Field(world, Path(place), scale)
        for row in (row for row in ROWS if row.name in names):
            mine = [kind for kind in row.contestants if not kinds or kind in kinds]
            if mine:
                found[row.name] = measure(field, row, rounds, mine)
    print("\n" + flow_page.section(about, found))
    print(f"\nkept in {keep(about, found, 'flows-')}")
    if page or (page is None and not (only or leave_out or kinds) and scale == 1):
        flow_page.write_page([(about, found)])
    if not all(figures for row in found.values() for figures in row.values()):
        sys.exit(1)


if __name__ == "__main__":
    main()
