"""Messages: the newest of a topic, those from an offset on, and one alone with all of it.

The logs are read on the event loop, a bounded number of bytes at a time; what was read is unfolded and taken apart in
a thread. What is not shown (a batch too large, damage, a fence of ours) stands there as a note, so nothing is missing
in silence.
"""

import asyncio
from typing import Any, NamedTuple

from oncelog.console import text
from oncelog.console.batches import Found, batches_from
from oncelog.console.errors import not_found
from oncelog.console.limits import (
    MOST_HEADERS,
    MOST_MESSAGES,
    MOST_TAILED,
    PREVIEW_BYTES,
    READ_BYTES,
    WHOLE_BYTES,
    exact,
    in_turns,
)
from oncelog.console.query import Query
from oncelog.console.records import Budget, records_from
from oncelog.log.errors import LogStorageError, OffsetOutOfRange
from oncelog.producers.fence import NotAFence, read_fence
from oncelog.producers.sequences import sequence_after
from oncelog.records.codecs import CODECS
from oncelog.records.errors import InvalidRecord
from oncelog.records.header import BatchHeader
from oncelog.records.read import Record
from oncelog.server.broker import Broker
from oncelog.server.topic import Partition

Row = dict[str, Any]
CODEC_NAMES = {number: name for name, number in CODECS.items()}


class Read(NamedTuple):
    partition: int
    found: list[Found]
    offset: int
    trouble: str | None = None


