"""The client beside librdkafka's, aiokafka's and kafka-python's, on one server in one run.

    python -m bench.client [--server oncelog|kafka] [--rounds 5] [--only ROW ...] [--list]

The rows take turns within a round, and every other round goes backwards, so that what else the machine does meets all
of them; a ratio is the median of those within a round. All values are kept in bench/results/, and a run of all rows on
oncelog writes its table into docs/benchmarks.md.
"""

import gc
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from statistics import median
from typing import Any

import click

from bench import client_consuming, client_lives, client_producing, table
from bench.arena import Filled, fill
from bench.client_producing import KEYED, KEYED_PARTITIONS, TOPIC, topic
from bench.command import about_rows, chosen, circumstances, keep, write_between
from tests.peers.apache import ApacheKafka
from tests.peers.oncelog_process import OncelogProcess
from tests.peers.server_process import ServerProcess
from tests.raw import RawConnection

BEGIN = "<!-- the client's table: written by python -m bench.client -->"
END = "<!-- end of the client's table -->"
CONSUMED = "consumed"

Found = dict[str, list[float]]  # one value a round


class World:
    """One server, and what the rows need on it."""

    def __init__(self, server: ServerProcess, *, records: int, gb: float) -> None:
        self.server = server
        self.servers = server.bootstrap_servers
        self.records = records
        self._gb = gb

    @cached_property
    def filled(self) -> Filled:
        with RawConnection(self.server.port) as connection:
            connection.create_topic(CONSUMED)
        return fill(self.server.port, CONSUMED, self._gb)


Measure = Callable[[World], float]


def _producing(name: str, world: World) -> float:
    with topic(world.server.port, KEYED_PARTITIONS if name in KEYED else 1):
        return client_producing.ROWS[name](world.servers, world.records)


def _consuming(name: str, world: World) -> float:
    return client_consuming.ROWS[name](world.servers, CONSUMED, world.filled.end_offset)


def _alive(measure: Callable[[str, str], float], partitions: int, world: World) -> float:
    with topic(world.server.port, partitions):
        return measure(world.servers, TOPIC)


ROWS: dict[str, Measure] = {
    **{name: partial(_producing, name) for name in client_producing.ROWS},
    **{name: partial(_consuming, name) for name in client_consuming.ROWS},
    "oncelog resume": partial(_alive, client_lives.resume_ms, client_lives.RESUMED_PARTITIONS),
    "librdkafka memory": partial(_alive, client_lives.librdkafka_memory_mb, 1),
    "oncelog memory": partial(_alive, client_lives.oncelog_memory_mb, 1),
}
# These load what is compiled, before anything is measured.
WARM_UP = ("oncelog produce", "oncelog bulk send", "oncelog consume_arrow(10,000)")


@dataclass(frozen=True, slots=True)
class Line:
    title: str
    ours: str
    theirs: str | None = None
    at_least: float | None = None  # of theirs
    below: float | None = None


LINES = (
    Line("bulk send: records/s", "oncelog bulk send", "librdkafka produce", at_least=5),
    Line("bulk send: records/s", "oncelog bulk send", "librdkafka produce, no callbacks", at_least=5),
    Line(
        f"bulk send, keys, {KEYED_PARTITIONS} partitions: records/s",
        "oncelog bulk send, keys",
        "librdkafka produce, keys",
    ),
    Line("`produce()`, callbacks: records/s", "oncelog produce", "librdkafka produce", at_least=1),
    Line("`produce()`, callbacks: records/s", "oncelog produce", "aiokafka send", at_least=5),
    Line("`produce()`, callbacks: records/s", "oncelog produce", "kafka-python send", at_least=5),
    Line(
        f"`produce()`, callbacks, keys, {KEYED_PARTITIONS} partitions: records/s",
        "oncelog produce, keys",
        "librdkafka produce, keys",
    ),
    Line(
        "`consume_arrow(10_000)`: records/s", "oncelog consume_arrow(10,000)", "librdkafka consume(10,000)", at_least=5
    ),
    Line("`consume(10_000)`: records/s", "oncelog consume(10,000)", "librdkafka consume(10,000)"),
    Line("`poll()`: records/s", "oncelog poll", "librdkafka poll", at_least=1),
    Line("`poll()`: records/s", "oncelog poll", "aiokafka getone"),
    Line("`poll()`: records/s", "oncelog poll", "kafka-python poll"),
    Line("iteration: records/s", "oncelog iteration", "librdkafka poll", at_least=1),
    Line("iteration: records/s", "oncelog iteration", "aiokafka iteration"),
    Line("iteration: records/s", "oncelog iteration", "kafka-python iteration"),
    Line(
        f"a saved producer of {client_lives.RESUMED_PARTITIONS} partitions is resumed: ms", "oncelog resume", below=100
    ),
    Line(
        f"memory that {client_lives.SENT_MB} MB take on their way through a queue of {client_lives.QUEUE_MB} MB: MB",
        "oncelog memory",
        "librdkafka memory",
        below=2 * client_lives.QUEUE_MB,
    ),
)


