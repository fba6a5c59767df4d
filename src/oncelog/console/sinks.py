"""Spark queries that write exactly once: what their sinks' topics say of them and of their lanes.

The topics are read where they lie, from their ends, by the rules of `oncelog.spark.sink.sink_register`; no Spark is
needed for that.
"""

import asyncio
from typing import Any, NamedTuple

from oncelog.client.saving.errors import BadSavedProducer
from oncelog.client.saving.saved import SavedProducer
from oncelog.console import text
from oncelog.console.batches import Found, batches_from
from oncelog.console.limits import (
    LARGEST_BATCH_BYTES,
    MOST_ROWS,
    MOST_SINKS,
    MOST_STATE_BYTES,
    MOST_STATES_AND_MARKS,
    exact,
)
from oncelog.console.query import Query, page_of
from oncelog.console.records import Budget, records_from
from oncelog.log.errors import LogStorageError, OffsetOutOfRange
from oncelog.records.errors import InvalidRecord
from oncelog.server.broker import Broker
from oncelog.slots.register import Gap, Record
from oncelog.spark.sink.errors import BadState
from oncelog.spark.sink.lane import STATE, TOPIC_PREFIX, Json, LaneState, batch_of_key, kind_of_key
from oncelog.spark.sink.sink_register import SinkRegister

# Between two states there is a mark for each lane, so the end of the topic is read in two tries.
TAILS = (100, MOST_STATES_AND_MARKS)
MOST_PLACES = 20  # of a lane


class Tail(NamedTuple):
    found: list[Found]
    is_whole: bool  # from the topic's beginning
    trouble: str | None = None


