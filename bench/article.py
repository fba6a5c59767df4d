"""The client article's two experiments, and a third that it has not: with the same client against oncelog and Kafka.

    python -m bench.article [--scale 1.0]

librdkafka sends numbered messages, unhurried at linger 0 and as fast as it can at linger 100 ms, without and with
idempotence; connections are cut and answers swallowed. Then the producer's process is killed. docs/chaos.md gets the
tables; every outcome is kept in bench/results/.
"""

import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from bench import table
from bench.process import machine
from oncelog.chaos.outcome import Options, Outcome
from oncelog.chaos.plan import Target
from oncelog.chaos.report import as_json, counts
from oncelog.chaos.running import run
from tests.peers.apache import ApacheKafka

PAGE = Path(__file__).parents[1] / "docs" / "chaos.md"
BEGIN = "<!-- the tables: written by python -m bench.article -->"
END = "<!-- end of the tables -->"
SERVERS = ("oncelog", "Apache Kafka")
WIRE = frozenset({Target.CONNECTIONS, Target.RESPONSES})


@dataclass(frozen=True, slots=True)
class Case:
    messages: int
    linger_ms: int
    rate: int = 0
    client: str = "librdkafka"
    is_idempotent: bool = True
    targets: frozenset[Target] = WIRE
    faults: int = 45  # about as many as the article had duplicates' runs


ARTICLE = [
    Case(messages, linger_ms, rate, is_idempotent=is_idempotent)
    for messages, linger_ms, rate in ((453_346, 0, 15_000), (6_723_843, 100, 0))
    for is_idempotent in (False, True)
]
KILLED = [
    Case(500_000, 5, 20_000, client=client, targets=frozenset({Target.PRODUCER}), faults=20)
    for client in ("librdkafka", "oncelog")
]


@contextmanager
def server(name: str, folder: Path) -> Iterator[str]:
    """The servers to name; none for one of the experiment's own."""
    if name == "oncelog":
        yield ""
        return
    with ApacheKafka(folder / "kafka") as kafka:
        yield kafka.bootstrap_servers


def outcome(case: Case, name: str, scale: float) -> Outcome:
    messages = max(1, int(case.messages * scale))
    with tempfile.TemporaryDirectory(prefix="article-") as made:
        folder = Path(made)
        with server(name, folder) as servers:
            options = Options(
                messages=messages,
                topic="article",
                client=case.client,
                is_idempotent=case.is_idempotent,
                linger_ms=case.linger_ms,
                rate=case.rate,
                targets=case.targets,
                every=max(1, messages // case.faults),
                seed=1,
                servers=servers,
            )
            return run(options, folder)


def row(case: Case, name: str, found: Outcome) -> str:
    said = counts(found)
    blocks = [run.duplicates for run in found.result.runs if run.duplicates]
    hit = sum(each.hit_work for each in found.happened)
    cells = [
        name,
        case.client,
        "on" if case.is_idempotent else "off",
        f"{case.linger_ms} ms",
        f"{hit}",
        f"{said['confirmed']:,}",
        f"{said['received']:,}",
        f"{said['unique']:,}",
        f"{said['duplicates']:,}",
        f"{len(blocks):,}" + (f", the largest {max(blocks):,}" if blocks else ""),
        f"{said['missing']:,}",
    ]
    return "| " + " | ".join(cells) + " |"


COLUMNS = (
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
HEAD = f"| {' | '.join(COLUMNS)} |\n|---|---|---|--:|--:|--:|--:|--:|--:|--:|--:|"


def write_page(text: str) -> None:
    whole = PAGE.read_text()
    before, rest = whole.split(BEGIN, 1)
    PAGE.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{rest.split(END, 1)[1]}")


@click.command(help=__doc__)
@click.option(
    "--scale", default=1.0, help="The part of the messages that is sent, for a look; the page stays as it is."
)
def main(scale: float) -> None:
    kept: list[dict[str, Any]] = []
    parts: list[str] = []
    for title, cases in (("The article's", ARTICLE), ("The producer's process killed", KILLED)):
        rows = []
        for case in cases:
            for name in SERVERS:
                found = outcome(case, name, scale)
                rows.append(row(case, name, found))
                kept.append({"log": name} | as_json(found))
                click.echo(rows[-1])
        parts.append(f"### {title}\n\n{HEAD}\n" + "\n".join(rows))
    if scale < 1:
        return
    here, when = machine(), f"{datetime.now(UTC):%Y-%m-%d}"
    text = f"{here['cores']} cores ({here['processor']}), Python {here['python']}; {when}; seed 1.\n\n" + "\n\n".join(
        parts
    )
    table.RESULTS.mkdir(exist_ok=True)
    (table.RESULTS / f"article-{when}.json").write_text(json.dumps(kept) + "\n")
    write_page(text)


if __name__ == "__main__":
    main()
