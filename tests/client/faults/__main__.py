"""One run, or with --all a table of them; the exit code is 1 when any was not as it should be."""

import sys
import tempfile
import time
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path

import click

from oncelog.chaos.faults import Kind
from tests.client.faults.case import CODECS, KAFKA, ONCELOG, PRODUCE, SERVERS, WAYS, Case
from tests.client.faults.matrix import full
from tests.client.faults.run import Outcome, run
from tests.peers.apache import ApacheKafka
from tests.peers.oncelog_process import OncelogProcess
from tests.peers.server_process import ServerProcess

KINDS = (Kind.CUT, Kind.SWALLOW, Kind.DELAY, Kind.STALL, Kind.REFUSE)
HEAD = (
    "| server | way | codec | in flight | partitions | idempotence | seed | requests | connections | faults on work: "
    + " / ".join(KINDS)
    + " | twice | lost | reordered | wrong reports | s | outcome |"
)


class Servers:
    """Started when they are first needed."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self._folder = folder
        self._stack = stack
        self._started: dict[str, ServerProcess] = {}

    def __getitem__(self, name: str) -> str:
        if name not in self._started:
            kinds = {ONCELOG: OncelogProcess, KAFKA: ApacheKafka}
            self._started[name] = self._stack.enter_context(kinds[name](self._folder / name))
        return self._started[name].bootstrap_servers


def row(outcome: Outcome) -> str:
    case, found = outcome.case, outcome.audit
    cells = (
        case.server,
        case.way,
        case.codec,
        case.in_flight,
        case.partitions,
        "on" if case.is_idempotent else "off",
        case.seed,
        f"{outcome.requests:,}",
        f"{outcome.connections:,}",
        " / ".join(str(outcome.hits[kind]) for kind in KINDS),
        f"{found.duplicates:,}",
        f"{found.lost:,}",
        f"{found.reordered:,}",
        f"{found.wrong_reports:,}",
        f"{outcome.seconds:.0f}",
        outcome.verdict,
    )
    return "| " + " | ".join(map(str, cells)) + " |"


@click.command()
@click.option("--records", default=1_000_000, show_default=True, type=click.IntRange(1))
@click.option("--codec", default="none", show_default=True, type=click.Choice(CODECS))
@click.option("--in-flight", default=5, show_default=True, type=click.IntRange(1))
@click.option("--partitions", default=1, show_default=True, type=click.IntRange(1))
@click.option("--server", default=ONCELOG, show_default=True, type=click.Choice(SERVERS))
@click.option("--way", default=PRODUCE, show_default=True, type=click.Choice(WAYS))
@click.option("--idempotence", default="on", show_default=True, type=click.Choice(("on", "off")))
@click.option("--seed", default=1, show_default=True)
@click.option("--all", "is_all", is_flag=True, help="The whole matrix; only --records, --seed and --limit-s count.")
@click.option("--limit-s", default=0, help="Begin no run of --all after so many seconds.")
def main(
    records: int,
    codec: str,
    in_flight: int,
    partitions: int,
    server: str,
    way: str,
    idempotence: str,
    seed: int,
    is_all: bool,
    limit_s: int,
) -> None:
    one = Case(
        server=server,
        way=way,
        codec=codec,
        in_flight=in_flight,
        partitions=partitions,
        is_idempotent=idempotence == "on",
        records=records,
        seed=seed,
    )
    cases = full(records, seed) if is_all else [one]
    with tempfile.TemporaryDirectory(prefix="oncelog-faults-") as folder, ExitStack() as stack:
        sys.exit(0 if show(cases, Servers(Path(folder), stack), limit_s) else 1)


def show(cases: Iterable[Case], servers: Servers, limit_s: int) -> bool:
    """Whether all of them were run and went as they should."""
    began = time.monotonic()
    click.echo(HEAD)
    click.echo("|---" * (HEAD.count("|") - 1) + "|")
    is_good = True
    for case in cases:
        if limit_s and time.monotonic() - began > limit_s:
            click.echo(f"not run, the time is over: {case}", err=True)
            is_good = False
            continue
        outcome = run(case, servers[case.server])
        click.echo(row(outcome))
        if not outcome.is_as_it_should_be:
            is_good = False
            click.echo(str(outcome), err=True)
    return is_good


if __name__ == "__main__":
    main()