async def messages_view(broker: Broker, query: Query) -> dict[str, Any]:
    """The messages of one `partition`, from `offset` on or the newest; without it the newest of the whole topic."""
    topic = query.topic(broker)
    query.refuse_unless_read(topic.name)
    offset = query.number("offset")
    if query.text("partition"):
        partition = query.partition(broker)
        log = partition.log
        newest = offset is None
        if offset is None:
            offset = log.high_watermark - MOST_MESSAGES
        offset = max(log.log_start_offset, min(offset, log.high_watermark))
        read = _read(partition, offset, newest=newest, most_bytes=READ_BYTES)
        rows = await asyncio.to_thread(_rows, [read], newest, MOST_MESSAGES)
        bounds = {"start": exact(log.log_start_offset), "end": exact(log.high_watermark)}
        return {"rows": rows, "tailed": 1, "partitions": 1, **bounds}
    filled = [
        (_last_written(each), -each.index)
        async for each in in_turns(broker.turns, topic.open_partitions)
        if each.log.high_watermark > each.log.log_start_offset
    ]
    tailed = [topic.partitions[-index] for _, index in sorted(filled, reverse=True)[:MOST_TAILED]]
    reads = []
    async for each in in_turns(broker.turns, tailed):
        start = max(each.log.log_start_offset, each.log.high_watermark - MOST_MESSAGES)
        reads.append(_read(each, start, newest=True, most_bytes=READ_BYTES // len(tailed)))
    rows = await asyncio.to_thread(_rows, reads, True, MOST_MESSAGES)
    return {"rows": rows, "tailed": len(tailed), "partitions": len(filled)}


async def message_view(broker: Broker, query: Query) -> dict[str, Any]:
    partition, offset = query.partition(broker), query.number("offset") or 0
    query.refuse_unless_read(partition.topic.name)
    read = _read(partition, offset, newest=False, most_bytes=1)  # its batch and no more
    rows = await asyncio.to_thread(_whole, read)
    if not rows:
        raise not_found(f"message at offset {offset}")
    return rows[0]


def _last_written(partition: Partition) -> int:
    segments = partition.log.segments
    return segments.active.max_timestamp_ms if len(segments) else -1


def _read(partition: Partition, offset: int, *, newest: bool, most_bytes: int) -> Read:
    try:
        return Read(partition.index, batches_from(partition.log, offset, newest=newest, most_bytes=most_bytes), offset)
    except (LogStorageError, OffsetOutOfRange) as error:
        return Read(partition.index, [], offset, str(error))


# --- in a thread


def _rows(reads: list[Read], newest: bool, most: int) -> list[Row]:
    """The rows in the order in which they are shown: the newest first, or by offset."""
    budget = Budget()
    rows = [row for read in reads for row in _rows_of(read, newest, most, budget)]
    if newest:
        if len(reads) > 1:
            rows.sort(key=lambda row: int(row["timestamp_ms"]))
        return rows[: -most - 1 : -1]
    return rows[:most]


def _rows_of(read: Read, newest: bool, most: int, budget: Budget) -> list[Row]:
    """The rows in the order of the log."""
    if read.trouble is not None:
        return [_note(read.partition, read.offset, -1, read.trouble)]
    rows: list[Row] = []
    for header, data in reversed(read.found) if newest else read.found:
        if len(rows) >= most:
            break
        these = _rows_of_batch(read, header, data, newest, most - len(rows), budget)
        rows = these + rows if newest else rows + these
    return rows


def _rows_of_batch(
    read: Read, header: BatchHeader, data: bytes | None, newest: bool, most: int, budget: Budget
) -> list[Row]:
    at = max(header.base_offset, read.offset)
    if data is None:
        records = "1 record" if header.record_count == 1 else f"{header.record_count:,} records"
        what = f"{records} in {header.size_bytes:,} bytes: too much to be read for this list"
        return [_note(read.partition, at, header.max_timestamp, what)]
    try:
        found = records_from(data, read.offset, most, newest=newest, budget=budget)
    except InvalidRecord as error:
        return [_note(read.partition, at, header.max_timestamp, f"not shown: {error}")]
    if header.is_control:
        return [_control(read.partition, each) for each in found]
    return [_row(read.partition, header, each, PREVIEW_BYTES) for each in found]


def _whole(read: Read) -> list[Row]:
    for header, data in read.found[:1]:
        if data is None:
            return [_note(read.partition, read.offset, -1, f"a batch of {header.size_bytes:,} bytes is not shown")]
        try:
            records = [each for each in records_from(data, read.offset, 1) if each.offset == read.offset]
        except InvalidRecord as error:
            return [_note(read.partition, read.offset, -1, f"not shown: {error}")]
        return [_row(read.partition, header, each, WHOLE_BYTES) | _more(header, each) for each in records]
    return [_note(read.partition, read.offset, -1, read.trouble)] if read.trouble else []


def _row(partition: int, header: BatchHeader, record: Record, most_bytes: int) -> Row:
    is_produced = header.producer_id >= 0 and header.base_sequence >= 0
    return {
        "partition": partition,
        "offset": exact(record.offset),
        "timestamp_ms": exact(record.timestamp_ms),
        "key": text.shown(record.key, most_bytes),
        "value": text.shown(record.value, most_bytes),
        "header_count": len(record.headers),
        "pid": exact(header.producer_id) if is_produced else None,
        "generation": header.producer_epoch,
        "sequence": sequence_after(header.base_sequence, record.offset - header.base_offset) if is_produced else None,
    }


def _more(header: BatchHeader, record: Record) -> Row:
    return {
        "headers": [
            {"name": text.shown(name, PREVIEW_BYTES), "value": text.shown(value, PREVIEW_BYTES)}
            for name, value in record.headers[:MOST_HEADERS]
        ],
        "batch": {
            "base_offset": exact(header.base_offset),
            "records": header.record_count,
            "size_bytes": header.size_bytes,
            "codec": CODEC_NAMES.get(header.codec, str(header.codec)),
            "leader_epoch": header.leader_epoch,
            "timestamps": "append" if header.has_log_append_time else "create",
        },
    }


def _control(partition: int, record: Record) -> Row:
    try:
        what = "a fence: of pid {}, generations before {} are refused".format(*read_fence(record.key, record.value))
    except NotAFence:
        what = "a control record"
    return _note(partition, record.offset, record.timestamp_ms, what)


def _note(partition: int, offset: int, timestamp_ms: int, what: str) -> Row:
    note = text.name(what)
    return {"partition": partition, "offset": exact(offset), "timestamp_ms": exact(timestamp_ms), "note": note}
