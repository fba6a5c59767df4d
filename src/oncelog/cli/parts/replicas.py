"""The replicas of a cluster: read from its brokers, and partitions moved from some to others."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Event
from typing import Any, Final

import click

from oncelog.cli.parts.cluster import Cluster, each_outcome, opened, partition_name
from oncelog.cli.parts.endings import failure
from oncelog.cli.parts.options import Connecting
from oncelog.cli.parts.output import emit
from oncelog.cli.parts.rules import on_cluster
from oncelog.client.admin import ConfigResource, Move, Replicas, ResourceType
from oncelog.client.types import TopicPartition
from oncelog.clock import monotonic_s
from oncelog.slots import Place

MIN_IN_SYNC: Final = "min.insync.replicas"
LOOK_S: Final = 0.2
STUCK_S: Final = 10.0  # brokers hear of a change within that

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Seen:
    """A cluster, as its brokers describe it."""

    cluster_id: str
    controller: int
    brokers: list[Row]
    replicas: Mapping[Place, Replicas]
    moves: Mapping[Place, Move]
    min_in_sync: Mapping[str, int]  # by topic

    @property
    def ready(self) -> list[int]:
        """Brokers that may be given something."""
        return [row["id"] for row in self.brokers if row["state"] == "up"]

    def counts(self) -> Row:
        all_of = self.replicas.items()
        return {
            "partitions": len(self.replicas),
            "without_leader": sum(each.leader < 0 for _, each in all_of),
            "under_replicated": sum(len(each.in_sync) < len(each.replicas) for _, each in all_of),
            "under_min_isr": sum(len(each.in_sync) < self.min_in_sync[topic] for (topic, _), each in all_of),
            "at_min_isr": sum(len(each.in_sync) == self.min_in_sync[topic] for (topic, _), each in all_of),
            "not_preferred": sum(each.leader != each.replicas[0] for _, each in all_of),
            "moving": len(self.moves),
        }

    def troubled(self) -> list[Place]:
        """Partitions that lack something, and those that move."""
        return [
            place
            for place, each in sorted(self.replicas.items())
            if each.leader < 0 or len(each.in_sync) < len(each.replicas) or place in self.moves
        ]


@contextmanager
def opened_past_who_hangs(to: Connecting, operation: str = "Alter") -> Iterator[Cluster]:
    """These commands are given just when a broker hangs: another one is to be asked before the time is over."""
    setup_ms = max(1000, int(to.timeout_s * 1000 / 3))
    with opened(to, takes=on_cluster(operation), socket_connection_setup_timeout_ms=setup_ms) as cluster:
        yield cluster


def seen(cluster: Cluster) -> Seen:
    admin = cluster.admin
    described = admin.describe_cluster().result()
    replicas = admin.describe_replicas().result()
    moves = admin.list_partition_reassignments().result()
    up = {each.id for each in admin.describe_cluster(include_fenced=False).result().nodes}
    known = {each.id: each for each in described.nodes}
    named = {broker for each in replicas.values() for broker in each.replicas}
    brokers = []
    for node_id in sorted(known.keys() | named):
        node = known.get(node_id)
        is_fenced = node is None or node.is_fenced
        brokers.append(
            {
                "id": node_id,
                "address": None if node is None else f"{node.host}:{node.port}",
                "rack": None if node is None else node.rack,
                "state": "down" if node_id not in up else "stopping" if is_fenced else "up",
                "leads": sum(each.leader == node_id for each in replicas.values()),
                "replicas": sum(node_id in each.replicas for each in replicas.values()),
            }
        )
    topics = sorted({topic for topic, _ in replicas})
    return Seen(described.cluster_id, described.controller, brokers, replicas, moves, _min_in_sync(cluster, topics))


def _min_in_sync(cluster: Cluster, topics: Sequence[str]) -> dict[str, int]:
    if not topics:
        return {}
    asked = cluster.admin.describe_configs([ConfigResource(ResourceType.TOPIC, name) for name in topics])
    return {each.name: int(future.result()[MIN_IN_SYNC].value or 1) for each, future in asked.items()}


def rows_of(cluster: Cluster, found: Seen, places: Collection[Place], timeout_s: float) -> list[Row]:
    """Partitions one by one, with how many records each follower lacks; null where a broker does not say."""
    asked = [
        (broker, *place)
        for place in places
        for broker in found.replicas[place].replicas
        if broker in found.ready or broker == found.replicas[place].leader
    ]
    ends = cluster.admin.log_ends(asked, request_timeout=timeout_s).result() if asked else {}
    rows = []
    for place in places:
        each, move = found.replicas[place], found.moves.get(place)
        leader_end = ends.get((each.leader, *place))
        lag: dict[str, int | None] = {}
        for broker in each.replicas:
            if broker != each.leader:
                end = ends.get((broker, *place))
                lag[str(broker)] = None if end is None or leader_end is None else max(0, leader_end - end)
        rows.append(
            {
                "topic": place[0],
                "partition": place[1],
                "leader": each.leader if each.leader >= 0 else None,
                "epoch": each.leader_epoch,
                "replicas": list(each.replicas),
                "in_sync": list(each.in_sync),
                "eligible": None if each.eligible is None else list(each.eligible),
                "lag": lag,
                "adding": [] if move is None else list(move.adding),
                "removing": [] if move is None else list(move.removing),
            }
        )
    return rows


def move(
    cluster: Cluster, targets: Mapping[Place, Sequence[int]], form: str, *, is_tried: bool, is_awaited: bool
) -> None:
    """Prints what moves from where to where, before it does."""
    now = cluster.admin.describe_replicas().result()
    rows = [
        {"topic": place[0], "partition": place[1], "from": list(now[place].replicas), "to": list(target)}
        for place, target in sorted(targets.items())
    ]
    emit(form, rows, rows, ["topic", "partition", "from", "to"])
    if not targets or is_tried:
        return
    alter(cluster, targets)
    if is_awaited:
        until_moved(cluster, targets)


def alter(cluster: Cluster, targets: Mapping[Place, Sequence[int] | None]) -> None:
    futures = cluster.admin.alter_partition_reassignments(
        {TopicPartition(*place): target for place, target in targets.items()}
    )
    each_outcome(futures, takes=on_cluster("Alter"), name_of=partition_name)


def refuse_while_moving(found: Seen) -> None:
    """Refuse while partitions move: where they will be is not what is seen of them."""
    if found.moves:
        topic, index = min(found.moves)
        raise failure(
            f"{topic}-{index} is moving already: wait until `oncelog cluster describe` shows no moves, or take them "
            "back with `oncelog cluster reassign --cancel`"
        )


def until_moved(cluster: Cluster, targets: Mapping[Place, Sequence[int]]) -> None:
    """Says on stderr how many are still to come. A broker that has not heard of a move yet shows what was before."""
    pause, shown, moved_s = Event(), -1, monotonic_s()
    while True:
        now = cluster.admin.describe_replicas().result()
        moving = cluster.admin.list_partition_reassignments().result()
        left = [
            place
            for place, target in targets.items()
            if place in now and (place in moving or now[place].replicas != tuple(target))
        ]
        if not left:
            return
        if any(place in moving for place in left):
            moved_s = monotonic_s()
        elif monotonic_s() - moved_s > STUCK_S:
            topic, index = left[0]
            raise failure(
                f"{topic}-{index} does not move any more, and is at {','.join(map(str, now[left[0]].replicas))}: "
                "somebody took the move back. Give the command again to move it"
            )
        if len(left) != shown:
            shown = len(left)
            click.echo(f"{shown} of {len(targets)} partitions are being copied", err=True)
        pause.wait(LOOK_S)
