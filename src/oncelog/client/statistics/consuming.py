"""What a consumer tells of itself: its group, and how far it has come in each of its partitions."""

from collections import defaultdict
from typing import TYPE_CHECKING, Any, Final

from oncelog.client.consumer.reading import Position
from oncelog.client.fetching.place import Place, Stage
from oncelog.client.fetching.values import NO_EPOCH, Chunk, Event, Partition
from oncelog.client.types import OFFSET_INVALID
from oncelog.clock import monotonic_s

if TYPE_CHECKING:
    from collections.abc import Iterable

    from oncelog.client.consumer.core import Core
    from oncelog.client.groups.commits import ToCommit

NO_LAG: Final = -1
NOWHERE: Final = Position(OFFSET_INVALID, NO_EPOCH)
STATES: Final = {
    Stage.STORED: "offset-wait",
    Stage.FIND: "offset-query",
    Stage.CHECK: "validate-epoch-wait",
    Stage.FETCH: "active",
    Stage.HALTED: "stopped",
}


class _Received:
    __slots__ = ("records", "size_bytes")

    def __init__(self) -> None:
        self.records = 0
        self.size_bytes = 0


class Consuming:
    def __init__(self, core: "Core") -> None:
        self._core = core
        self._received: defaultdict[Partition, _Received] = defaultdict(_Received)

    def fetched(self, events: "Iterable[Event]") -> None:
        for event in events:
            if isinstance(event, Chunk):
                received = self._received[event.partition]
                received.records += event.record_count
                received.size_bytes += len(event.records)

    def fields(self) -> dict[str, Any]:
        core = self._core
        topics: dict[str, Any] = {}
        handed, stored, committed = core.handed(), core.to_store(), core.last_committed
        for partition, place in core.engine.fetcher.places.items():
            topic = topics.setdefault(partition[0], {"topic": partition[0], "partitions": {}})
            topic["partitions"][str(partition[1])] = self._partition(
                place, handed.get(partition, NOWHERE), stored.get(partition, NOWHERE), committed.get(partition, NOWHERE)
            )
        fields: dict[str, Any] = {"replyq": len(core.calls), "topics": topics}
        group = core.group
        if group is not None:
            fields["cgrp"] = {
                "state": "up" if group.coordinator is not None else "wait-coord",
                "join_state": "steady" if group.is_settled else "wait-join",
                "rebalance_age": int((monotonic_s() - group.rebalanced_s) * 1000),
                "rebalance_cnt": group.rebalances,
                "rebalance_reason": group.rebalance_reason,
                "assignment_size": len(group.assigned),
            }
        return fields

    def _partition(
        self, place: Place, handed: "Position", stored: "Position | ToCommit", committed: "Position | ToCommit"
    ) -> dict[str, Any]:
        read_committed = self._core.settings.isolation_level == "read_committed"
        end = place.last_stable_offset if read_committed else place.high_watermark
        received = self._received[place.partition]
        return {
            "partition": place.partition[1],
            "broker": place.leader,
            "leader": place.leader,
            "leader_epoch": place.leader_epoch,
            "desired": True,
            "unknown": place.leader < 0,
            "fetchq_cnt": place.queued_records,
            "fetchq_size": place.queued_bytes,
            "fetch_state": STATES[place.stage],
            "next_offset": place.offset,
            "app_offset": handed.offset,
            "stored_offset": stored.offset,
            "stored_leader_epoch": stored.leader_epoch,
            "committed_offset": committed.offset,
            "committed_leader_epoch": committed.leader_epoch,
            "eof_offset": _or_invalid(place.end_reported_at),
            "lo_offset": _or_invalid(place.log_start_offset),
            "hi_offset": _or_invalid(place.high_watermark),
            "ls_offset": _or_invalid(place.last_stable_offset),
            "consumer_lag": _lag(end, committed.offset),
            "consumer_lag_stored": _lag(end, stored.offset),
            "rxmsgs": received.records,
            "rxbytes": received.size_bytes,
            "msgs": received.records,
        }


def _or_invalid(offset: int) -> int:
    return offset if offset >= 0 else OFFSET_INVALID


def _lag(end_offset: int, offset: int) -> int:
    return max(0, end_offset - offset) if end_offset >= 0 and offset >= 0 else NO_LAG
