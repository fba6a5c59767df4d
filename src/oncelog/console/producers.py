"""Producers: where there are any, and one partition's with the ring that its leases live in."""

from typing import Any

from oncelog.clock import Now
from oncelog.console.limits import MOST_PRODUCERS, MOST_RING_PLACES, MOST_ROWS, MOST_SUMMED, exact, in_turns
from oncelog.console.query import Query
from oncelog.producers import ProducerMap
from oncelog.server.broker import Broker
from oncelog.server.topic import Partition

COUNTERS = ("duplicates", "trimmed", "fenced", "out_of_order", "unknown", "full")


async def producers_view(broker: Broker, query: Query) -> dict[str, Any]:
    """Partitions that remember a producer, or have refused one, those with most of them first."""
    wanted = query.text("search").casefold()
    topics = [topic for topic in broker.topics.all() if wanted in topic.name.casefold() and query.may_read(topic.name)]
    partitions = [partition for topic in topics for partition in topic.open_partitions]
    found = [each async for each in in_turns(broker.turns, partitions[:MOST_SUMMED]) if _has_any(each.log.producers)]
    found.sort(key=lambda each: (-_count(each.log.producers), each.topic.name, each.index))
    start = query.page_start(len(found))
    return {
        "found": len(found),
        "start": start,
        "page": MOST_ROWS,
        "looked_at": min(len(partitions), MOST_SUMMED),
        "partitions": len(partitions),
        "rows": [_partition(each) for each in found[start : start + MOST_ROWS]],
    }


async def partition_producers_view(broker: Broker, query: Query) -> dict[str, Any]:
    partition, now = query.partition(broker), broker.clock.now()
    query.refuse_unless_read(partition.topic.name)
    producers = partition.log.producers
    known = producers.newest(now, MOST_PRODUCERS)
    return {
        **_partition(partition),
        "lifetime_ms": producers.lease_lifetime_ms,
        "ring": _ring(producers, now),
        "producers": [
            {
                "pid": exact(each.pid),
                "is_leased": each.lease_left_ms >= 0,
                "generation": each.generation,
                "highwater": each.last_sequence,  # H(P); -1 for one that was only fenced here
                "last_offset": exact(each.last_offset),
                "timestamp_ms": exact(each.timestamp_ms),
                "lease_left_ms": each.lease_left_ms,
            }
            for each in known
        ],
    }


def _ring(producers: ProducerMap, now: Now) -> dict[str, Any]:
    places = producers.sampled_leases(now, MOST_RING_PLACES)
    return {
        "capacity": producers.lease_capacity,
        "live": producers.leases_live,
        "places": [{"pid": pid, "lease_left_ms": left_ms} for pid, left_ms in places],
    }


def _partition(partition: Partition) -> dict[str, Any]:
    producers = partition.log.producers
    return {
        "topic": partition.topic.name,
        "partition": partition.index,
        "leased": producers.leases_live,
        "kafka": producers.kafka_live,
        "counts": {name: getattr(producers, name) for name in COUNTERS},
    }


def _count(producers: ProducerMap) -> int:
    return producers.leases_live + producers.kafka_live


def _has_any(producers: ProducerMap) -> bool:
    return bool(_count(producers)) or any(getattr(producers, name) for name in COUNTERS)
