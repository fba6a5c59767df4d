"""`oncelog producers`: what the partitions of a topic remember of their producers."""

from typing import TYPE_CHECKING, Any

import click

from oncelog.cli.parts.endings import speaks_to_brokers
from oncelog.cli.parts.options import Connecting, connecting, formatted, partitions_option
from oncelog.cli.parts.output import duration, emit

if TYPE_CHECKING:
    from oncelog.cli.parts.cluster import Cluster
    from oncelog.slots import Place

COLUMNS = ("partition", "pid", "generation", "last_sequence", "last_offset", "last_write", "lease_left")


@click.command(name="producers")
@connecting
@formatted
@partitions_option
@click.argument("topic")
@speaks_to_brokers
def command(to: Connecting, form: str, indexes: tuple[int, ...], topic: str) -> None:
    """The producers that each partition of TOPIC remembers, and the last sequence that it accepted from them: H(P).

    Last offset and what is left of the lease are known on oncelog alone; a lease is over at 0, and pids that
    InitProducerId granted have none.

    Exit codes: 0 done, 1 failed, 2 wrong usage, 130 Ctrl-C.
    """
    from oncelog.cli.parts.cluster import opened

    with opened(to) as cluster:
        found = _producers(cluster, cluster.places([topic], indexes))
    rows = [
        {**each, "last_write": _time(each["last_timestamp_ms"]), "lease_left": duration(each["lease_left_ms"])}
        for each in found
    ]
    emit(form, found, rows, COLUMNS)


def _producers(cluster: "Cluster", places: "list[Place]") -> list[dict[str, Any]]:
    from oncelog.cli.parts.cluster import is_unsupported
    from oncelog.client.errors import KafkaException
    from oncelog.client.types import TopicPartition

    wanted = [TopicPartition(*place) for place in places]
    try:
        leases = {each.partition: future.result() for each, future in cluster.admin.describe_leases(wanted).items()}
    except KafkaException as refusal:
        if not is_unsupported(refusal.error):
            raise
        states = {each.partition: future.result() for each, future in cluster.admin.describe_producers(wanted).items()}
        return [
            _row(index, each.producer_id, each.producer_epoch, each.last_sequence, each.last_timestamp_ms)
            for index, producers in states.items()
            for each in producers
        ]
    return [
        _row(
            index,
            each.producer_id,
            each.generation,
            each.last_sequence,
            each.last_timestamp_ms,
            each.last_offset if each.last_offset >= 0 else None,
            each.lease_left_ms if each.is_leased else None,
        )
        for index, told in leases.items()
        for each in told.producers
    ]


def _row(
    partition: int,
    pid: int,
    generation: int,
    last_sequence: int,
    last_timestamp_ms: int,
    last_offset: int | None = None,
    lease_left_ms: int | None = None,
) -> dict[str, Any]:
    return {
        "partition": partition,
        "pid": pid,
        "generation": generation,
        "last_sequence": last_sequence if last_sequence >= 0 else None,
        "last_offset": last_offset,
        "last_timestamp_ms": last_timestamp_ms if last_timestamp_ms >= 0 else None,
        "lease_left_ms": lease_left_ms,
    }


def _time(ms: int | None) -> str | None:
    from datetime import UTC, datetime

    if ms is None:
        return None
    try:
        return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (OverflowError, ValueError):  # far outside of our calendar: the producer chose it
        return str(ms)
