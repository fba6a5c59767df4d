"""Topics, their partitions and sizes."""

from typing import Any

from oncelog.console import text
from oncelog.console.limits import MOST_ROWS, MOST_SUMMED, exact, in_turns
from oncelog.console.query import Query, page_of
from oncelog.server.broker import Broker
from oncelog.server.topic import Partition, Topic


async def topics_view(broker: Broker, query: Query) -> dict[str, Any]:
    names, about = await page_of(broker.turns, (topic.name for topic in broker.topics.all()), query, may=query.may_see)
    left = MOST_SUMMED
    rows = []
    for name in names:
        topic = broker.topics.get(name)
        if topic is None:
            continue  # deleted since
        rows.append(await _row(broker, topic, left))
        left = max(0, left - len(topic.partitions))
    return {**about, "topics": rows}


async def _row(broker: Broker, topic: Topic, most: int) -> dict[str, Any]:
    """Added up over its partitions; where those are too many for one request it says over how many."""
    records = size_bytes = offline = 0
    partitions = topic.open_partitions[:most]
    async for partition in in_turns(broker.turns, partitions):
        log = partition.log
        records += log.high_watermark - log.log_start_offset
        size_bytes += log.size_bytes
        offline += log.offline is not None
    return {
        "name": topic.name,
        "partitions": len(topic.partitions),
        "summed": len(partitions),
        "records": exact(records),
        "size_bytes": size_bytes,
        "offline": offline,
        "cleanup": topic.configs.get("cleanup.policy", "delete"),
        "is_internal": topic.is_internal,
    }


async def topic_view(broker: Broker, query: Query) -> dict[str, Any]:
    topic = query.topic(broker)
    partitions = topic.open_partitions
    count = len(partitions)
    start = query.page_start(count)
    return {
        **await _row(broker, topic, MOST_SUMMED),
        "id": str(topic.id),
        "configs": {name: text.name(value) for name, value in sorted(topic.configs.items())},
        "found": count,
        "start": start,
        "page": MOST_ROWS,
        "rows": [_partition(each) for each in partitions[start : start + MOST_ROWS]],
    }


def _partition(partition: Partition) -> dict[str, Any]:
    log = partition.log
    return {
        "partition": partition.index,
        "start": exact(log.log_start_offset),
        "end": exact(log.high_watermark),
        "size_bytes": log.size_bytes,
        "segments": 0 if log.offline is not None else len(log.segments),
        "producers": log.producers.leases_live + log.producers.kafka_live,
        "offline": text.name(log.offline),
        "damage": text.name("; ".join(log.damage) or None),
    }
