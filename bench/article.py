"""The client article's two experiments, and two that it has not: with the same client against oncelog and Kafka.

    python -m bench.article [--only article|killed|spark] [--scale 1.0]

librdkafka sends numbered messages, unhurried at linger 0 and as fast as it can at linger 100 ms, without and with
idempotence; connections are cut and answers swallowed. Then the producer's process is killed. Then what was sent goes
through Spark, whose driver or executors are killed, to each of three sinks. docs/chaos.md gets the tables, and keeps
those that were not made anew; every outcome is kept in bench/results/.
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

from bench import article_page
from bench.command import RESULTS
from oncelog.chaos.experiment import run
from oncelog.chaos.outcome import Options, Outcome, Pipeline
from oncelog.chaos.plan import Target
from oncelog.chaos.report import as_json
from tests.peers.apache import ApacheKafka
from tests.peers.jars import spark_connector_jars

SERVERS = ("oncelog", "Apache Kafka")
WIRE = frozenset({Target.CONNECTIONS, Target.RESPONSES})


@dataclass(frozen=True, slots=True)
class Case:
    messages: int
    linger_ms: int = 5
    rate: int = 0
    client: str = "librdkafka"
    is_idempotent: bool = True
    targets: frozenset[Target] = WIRE
    faults: int = 45  # about as many as the article had duplicates' runs
    partitions: int = 1
    sink: str = ""  # through Spark

    @property
    def pipeline(self) -> Pipeline | None:
        """Executors are real ones where they are killed."""
        if not self.sink:
            return None
        jars = ",".join(str(path) for path in sorted(spark_connector_jars().glob("*.jar")))
        conf = {"spark.jars": jars} if self.sink == "kafka" else {}
        return Pipeline(sink=self.sink, is_cluster=Target.EXECUTOR in self.targets, conf=conf)


PARTS = {
    "article": [
        Case(messages, linger_ms, rate, is_idempotent=is_idempotent)
        for messages, linger_ms, rate in ((453_346, 0, 15_000), (6_723_843, 100, 0))
        for is_idempotent in (False, True)
    ],
    "killed": [
        Case(500_000, rate=20_000, client=client, targets=frozenset({Target.PRODUCER}), faults=20)
        for client in ("librdkafka", "oncelog")
    ],
    "spark": [
        Case(300_000, client="oncelog", targets=frozenset({target}), faults=faults, partitions=2, sink=sink)
        for target, faults in ((Target.DRIVER, 6), (Target.EXECUTOR, 10))  # a driver takes ten seconds to be back
        for sink in ("direct", "sealed", "kafka")
    ],
}


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
                partitions=case.partitions,
                client=case.client,
                is_idempotent=case.is_idempotent,
                linger_ms=case.linger_ms,
                rate=case.rate,
                targets=case.targets,
                every=max(1, messages // case.faults),
                seed=1,
                servers=servers,
                spark=case.pipeline,
            )
            return run(options, folder)


@click.command(help=__doc__)
@click.option("--only", "parts", type=click.Choice(list(PARTS)), multiple=True, help="May be said again.")
@click.option(
    "--scale", default=1.0, help="The part of the messages that is sent, for a look; the page stays as it is."
)
def main(parts: tuple[str, ...], scale: float) -> None:
    for part in parts or PARTS:
        kept: list[dict[str, Any]] = []
        rows = []
        for case in PARTS[part]:
            for name in SERVERS:
                found = outcome(case, name, scale)
                rows.append(article_page.row(name, found))
                kept.append({"log": name} | as_json(found))
                click.echo(rows[-1])
        if scale < 1:
            continue
        when = f"{datetime.now(UTC):%Y-%m-%d}"
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / f"article-{part}-{when}.json").write_text(json.dumps(kept) + "\n")
        article_page.put(part, rows, when)


if __name__ == "__main__":
    main()
