"""Statistics of a consumer: its group, and how far it has come in each of its partitions."""

from collections import defaultdict
from collections.abc import Iterable
from typing import Any, Final

from oncelog.client.consumer.chunk_readers import Position
from oncelog.client.consumer.core import Core
from oncelog.client.fetching.cursor import Cursor, Stage
from oncelog.client.fetching.events import Chunk, Event
from oncelog.client.fetching.values import NO_EPOCH
from oncelog.client.groups.commits import ToCommit
from oncelog.client.statistics.statistics import Statistics
from oncelog.client.statistics.traffic import Carried
from oncelog.client.types import OFFSET_INVALID
from oncelog.clock import monotonic_s
from oncelog.slots import AnyPlace

NO_LAG: Final = -1
NOWHERE: Final = Position(OFFSET_INVALID, NO_EPOCH)
STATES: Final = {
    Stage.STORED: "offset-wait",
    Stage.FIND: "offset-query",
    Stage.CHECK: "validate-epoch-wait",
    Stage.FETCH: "active",
    Stage.HALTED: "stopped",
}


def count(core: Core) -> None:
    """Have the consumer's statistics told, where the application wants them."""
    settings = core.settings
    if settings.statistics_interval_ms and settings.stats_cb is not None:
        consuming = Consuming(core)
        core.engine.on_fetched = consuming.fetched
        core.statistics = Statistics(
            "consumer", core.brokers, consuming.fields, core.tell_statistics, settings.statistics_interval_ms
        )


class Consuming:
    def __init__(self, core: Core) -> None:
        self._core = core
        self._received: defaultdict[AnyPlace, Carried] = defaultdict(Carried)

    def fetched(self, events: Iterable[Event]) -> None:
        for event in events:
            if isinstance(event, Chunk):
                self._received[event.partition].add(event.record_count, len(event.records))

    def fields(self) -> dict[str, Any]:
        core = self._core
        topics: dict[str, Any] = {}
        handed, stored, committed = core.handed(), core.to_store(), core.last_committed
        for partition, cursor in core.engine.fetcher.cursors.items():
            topic = topics.setdefault(partition[0], {"topic": partition[0], "partitions": {}})
            topic["partitions"][str(partition[1])] = self._partition(
                cursor,
                handed.get(partition, NOWHERE),
                stored.get(partition, NOWHERE),
                committed.get(partition, NOWHERE),
            )
        fields: dict[str, Any] = {"replyq": len(core.calls), "topics": topics}
        group = core.group
        if group is not None:
            fields["cgrp"] = {
                "state": "up" if group.coordinator is not None else "wait-coord",
                "join_state": "steady" if group.is_steady else "wait-join",
                "rebalance_age": int((monotonic_s() - group.rebalanced_s) * 1000),
                "rebalance_cnt": group.rebalances,
                "rebalance_reason": group.rebalance_reason,
                "assignment_size": len(group.assigned),
            }
        return fields

    def _partition(
        self, cursor: Cursor, handed: Position, stored: Position | ToCommit, committed: Position | ToCommit
    ) -> dict[str, Any]:
        read_committed = self._core.settings.isolation_level == "read_committed"
        end = cursor.last_stable_offset if read_committed else cursor.high_watermark
        received = self._received[cursor.partition]
        return {
            "partition": cursor.partition[1],
            "broker": cursor.leader,
            "leader": cursor.leader,
            "leader_epoch": cursor.leader_epoch,
            "desired": True,
            "unknown": cursor.leader < 0,
            "fetchq_cnt": cursor.queued_records,
            "fetchq_size": cursor.queued_bytes,
            "fetch_state": STATES[cursor.stage],
            "next_offset": cursor.offset,
            "app_offset": handed.offset,
            "stored_offset": stored.offset,
            "stored_leader_epoch": stored.leader_epoch,
            "committed_offset": committed.offset,
            "committed_leader_epoch": committed.leader_epoch,
            "eof_offset": _or_invalid(cursor.end_reported_at),
            "lo_offset": _or_invalid(cursor.log_start_offset),
            "hi_offset": _or_invalid(cursor.high_watermark),
            "ls_offset": _or_invalid(cursor.last_stable_offset),
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
