"""Chunks to blocks of messages: by compiled loops where there are many records, and the loops, else record by record.

Records before the position, aborted and control records do not come out. Damage does not pass unseen: what lies
before it is handed out first, then `Damaged` says at which offset it is.
"""

import importlib.util
from collections.abc import Iterator, Sequence
from itertools import repeat
from typing import TYPE_CHECKING, Any

from oncelog.client.consumer.block import Block, Runs
from oncelog.client.consumer.message import Source
from oncelog.client.fetching.batches import LAST_OFFSET, without_aborted
from oncelog.client.fetching.events import Chunk
from oncelog.client.in_background import InBackground
from oncelog.records.build import build_batch
from oncelog.records.header import LOG_APPEND_TIME, BatchHeader, headers
from oncelog.records.read import Record, batch_header, records_of

if TYPE_CHECKING:
    from oncelog.records.column_types import Columns

HAS_COLUMNS = all(importlib.util.find_spec(name) is not None for name in ("numba", "numpy", "pyarrow"))
# Loading the compiled loops takes a second and 100 MB, which a consumer of few records need not spend.
FEW_RECORDS = 256
# The bytes unfolded at a time; a single batch may take more, up to the second limit.
UNFOLDED_BYTES = 64 << 20
MOST_UNFOLDED_BYTES = 1 << 30
# Rows that become Python values at a time.
BLOCK_ROWS = 4096


def _load() -> Any:
    if not HAS_COLUMNS:
        return None
    from oncelog.records.columns import decode
    from oncelog.records.key_columns import warm_up

    decode(build_batch([(b"k", b"v", ((b"h", b"v"),), 0)]))
    warm_up()
    return decode


DECODING_LOOPS = InBackground(_load)


class Damaged(Exception):
    """The batch at this offset cannot be read."""

    def __init__(self, offset: int, why: str) -> None:
        super().__init__(why)
        self.offset = offset


def blocks_of(chunk: Chunk, start_offset: int, *, check_crcs: bool) -> Iterator[Block]:
    records = committed_records(chunk, start_offset, check_crcs=check_crcs)
    if HAS_COLUMNS and chunk.record_count > FEW_RECORDS:
        for columns in columns_of(records, start_offset, check_crcs=check_crcs):
            yield from _blocks_of_columns(columns, chunk)
    else:
        yield from _blocks_of_batches(records, chunk, start_offset, check_crcs=check_crcs)


def committed_records(chunk: Chunk, start_offset: int, *, check_crcs: bool) -> memoryview:
    try:
        return memoryview(without_aborted(chunk.records, chunk.aborted, check_crc=check_crcs))
    except ValueError as error:
        raise Damaged(start_offset, str(error)) from None


def columns_of(
    records: memoryview,
    start_offset: int,
    *,
    check_crcs: bool,
    end_offset: int = LAST_OFFSET,
    wanted: frozenset[str] | None = None,
    unfolded_bytes: int = UNFOLDED_BYTES,
) -> "Iterator[Columns]":
    """The records from one offset on and before another, in as many columns as the bounds on memory make of them."""
    from oncelog.records.columns import ALL, decode

    columns_wanted = ALL if wanted is None else wanted
    at, limit_bytes, is_one_by_one = 0, unfolded_bytes, False
    while at < len(records) and start_offset < end_offset:
        rest = records[at : at + _first_batch_bytes(records[at:])] if is_one_by_one else records[at:]
        try:
            columns = decode(
                rest,
                start_offset=start_offset,
                end_offset=end_offset,
                columns=columns_wanted,
                check_crc=check_crcs,
                limit_bytes=limit_bytes,
            )
        except ValueError as error:
            if is_one_by_one:
                raise Damaged(_base_offset(rest, start_offset), str(error)) from None
            # Something is wrong with one of the batches: those before it are read all the same.
            is_one_by_one, limit_bytes = True, MOST_UNFOLDED_BYTES
            continue
        at += columns.consumed_bytes or len(rest)
        start_offset = columns.next_offset
        yield columns


