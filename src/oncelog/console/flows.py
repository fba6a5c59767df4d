"""Flows: what their registers and the ends of their journals say of them. The topics are read where they lie."""

import asyncio
from itertools import chain
from typing import Any, Final, NamedTuple

from oncelog.console import text
from oncelog.console.batches import Found, batches_from
from oncelog.console.limits import (
    LARGEST_BATCH_BYTES,
    MOST_FLOW_CELLS,
    MOST_FLOWS,
    MOST_REGISTER_BATCHES,
    READ_BYTES,
    exact,
)
from oncelog.console.query import Query, page_of
from oncelog.console.records import Budget, records_from
from oncelog.flow.formats import COMMIT, GOODBYE, TAKE_OVER, Commit, Goodbye, TakeOver, Unreadable, decoded
from oncelog.flow.register import FlowRegister
from oncelog.log.errors import LogStorageError, OffsetOutOfRange
from oncelog.records.errors import InvalidRecord
from oncelog.runner.layout import PREFIX
from oncelog.server.broker import Broker
from oncelog.slots.register import Record

TAIL: Final = 50  # records of a journal's end, or one batch
TAIL_BYTES: Final = READ_BYTES // MOST_FLOW_CELLS
REGISTER_BYTES: Final = LARGEST_BATCH_BYTES // MOST_FLOWS
ENTRIES: Final = (COMMIT, TAKE_OVER, GOODBYE)


class End(NamedTuple):
    """The end of a journal."""

    commit: Commit | None
    committed_ms: int
    holder: TakeOver | Goodbye | None  # whichever is newer; None where neither is near the end


async def flows_view(broker: Broker, query: Query) -> dict[str, Any]:
    names = (each.name.removeprefix(PREFIX) for each in broker.topics.all() if each.name.startswith(PREFIX))
    found, about = await page_of(
        broker.turns,
        (name for name in names if "." not in name),
        query,
        MOST_FLOWS,
        may=lambda name: query.may_read(PREFIX + name),
    )
    return {**about, "flows": [_summary(name, await _register(broker, name)) for name in found]}


async def flow_view(broker: Broker, query: Query) -> dict[str, Any]:
    name = query.topic(broker).name.removeprefix(PREFIX)
    query.refuse_unless_read(PREFIX + name)
    register = await _register(broker, name)
    stages = [] if isinstance(register, str) else register.stages
    count = sum(each.cells for each in stages)
    start = query.page_start(count, MOST_FLOW_CELLS)
    every = chain.from_iterable(((each.stage, cell) for cell in range(each.cells)) for each in stages)
    on_page = [each for at, each in enumerate(every) if start <= at < start + MOST_FLOW_CELLS]
    left_bytes, cells = LARGEST_BATCH_BYTES, []
    for stage, cell in on_page:
        assert isinstance(register, FlowRegister)
        journal = f"{PREFIX}{name}.{stage}"
        query.refuse_unless_read(journal)
        tail = _tail(broker, journal, cell) if left_bytes > 0 else "enough was read for this page"
        left_bytes -= 0 if isinstance(tail, str) else sum(len(each.data or b"") for each in tail)
        end = tail if isinstance(tail, str) else await asyncio.to_thread(_end, tail)
        cells.append({"stage": stage, "cell": cell, **_cell(broker, query, register.sources(stage), cell, end)})
    about = {"found": count, "start": start, "page": MOST_FLOW_CELLS}
    return {**_summary(name, register), "cells": cells, **about}


async def _register(broker: Broker, name: str) -> FlowRegister | str:
    """Or why it cannot be told."""
    partition = broker.topics.open_partition(PREFIX + name, 0)
    if partition is None:
        return "its register is gone"
    log = partition.log
    try:
        found = batches_from(
            log, log.log_start_offset, newest=False, most_bytes=REGISTER_BYTES, most=MOST_REGISTER_BATCHES
        )
    except (LogStorageError, OffsetOutOfRange) as error:
        return str(error)
    is_whole = not found or (found[-1].data is not None and found[-1].header.last_offset + 1 >= log.high_watermark)
    if not is_whole:
        return "its register has more than is read for this page: `oncelog flow describe` reads all of it"
    return await asyncio.to_thread(_read_register, found)


