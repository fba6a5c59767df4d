"""How long it takes to count ten million messages, and in how much memory: from a log, and from memory alone.

python -m bench.audit [--messages 10000000]
"""

import resource
import sys

import click
import numpy as np
import pyarrow as pa

from bench.process import machine
from oncelog import Server
from oncelog.chaos.audit import Audit
from oncelog.chaos.kafka_login import Kafka
from oncelog.chaos.topics import create_topic, stored_numbers
from oncelog.client import Producer
from oncelog.clock import monotonic_s

PARTITIONS = 4
AT_ONCE = 1_000_000


def fill(kafka: Kafka, messages: int) -> None:
    """In the experiment's own form: message n in partition n modulo their number, as text."""
    create_topic(kafka, "audited", PARTITIONS)
    with Producer(kafka.client) as producer:
        for first in range(0, messages, AT_ONCE):
            numbers = np.arange(first, min(first + AT_ONCE, messages))
            values = pa.array(numbers).cast(pa.string()).cast(pa.binary())
            partitions = pa.array((numbers % PARTITIONS).astype(np.int32))
            producer.send("audited", pa.table({"value": values, "partition": partitions}))
            producer.flush()


def peak_mb() -> float:
    """Of this process, so far."""
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most / (1 << 20 if sys.platform == "darwin" else 1 << 10)


def audited(kafka: Kafka, messages: int) -> tuple[Audit, float, float]:
    """All seconds, and those of the counting alone."""
    audit = Audit(messages)
    began_s, counting_s = monotonic_s(), 0.0
    for first in range(0, messages, AT_ONCE):
        audit.confirm(np.arange(first, min(first + AT_ONCE, messages)))
    for partition, numbers in stored_numbers(kafka, "audited", PARTITIONS):
        taken_s = monotonic_s()
        audit.take(partition, numbers)
        counting_s += monotonic_s() - taken_s
    return audit, monotonic_s() - began_s, counting_s


@click.command()
@click.option("--messages", default=10_000_000, show_default=True)
def main(messages: int) -> None:
    with Server(settings={"auto.create.topics.enable": "false"}) as server:
        fill(Kafka(server.bootstrap_servers), messages)
        before_mb = peak_mb()
        audit, seconds, counting_s = audited(Kafka(server.bootstrap_servers), messages)
        after_mb = peak_mb()
    assert audit.result().is_exact and audit.result().all.unique == messages
    click.echo(
        f"{messages:,} messages read back and counted in {seconds:.1f} s, {counting_s:.1f} s of it counting; "
        f"peak {after_mb:,.0f} MB, {before_mb:,.0f} before it began; {machine()['cores']} cores"
    )


if __name__ == "__main__":
    main()