def _first_batch_bytes(records: memoryview) -> int:
    for _, header in headers(records):
        return header.size_bytes
    return len(records)


def _base_offset(records: memoryview, start_offset: int) -> int:
    for _, header in headers(records):
        return max(header.base_offset, start_offset)
    return start_offset


def _blocks_of_columns(columns: "Columns", chunk: Chunk) -> Iterator[Block]:
    from oncelog.records.arrow import to_arrow

    if columns.row_count == 0:
        return
    assert columns.offset is not None and columns.timestamp_ms is not None and columns.headers is not None
    batch = to_arrow(columns)
    has_headers = len(columns.headers.names) > 0
    runs = runs_of(columns, chunk)
    for first in range(0, columns.row_count, BLOCK_ROWS):
        last = min(first + BLOCK_ROWS, columns.row_count)
        rows = batch.slice(first, last - first)
        yield Block(
            columns.offset[first:last].tolist(),
            columns.timestamp_ms[first:last].tolist(),
            rows.column("key").to_pylist(),
            rows.column("value").to_pylist(),
            (columns.headers[row] for row in range(first, last)) if has_headers else repeat(None),
            _cut(runs, first, last),
        )


def runs_of(columns: "Columns", chunk: Chunk) -> Runs:
    """The rows by what their batches say; neighbours that say the same are one run."""
    topic, partition = chunk.partition
    runs: Runs = []
    counts = columns.batches.row_counts(columns.row_count).tolist()
    said = zip(columns.batches.leader_epoch.tolist(), columns.batches.attributes.tolist(), counts, strict=True)
    for epoch, attributes, count in said:
        _add_run(runs, Source(topic, partition, epoch, bool(attributes & LOG_APPEND_TIME)), count)
    return runs


def _add_run(runs: Runs, source: Source, count: int) -> None:
    if count and runs and runs[-1][0] == source:
        runs[-1] = source, runs[-1][1] + count
    elif count:
        runs.append((source, count))


def _cut(runs: Runs, first: int, last: int) -> Runs:
    """The part of the runs from row `first` to before row `last`."""
    if len(runs) == 1:
        return [(runs[0][0], last - first)]
    cut: Runs = []
    at = 0
    for source, count in runs:
        _add_run(cut, source, max(0, min(at + count, last) - max(at, first)))
        at += count
    return cut


def _blocks_of_batches(records: memoryview, chunk: Chunk, start_offset: int, *, check_crcs: bool) -> Iterator[Block]:
    topic, partition = chunk.partition
    for header, wanted in records_from(records, start_offset, check_crcs=check_crcs):
        source = Source(topic, partition, header.leader_epoch, header.has_log_append_time)
        yield Block(
            [each.offset for each in wanted],
            [each.timestamp_ms for each in wanted],
            [each.key for each in wanted],
            [each.value for each in wanted],
            [each.headers for each in wanted],
            [(source, len(wanted))],
        )


def records_from(
    records: memoryview, start_offset: int, *, check_crcs: bool
) -> Iterator[tuple[BatchHeader, list[Record]]]:
    """Batch by batch, those that have any from this offset on."""
    behind = 0
    for at, header in headers(records):
        behind = at + header.size_bytes
        try:
            if header.last_offset < start_offset:
                # Passed over only if it is sound: damage could make any batch look like one that was read before.
                batch_header(records, at, check_crcs)
                continue
            found = records_of(records, at, limit_bytes=MOST_UNFOLDED_BYTES, check_crc=check_crcs)
        except ValueError as error:
            raise Damaged(max(header.base_offset, start_offset), str(error)) from None
        wanted = [] if header.is_control else [each for each in found if each.offset >= start_offset]
        if wanted:
            yield header, wanted
    if behind < len(records):
        raise Damaged(start_offset, f"{len(records) - behind} bytes that are no batch")


def time_in(headers: Sequence[tuple[bytes, bytes | None]], name: bytes, own_ms: int) -> int:
    """The time that a header of this name says, in decimal milliseconds; without one the record's own."""
    for key, value in headers:
        if key == name and value is not None and value.isdigit():
            return int(value)
    return own_ms
