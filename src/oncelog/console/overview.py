"""The server at a glance: what it holds, what it counted, what is wrong with it."""

from typing import Any

from oncelog import __version__
from oncelog.console import text
from oncelog.console.faults import Faults
from oncelog.console.limits import MOST_OFFLINE, MOST_SUMMED, in_turns
from oncelog.server.broker import Broker
from oncelog.server.process import cpu_seconds, resident_bytes

MARKED_FAULTS = 30  # on the plot of the last minutes


async def overview(broker: Broker, faults: Faults) -> dict[str, Any]:
    topics = broker.topics.all()
    partitions = [partition for topic in topics for partition in topic.open_partitions]
    sums = dict.fromkeys(
        ("records", "appended", "size_bytes", "leased", "kafka", "duplicates", "trimmed", "fenced", "refused"), 0
    )
    offline: list[dict[str, Any]] = []
    damaged: list[dict[str, Any]] = []
    under_replicated = 0  # of those that this broker has, as /metrics tells it
    async for partition in in_turns(broker.turns, partitions[:MOST_SUMMED]):
        under_replicated += partition.leadership is not None and partition.leadership.is_incomplete
        log, producers = partition.log, partition.log.producers
        sums["records"] += log.high_watermark - log.log_start_offset
        sums["appended"] += log.high_watermark
        sums["size_bytes"] += log.size_bytes
        sums["leased"] += producers.leases_live
        sums["kafka"] += producers.kafka_live
        sums["duplicates"] += producers.duplicates
        sums["trimmed"] += producers.trimmed
        sums["fenced"] += producers.fenced
        sums["refused"] += producers.out_of_order + producers.unknown + producers.full
        if log.offline is not None and len(offline) < MOST_OFFLINE:
            why = text.name(log.offline)
            offline.append({"topic": partition.topic.name, "partition": partition.index, "why": why})
        if log.damage and len(damaged) < MOST_OFFLINE:
            why = text.name("; ".join(log.damage))
            damaged.append({"topic": partition.topic.name, "partition": partition.index, "why": why})
    metrics = broker.metrics
    happened, _ = faults.newest(MARKED_FAULTS)
    return {
        "version": __version__,
        "cluster_id": broker.cluster_id,
        "node_id": broker.node_id,
        "addresses": broker.addresses(),
        "folder": text.name(str(broker.settings.log_dir)),
        "brokers": len(broker.cluster.members.keys() | broker.cluster.away.keys()),
        "under_replicated": under_replicated,
        "topics": len(topics),
        "partitions": len(partitions),
        "summed": min(len(partitions), MOST_SUMMED),
        "groups": len(broker.groups.groups),
        "connections": broker.metrics.connections_open,
        "refused_connections": metrics.connections_refused,
        "requests": sum(metrics.requests.values()),
        "bytes_received": metrics.bytes_received,
        "bytes_sent": metrics.bytes_sent,
        "storage_errors": metrics.storage_errors,
        "memory_bytes": int(resident_bytes()),
        "cpu_seconds": cpu_seconds(),
        "sums": sums,
        "offline": offline,
        "damaged": damaged,
        "faults": [each.shown() for each in happened],
    }
