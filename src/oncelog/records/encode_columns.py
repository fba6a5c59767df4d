"""Columns to batches: put together in one compiled loop, then compressed, headed and checksummed batch by batch."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from oncelog.records import encode_loops as loops
from oncelog.records.codecs import DEFAULT_LEVEL, NONE, compress
from oncelog.records.column_types import MOST_BYTES, Bools, Bytes, BytesColumn, HeadersColumn, Int32s, Int64s, read_only
from oncelog.records.header import (
    HEADER,
    HEADER_BYTES,
    LENGTH_PREFIX_BYTES,
    MAGIC,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    restamp_crc,
)

SEQUENCE_MASK = (1 << 31) - 1

_Cells = tuple[Int32s | Int64s, Bools, Bytes]


class EncodedBatch(NamedTuple):
    data: bytearray | memoryview
    first_row: int  # the place of its first record among the rows of its part
    record_count: int
    part: int
    plain_bytes: int  # before compression


def encode(
    *,
    key: BytesColumn | None = None,
    value: BytesColumn | None = None,
    headers: HeadersColumn | None = None,
    timestamp_ms: Int64s | int = NO_TIMESTAMP,
    parts: Int32s | None = None,
    part_count: int = 1,
    codec: int = NONE,
    level: int = DEFAULT_LEVEL,
    target_bytes: int = 1_000_000,
    base_offset: int | None = None,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = -1,
    base_sequence: int = NO_SEQUENCE,
    allocate: Callable[[int], Bytes] | None = None,
    is_stamped_later: bool = False,
) -> list[EncodedBatch]:
    """Batches of all rows in order. `parts` says to which of the parts each row goes (-1: to none); then there are
    batches for each of them, and those of one part are in order: so one frame is split over partitions as it is read.

    `target_bytes` bounds a batch before compression; only a record that is longer by itself exceeds it. Sequences go on
    from batch to batch. So do offsets where a first one is given; without it every batch begins at 0, as brokers want
    it of what is produced. A column that is left out is null in every record.
    The batches stand in what `allocate` gives for a number of bytes, unless they are compressed. The CRC of those that
    are stamped later (`stamp_producer`) is made then, and not before.
    """
    row_count = _row_count(key, value, headers, timestamp_ms)
    if row_count == 0:
        return []
    if parts is not None and len(parts) != row_count:
        raise ValueError(f"{len(parts)} parts for {row_count} rows")
    chosen = np.empty(0, np.int32) if parts is None else np.ascontiguousarray(parts, np.int32)
    times = np.asarray([timestamp_ms] if isinstance(timestamp_ms, int) else timestamp_ms, np.int64)
    row_bytes = _row_bytes(key, value, headers, row_count)
    starts, room_bytes = _starts(chosen, part_count, row_bytes)
    out = np.empty(room_bytes, np.uint8) if allocate is None else allocate(room_bytes)
    most_batches = _most_batches(row_count, room_bytes, target_bytes) + part_count
    table = np.zeros((most_batches, loops.TABLE_COLUMNS), np.int64)
    why, row, batch_count = loops.encode_records(
        read_only(chosen), row_count, read_only(np.ascontiguousarray(times)), _cells(key), _cells(value),
        read_only(np.empty(0, np.int32) if headers is None else np.ascontiguousarray(headers.ends)),
        _cells(headers.names if headers is not None else None), _cells(headers.values if headers is not None else None),
        min(target_bytes, MOST_BYTES), out, read_only(starts), table, np.full(part_count, -1, np.int64),
    )  # fmt: skip
    if why != loops.OK:
        raise ValueError(f"{loops.REASONS[why]} (row {row})")
    view = out.data
    batches: list[EncodedBatch] = []
    for at, end, first, count, base_timestamp, max_timestamp, part in table[:batch_count].tolist():
        data = _stored(view[at:end], codec, level)
        sequence = base_sequence if base_sequence < 0 else (base_sequence + first) & SEQUENCE_MASK
        HEADER.pack_into(
            data, 0, 0 if base_offset is None else base_offset + first, len(data) - LENGTH_PREFIX_BYTES, -1,
            MAGIC, 0, codec, count - 1, base_timestamp, max_timestamp, producer_id, producer_epoch, sequence, count,
        )  # fmt: skip
        if not is_stamped_later:
            restamp_crc(data, 0, len(data))
        batches.append(EncodedBatch(data, first, count, part, end - at))
    return batches


def _row_count(
    key: BytesColumn | None, value: BytesColumn | None, headers: HeadersColumn | None, timestamp_ms: Int64s | int
) -> int:
    lengths = {len(column) for column in (key, value, headers) if column is not None}
    if not isinstance(timestamp_ms, int):
        lengths.add(len(timestamp_ms))
    if len(lengths) != 1:
        raise ValueError(f"columns of one length are needed, not of {sorted(lengths)}")
    return lengths.pop()


def _cells(column: BytesColumn | None) -> _Cells:
    if column is None:
        return _NO_CELLS
    valid = _NO_CELLS[1] if column.valid is None else read_only(np.ascontiguousarray(column.valid))
    if 0 < len(valid) < len(column):
        raise ValueError(f"validity of {len(valid)} rows for a column of {len(column)}")
    return read_only(np.ascontiguousarray(column.ends)), valid, read_only(np.ascontiguousarray(column.data))


_NO_CELLS = (read_only(np.empty(0, np.int32)), read_only(np.empty(0, np.bool_)), read_only(np.empty(0, np.uint8)))


def _row_bytes(
    key: BytesColumn | None, value: BytesColumn | None, headers: HeadersColumn | None, row_count: int
) -> Int64s:
    """The bytes of each row. Room is made by these, so ends that cannot be are refused here already."""
    found = np.zeros(row_count, np.int64)
    for column in (key, value):
        if column is not None:
            found += _sizes(column.ends, len(column.data))
    if headers is not None:
        header_count = min(len(headers.names), len(headers.values))
        found += _sizes(headers.ends, header_count) * loops.MOST_HEADER_OVERHEAD
        ends = headers.ends.astype(np.int64)
        for column in (headers.names, headers.values):
            found += np.diff(_ends_at(column, ends))
    return found


def _sizes(ends: Int32s | Int64s, most: int) -> Int32s | Int64s:
    sizes = np.diff(ends)
    if ends.min() < 0 or ends.max() > most or sizes.min() < 0:
        raise ValueError(loops.REASONS[loops.BAD_ENDS])
    return sizes


def _most_batches(row_count: int, room_bytes: int, target_bytes: int) -> int:
    """The most batches that a part can come to: any two neighbours have more than the target together, and more room
    than that was made for them."""
    return min(row_count, 2 * room_bytes // max(target_bytes, 1) + 1)


def _starts(parts: Int32s, part_count: int, row_bytes: Int64s) -> tuple[Int64s, int]:
    """The start of each part's batches, and the room for all. It is more than they can take; what stays untouched costs
    nothing."""
    rooms = np.zeros(part_count, np.int64)
    if len(parts) == 0:
        rooms[0] = int(row_bytes.sum()) + len(row_bytes) * (loops.MOST_RECORD_OVERHEAD + HEADER_BYTES)
    else:
        row = loops.rooms_of_parts(read_only(parts), row_bytes, rooms)
        if row >= 0:
            raise ValueError(f"{loops.REASONS[loops.BAD_PART]} (row {row})")
    ends = np.cumsum(rooms)
    return ends - rooms, int(ends[-1])


def _ends_at(column: BytesColumn, places: Int64s) -> Int64s:
    """Ends of headers that are in no row are not looked at, so they may be anything."""
    ends = np.clip(column.ends.astype(np.int64), 0, len(column.data))
    return ends[places] if len(ends) else np.zeros(len(places), np.int64)


def _stored(framed: memoryview, codec: int, level: int) -> bytearray | memoryview:
    """A batch with room for its header, compressed if it is to be."""
    if codec == NONE:
        return framed
    data = bytearray(HEADER_BYTES)
    data += compress(codec, framed[HEADER_BYTES:], level)
    return data