def measure(world: World, names: list[str], rounds: int) -> Found:
    found: Found = {name: [] for name in names}
    for name in WARM_UP:
        if name in found:
            ROWS[name](world)
    for number in range(rounds):
        for name in names if number % 2 == 0 else reversed(names):
            gc.collect()
            value = ROWS[name](world)
            print(f"  {name}: {value:,.0f}", flush=True)
            found[name].append(value)
    return found


def row_of(line: Line, found: Found) -> str | None:
    ours, theirs = found.get(line.ours), found.get(line.theirs or "")
    if ours is None or (line.theirs and theirs is None):
        return None
    cells = [line.title, table.number(median(ours))]
    goal, met = "", ""
    if theirs is None:
        cells += ["", "", ""]
    else:
        ratios = [mine / its for mine, its in zip(ours, theirs, strict=True)]
        cells += [table.number(median(theirs)), str(line.theirs), f"{median(ratios):.2f}"]
        if line.at_least is not None:
            goal, met = f"≥ {line.at_least:g}x", "yes" if median(ratios) >= line.at_least else "**no**"
    if line.below is not None:
        goal, met = f"< {line.below:g}", "yes" if median(ours) < line.below else "**no**"
    return "| " + " | ".join([*cells, goal, met]) + " |"


def section(found: Found, about: dict[str, Any]) -> str:
    here = about["machine"]
    head = (
        f"{here['cores']} cores ({here['processor']}), Python {here['python']}, server: {about['server']}; "
        f"{about['when']}, load average {about['load']:.1f}. Medians of {about['rounds']} rounds."
    )
    lines = [row for line in LINES if (row := row_of(line, found)) is not None]
    titles = "| what | oncelog | the other |  | ratio | goal | met |\n|---|--:|--:|---|--:|---|---|"
    return "\n".join([head, "", titles, *lines])


def write_page(text: str) -> None:
    write_between(table.PAGE, BEGIN, END, text)


@click.command(help=__doc__)
@click.option("--server", type=click.Choice(["oncelog", "kafka"]), default="oncelog")
@about_rows
@click.option("--records", default=1_000_000, help="What a row of producers sends.")
@click.option("--gb", default=0.3, help="The size of the log that is read.")
def main(
    server: str,
    rounds: int,
    records: int,
    gb: float,
    only: tuple[str, ...],
    leave_out: tuple[str, ...],
    list_rows: bool,
    page: bool | None,
) -> None:
    if list_rows:
        print("\n".join(ROWS))
        return
    names = chosen(ROWS, only, leave_out)
    about = circumstances(server=server, rounds=rounds, records=records)
    with tempfile.TemporaryDirectory(prefix="oncelog-bench-") as folder:
        kind = ApacheKafka if server == "kafka" else OncelogProcess
        with kind(Path(folder) / "server") as running:
            found = measure(World(running, records=records, gb=gb), names, rounds)
    text = section(found, about)
    print("\n" + text)
    print(f"\nkept in {keep(about, found, 'client-')}")
    if page or (page is None and names == list(ROWS) and server == "oncelog"):
        write_page(text)


if __name__ == "__main__":
    main()
