"""`oncelog leases`: how long leases last, how many are alive in each partition, and how full its ring is."""

from typing import Any

import click

from oncelog.cli.parts.endings import failure, speaks_to_brokers
from oncelog.cli.parts.options import Connecting, connecting, formatted
from oncelog.cli.parts.output import duration, emit
from oncelog.cli.parts.rules import on_cluster

COLUMNS = ("topic", "partition", "lifetime", "live", "remembered", "capacity", "full")


@click.command(name="leases")
@connecting
@formatted
@click.argument("topics", metavar="[TOPIC]...", nargs=-1)
@speaks_to_brokers
def command(to: Connecting, form: str, topics: tuple[str, ...]) -> None:
    """Leases of each partition: those alive, and all that its ring remembers, for twice their lifetime.

    In a partition whose ring is full, producers that wrote once give way to new ones;
    oncelog.producer.ring.entries sets its capacity. Only an oncelog server grants leases.

    Exit codes: 0 done, 1 failed, 2 wrong usage, 130 Ctrl-C.
    """
    from oncelog.cli.parts.cluster import is_unsupported, opened
    from oncelog.client.errors import KafkaException
    from oncelog.client.types import TopicPartition

    with opened(to, takes=on_cluster("Describe")) as cluster:
        places = cluster.places(topics or sorted(cluster.metadata().topics))
        try:
            futures = cluster.admin.describe_leases([TopicPartition(*place) for place in places]) if places else {}
            found = {(each.topic, each.partition): future.result() for each, future in futures.items()}
        except KafkaException as refusal:
            if is_unsupported(refusal.error):
                raise failure(
                    "this is no oncelog server, and no other one grants leases: "
                    "`oncelog producers TOPIC` tells what a Kafka remembers"
                ) from refusal
            raise
    facts: list[dict[str, Any]] = []
    for (topic, index), told in found.items():
        leased = [each for each in told.producers if each.is_leased]
        facts.append(
            {
                "topic": topic,
                "partition": index,
                "lifetime_ms": told.lifetime_ms,
                "live": sum(each.lease_left_ms > 0 for each in leased),
                "remembered": len(leased),
                "capacity": told.capacity,
            }
        )
    rows = [
        {
            **each,
            "lifetime": duration(each["lifetime_ms"]),
            "full": f"{100 * each['remembered'] / max(1, each['capacity']):.2g}%",
        }
        for each in facts
    ]
    emit(form, facts, rows, COLUMNS)