def _tail(broker: Broker, journal: str, cell: int) -> list[Found] | str:
    partition = broker.topics.open_partition(journal, cell)
    if partition is None:
        return "its journal is gone"
    log = partition.log
    try:
        offset = max(log.log_start_offset, log.high_watermark - TAIL)
        return batches_from(log, offset, newest=True, most_bytes=TAIL_BYTES)
    except (LogStorageError, OffsetOutOfRange) as error:
        return str(error)


# --- in a thread


def _read_register(found: list[Found]) -> FlowRegister | str:
    register = FlowRegister()
    try:
        register.read(_records(found))
    except (InvalidRecord, Unreadable) as error:
        return str(error)
    return register


def _end(tail: list[Found]) -> End | str:
    """The highest commit counts: what an older holder wrote late is passed over."""
    commit, committed_ms, holder = None, -1, None
    try:
        times = {each.header.base_offset: each.header.max_timestamp for each in tail}
        for record in _records(tail):
            if record.key not in ENTRIES or record.value is None:
                continue
            entry = decoded(record.key, record.value)
            if isinstance(entry, Commit):
                if commit is None or entry.number > commit.number:
                    commit = entry
                    committed_ms = times[max(base for base in times if base <= record.offset)]
            elif isinstance(entry, TakeOver | Goodbye):
                holder = entry
    except (InvalidRecord, Unreadable) as error:
        return str(error)
    if tail and tail[-1].data is None:
        return f"its last batch takes {tail[-1].header.size_bytes:,} bytes, more than is read for this page"
    return End(commit, committed_ms, holder)


def _records(found: list[Found]) -> list[Record]:
    budget = Budget()
    return [
        Record(each.offset, each.key, each.value)
        for header, data in found
        if data is not None and not header.is_control
        for each in records_from(data, header.base_offset, header.record_count, budget=budget)
    ]


# --- as it is told


def _summary(name: str, register: FlowRegister | str) -> dict[str, Any]:
    about = {"flow": text.name(name), "topic": PREFIX + name}
    if isinstance(register, str):
        return {**about, "trouble": text.name(register)}
    runs = register.runs
    return {
        **about,
        "trouble": None,
        "stages": len(register.stages),
        "cells_in_all": sum(each.cells for each in register.stages),
        "order": register.order.value,
        "runs": len(runs),
        "open_runs": sum(not register.is_finished(each.run) for each in runs if each.ends is not None),
        "code": text.name(runs[-1].code) if runs else None,
    }


def _cell(broker: Broker, query: Query, sources: list[str], cell: int, end: End | str) -> dict[str, Any]:
    if isinstance(end, str):
        return {"trouble": text.name(end)}
    commit, inputs = end.commit, []
    for at, source in enumerate(sources):
        partition = broker.topics.open_partition(source, cell)
        taken = None if commit is None or at >= len(commit.inputs) else commit.inputs[at].next_offset
        lag = None
        if partition is not None and query.may_see(source):
            log = partition.log
            lag = max(0, log.high_watermark - (log.log_start_offset if taken is None else taken))
        inputs.append(
            {
                "topic": text.name(source),
                "next_offset": None if taken is None else exact(taken),
                "lag": None if lag is None else exact(lag),
            }
        )
    return {
        "trouble": None,
        "commit": None if commit is None else exact(commit.number),
        "code": None if commit is None else text.name(commit.code),
        "committed_ms": exact(end.committed_ms) if commit is not None else None,
        "watermark_ms": exact(commit.watermark_ms) if commit is not None and commit.watermark_ms >= 0 else None,
        "written": 0 if commit is None else exact(sum(each.filled for each in commit.outputs)),
        "has_left": isinstance(end.holder, Goodbye),
        "why": text.visible(end.holder.why) if isinstance(end.holder, Goodbye) else "",
        "until_ms": exact(end.holder.until_ms) if isinstance(end.holder, TakeOver) else None,
        "inputs": inputs,
    }