async def sinks_view(broker: Broker, query: Query) -> dict[str, Any]:
    topics = (each.name for each in broker.topics.all())
    names, about = await page_of(
        broker.turns, (name for name in topics if name.startswith(TOPIC_PREFIX)), query, MOST_SINKS, may=query.may_read
    )
    rows = []
    for name in names:
        register = await _register(broker, name, LARGEST_BATCH_BYTES // 16)
        rows.append({"sink": name.removeprefix(TOPIC_PREFIX), "topic": name, **_summary(register)})
    return {**about, "sinks": rows}


async def sink_view(broker: Broker, query: Query) -> dict[str, Any]:
    name = query.topic(broker).name
    query.refuse_unless_read(name)
    register = await _register(broker, name, LARGEST_BATCH_BYTES)
    numbers = [] if isinstance(register, str) else sorted(_numbers(register))
    start = query.page_start(len(numbers))
    on_page = numbers[start : start + MOST_ROWS]
    lanes = [] if isinstance(register, str) else await asyncio.to_thread(_lanes, register, on_page)
    return {
        "sink": name.removeprefix(TOPIC_PREFIX),
        "topic": name,
        **_summary(register),
        "lanes": lanes,
        "found": len(numbers),
        "start": start,
        "page": MOST_ROWS,
    }


async def _register(broker: Broker, name: str, most_bytes: int) -> SinkRegister | str:
    """The register in the topic, or the reason why it cannot be told."""
    found: SinkRegister | str | None = None
    for records in TAILS:
        tail = _tail(broker, name, records, most_bytes)
        found = await asyncio.to_thread(_read, tail)
        if found is not None:
            return found
    return f"no state is among its last {MOST_STATES_AND_MARKS:,} records"


def _tail(broker: Broker, name: str, records: int, most_bytes: int) -> Tail:
    partition = broker.topics.open_partition(name, 0)
    if partition is None:
        return Tail([], is_whole=True, trouble="the topic is gone")
    log = partition.log
    try:
        offset = max(log.log_start_offset, log.high_watermark - records)
        found = batches_from(log, offset, newest=True, most_bytes=most_bytes, most=records)
        return Tail(found, is_whole=offset == log.log_start_offset)
    except (LogStorageError, OffsetOutOfRange) as error:
        return Tail([], is_whole=True, trouble=str(error))


# --- in a thread


def _read(tail: Tail) -> SinkRegister | str | None:
    """None where the end that was read holds no state, and there is more of the topic."""
    if tail.trouble is not None:
        return tail.trouble
    unread = max((at for at, (_, data) in enumerate(tail.found) if data is None), default=-1)
    if tail.found and unread == len(tail.found) - 1:
        return f"its last record takes {tail.found[-1].header.size_bytes:,} bytes, more than is read for this page"
    budget = Budget()
    try:
        entries = [
            Record(each.offset, each.key, each.value)
            for header, data in tail.found[unread + 1 :]
            if data is not None and not header.is_control
            for each in records_from(data, header.base_offset, header.record_count, budget=budget)
        ]
        largest = max((len(each.value or b"") for each in entries), default=0)
        if largest > MOST_STATE_BYTES:
            return f"a record of {largest:,} bytes is among its last ones, more than is read for this page"
        start = SinkRegister.start_of(_newest_states(entries))
        if start is None and not tail.is_whole:
            return None
        register = SinkRegister()
        register.read(entries, from_offset=start or 0)
    except (InvalidRecord, BadState) as error:
        return str(error)
    except Gap:
        return "states between its last ones are not there any more"
    return register


def _newest_states(entries: list[Record]) -> list[Record]:
    """Told by their keys: of a long tail most states are old, and reading them all would be most of the work."""
    states = [each for each in entries if kind_of_key(each.key) == STATE and each.value is not None]
    newest = max((batch_of_key(each.key) or 0 for each in states), default=0)
    return [each for each in states if batch_of_key(each.key) == newest]


def _summary(register: SinkRegister | str) -> dict[str, Any]:
    if isinstance(register, str):
        return {"trouble": text.name(register)}
    state, owner = register.state, register.owner
    return {
        "trouble": None,
        "query": None if owner is None else text.name(owner.query),
        "batch": None if state is None else exact(state.batch),
        "saved_at_ms": None if state is None else exact(state.made_at_ms),
        "lanes_used": 0 if state is None else state.lane_count,
        "rows": 0 if state is None else exact(sum(lane.rows for lane in state.lanes.values())),
        "topics": [] if state is None else [text.name(topic) for topic in list(state.topics)[:MOST_PLACES]],
        "next_batch": exact(register.next_batch) if register.next_batch is not None else None,
        "sending": len(register.marked()),
    }


def _lanes(register: SinkRegister, numbers: list[int]) -> list[dict[str, Any]]:
    return [_lane(register, number, register.lane(number)) for number in numbers]


def _numbers(register: SinkRegister) -> set[int]:
    saved = set() if register.state is None else set(register.state.lanes)
    return saved | register.marked()


def _lane(register: SinkRegister, number: int, lane: LaneState | None) -> dict[str, Any]:
    is_saved = register.state is not None and number in register.state.lanes
    return {
        "lane": number,
        "is_saved": is_saved,  # or only claimed so far
        "is_sending": number in register.marked(),
        "rows": 0 if lane is None else exact(lane.rows),
        "idle_batches": 0 if lane is None else exact(lane.idle_batches),
        "places": [] if lane is None else _places(lane.producer),
    }


def _places(producer: Json) -> list[dict[str, Any]]:
    """The places at which the lane goes on, by output partition: pid, epoch and the next sequence."""
    try:
        saved = SavedProducer.from_json(producer)
    except BadSavedProducer as error:
        return [{"trouble": text.name(str(error))}]
    return [
        {
            "topic": text.name(name),
            "partition": index,
            "pid": exact(place.last.identity.pid),
            "generation": place.last.identity.generation,
            "next_sequence": place.last.next_sequence,
            "next_offset": exact(place.next_offset),
        }
        for name, topic in list(saved.topics.items())[:MOST_PLACES]
        for index, place in list(topic.partitions.items())[:MOST_PLACES]
    ][:MOST_PLACES]
