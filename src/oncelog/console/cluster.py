"""The cluster as this broker sees it: who is up, and who leads, has and follows each partition."""

from typing import Any

from oncelog.console import text
from oncelog.console.limits import MOST_ROWS, MOST_SUMMED, exact, in_turns
from oncelog.console.query import Query
from oncelog.replication.leadership import NOBODY, Leadership
from oncelog.server.broker import Broker
from oncelog.server.topic import Partition

MIN_IN_SYNC = "min.insync.replicas"


async def cluster_view(broker: Broker, query: Query) -> dict[str, Any]:
    """Partitions that lack something come first."""
    query.refuse_unless_cluster()
    everything = [partition for topic in broker.topics.all() for partition in topic.partitions]
    looked_at = [each for each in everything[:MOST_SUMMED] if each.leadership is not None]
    counts = dict.fromkeys(
        ("without_leader", "under_replicated", "under_min_isr", "at_min_isr", "not_preferred", "moving"), 0
    )
    held: dict[int, list[int]] = {}  # by broker: how many partitions it leads, and has
    order: list[tuple[bool, str, int, Partition]] = []
    async for partition in in_turns(broker.turns, looked_at):
        state = _state(partition)
        for node_id in state.replicas:
            held.setdefault(node_id, [0, 0])[1] += 1
        if state.leader in state.replicas:
            held[state.leader][0] += 1
        minimum = int(partition.topic.configs.get(MIN_IN_SYNC, broker.settings.min_insync_replicas))
        counts["without_leader"] += state.leader == NOBODY
        counts["under_replicated"] += state.is_incomplete
        counts["under_min_isr"] += len(state.in_sync) < minimum
        counts["at_min_isr"] += len(state.in_sync) == minimum
        counts["not_preferred"] += not state.is_as_preferred
        counts["moving"] += _is_moving(state)
        lacks = state.leader == NOBODY or state.is_incomplete or _is_moving(state)
        order.append((not lacks, partition.topic.name, partition.index, partition))
    order.sort(key=lambda each: each[:3])
    start = query.page_start(len(order))
    return {
        "node_id": broker.node_id,
        "is_alone": not looked_at and len(broker.cluster.members) == 1,
        "brokers": _brokers(broker, held),
        "partitions": len(everything),
        "summed": len(looked_at),
        "counts": counts,
        "elections": broker.metrics.elections,
        "found": len(order),
        "start": start,
        "page": MOST_ROWS,
        "rows": [_row(partition) for *_, partition in order[start : start + MOST_ROWS]],
    }


def _brokers(broker: Broker, held: dict[int, list[int]]) -> list[dict[str, Any]]:
    members, away = broker.cluster.members, broker.cluster.away
    rows = []
    for node_id in sorted(members.keys() | away.keys() | held.keys()):
        member = members.get(node_id) or away.get(node_id)
        addresses = [] if member is None else [f"{host}:{port}" for host, port in member.endpoints.values()]
        state = "down" if node_id not in members else "stopping" if node_id in away else "up"
        leads, has = held.get(node_id, (0, 0))
        rack = None if member is None else text.name(member.rack)
        address = text.name(", ".join(addresses))
        rows.append({"id": node_id, "address": address, "rack": rack, "state": state, "leads": leads, "replicas": has})
    return rows


def _row(partition: Partition) -> dict[str, Any]:
    state = _state(partition)
    lags = {} if partition.replica is None else partition.replica.lags
    return {
        "topic": partition.topic.name,
        "partition": partition.index,
        "leader": None if state.leader == NOBODY else state.leader,
        "epoch": state.epoch,
        "replicas": state.replicas,
        "in_sync": state.in_sync,
        "eligible": state.eligible,
        "lags": [[node_id, exact(lag)] for node_id, lag in lags.items()],
        "adding": state.adding,
        "removing": state.removing,
    }


def _state(partition: Partition) -> Leadership:
    assert partition.leadership is not None
    return partition.leadership


def _is_moving(state: Leadership) -> bool:
    return bool(state.adding or state.removing)
