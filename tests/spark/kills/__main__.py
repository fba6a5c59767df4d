"""The long runs of the kill matrix:  python -m tests.spark.kills soak --seed 7    (or: matrix)"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from tests.peers.apache import QUICK_BROKER, ApacheKafka
from tests.peers.oncelog_process import OncelogProcess
from tests.peers.server_process import ServerProcess
from tests.spark.conftest import SETTINGS
from tests.spark.kills import forks as forking
from tests.spark.kills.soak import Plan, Soak

SERVERS = ("oncelog", "kafka")


def say(text: str) -> None:
    click.echo(f"{time.strftime('%H:%M:%S')} {text}")


@contextmanager
def server_of(name: str, folder: Path) -> Iterator[ServerProcess]:
    if name == "oncelog":
        server: ServerProcess = OncelogProcess(folder, settings=SETTINGS)
    else:
        server = ApacheKafka(folder, settings=SETTINGS, jvm=QUICK_BROKER)
    with server:
        yield server


@click.group()
def main() -> None:
    """Spark's processes and the server are killed; what stands in the topics afterwards is counted."""


@main.command()
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def matrix(arguments: tuple[str, ...]) -> None:
    """All cells, on both servers. Arguments go to pytest: `matrix -- -k kafka`."""
    command = [sys.executable, "-m", "pytest", str(Path(__file__).parent), "-v", "--timeout", "1500", *arguments]
    sys.exit(subprocess.run(command, env={**os.environ, "KILLS_SCOPE": "all"}, check=False).returncode)


@main.command()
@click.option("--integers", default=3_000_000, show_default=True)
@click.option("--kills", default=10, show_default=True, help="Drivers and executors together.")
@click.option("--seed", default=None, type=int, help="Decides the moments and who dies.")
@click.option("--rows-a-batch", default=100_000, show_default=True)
@click.option("--server", "servers", multiple=True, type=click.Choice(SERVERS), default=SERVERS)
@click.option("--format", "formats", multiple=True, type=click.Choice(("oncelog", "kafka")), default=("oncelog",),
              help="Of source and sink; kafka is Spark's own connector, which repeats rows.")  # fmt: skip
def soak(
    integers: int, kills: int, seed: int | None, rows_a_batch: int, servers: tuple[str, ...], formats: tuple[str, ...]
) -> None:
    """Integers through two queries in a row, drivers and executors killed at random."""
    chosen = time.time_ns() % 10**6 if seed is None else seed
    all_right = True
    for name in servers:
        for written_by in formats:
            plan = Plan(integers, kills, chosen, rows_a_batch, written_by)
            folder = Path(tempfile.mkdtemp(prefix="oncelog-kills-"))
            say(f"{name}, format {written_by}, seed {chosen}, data in {folder}")
            with server_of(name, folder / "server") as server:
                outcome = Soak(folder, server, plan, say).run()
            for line in outcome.lines():
                say(f"{name}: {line}")
            if outcome.is_right:
                shutil.rmtree(folder)
            all_right = all_right and (outcome.is_right or written_by == "kafka")
    sys.exit(0 if all_right else 1)


@main.command()
@click.option("--minutes", default=20.0, show_default=True)
@click.option("--seed", default=None, type=int, help="Decides what is hurt.")
@click.option("--kind", "kinds", multiple=True, type=click.Choice(forking.KINDS), default=forking.KINDS)
@click.option("--server", "name", type=click.Choice(SERVERS), default="oncelog", show_default=True)
def forks(minutes: float, seed: int | None, kinds: tuple[str, ...], name: str) -> None:
    """Sinks and a copy without Spark, whose tasks and drivers are processes that are killed, stopped and doubled."""
    chosen = time.time_ns() % 10**6 if seed is None else seed
    folder = Path(tempfile.mkdtemp(prefix="oncelog-forks-"))
    say(f"{name}, seed {chosen}, data in {folder}")
    end_s = time.monotonic() + minutes * 60
    with server_of(name, folder) as server:
        outcome = forking.Forks(server, chosen).run(lambda: time.monotonic() < end_s, kinds)
    for line in outcome.lines():
        say(line)
    if not outcome.wrong:
        shutil.rmtree(folder)
    sys.exit(1 if outcome.wrong else 0)


if __name__ == "__main__":
    main()
