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
    first_row: int  # the place of its first record among the rows that were encoded
    record_count: int


def encode(
    *,
    key: BytesColumn | None = None,
    value: BytesColumn | None = None,
    headers: HeadersColumn | None = None,
    timestamp_ms: Int64s | int = NO_TIMESTAMP,
    rows: Int64s | None = None,
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
    """Batches of all rows in order, or of those that `rows` names: so one frame is split over partitions uncopied.

    `target_bytes` bounds a batch before compression; only a record that is longer by itself exceeds it. Sequences go on
    from batch to batch. So do offsets where a first one is given; without it every batch begins at 0, as brokers want
    it of what is produced. A column that is left out is null in every record.
    The batches stand in what `allocate` gives for a number of bytes, unless they are compressed. The CRC of those that
    are stamped later (`stamp_producer`) is made then, and not before.
    """
    row_count = _row_count(key, value, headers, timestamp_ms)
    selected = np.empty(0, np.int64) if rows is None else np.ascontiguousarray(rows, np.int64)
    if row_count == 0 or (rows is not None and len(selected) == 0):
        return []
    times = np.asarray([timestamp_ms] if isinstance(timestamp_ms, int) else timestamp_ms, np.int64)
    room_bytes = _room(key, value, headers, selected, row_count)
    out = np.empty(room_bytes, np.uint8) if allocate is None else allocate(room_bytes)
    table = np.zeros((len(selected) or row_count, loops.TABLE_COLUMNS), np.int64)
    why, row, batch_count = loops.encode_records(
        read_only(selected), row_count, read_only(np.ascontiguousarray(times)), _cells(key), _cells(value),
        read_only(np.empty(0, np.int32) if headers is None else np.ascontiguousarray(headers.ends)),
        _cells(headers.names if headers is not None else None), _cells(headers.values if headers is not None else None),
        min(target_bytes, MOST_BYTES), out, table,
    )  # fmt: skip
    if why != loops.OK:
        raise ValueError(f"{loops.REASONS[why]} (row {row})")
    view = out.data
    batches: list[EncodedBatch] = []
    for at, end, first, count, base_timestamp, max_timestamp in table[:batch_count].tolist():
        data = _stored(view[at:end], codec, level)
        sequence = base_sequence if base_sequence < 0 else (base_sequence + first) & SEQUENCE_MASK
        HEADER.pack_into(
            data, 0, 0 if base_offset is None else base_offset + first, len(data) - LENGTH_PREFIX_BYTES, -1,
            MAGIC, 0, codec, count - 1, base_timestamp, max_timestamp, producer_id, producer_epoch, sequence, count,
        )  # fmt: skip
        if not is_stamped_later:
            restamp_crc(data, 0, len(data))
        batches.append(EncodedBatch(data, first, count))
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


def _room(
    key: BytesColumn | None, value: BytesColumn | None, headers: HeadersColumn | None, selected: Int64s, row_count: int
) -> int:
    """More bytes than the batches can take; what stays untouched costs nothing."""
    count = len(selected) or row_count
    room = count * (loops.MOST_RECORD_OVERHEAD + HEADER_BYTES)
    for column in (key, value):
        if column is not None:
            room += _most_bytes(column, selected)
    if headers is not None:
        header_count = min(len(headers.names), len(headers.values))
        firsts, lasts = _spans(headers.ends, selected, header_count)
        room += int((lasts - firsts).sum()) * loops.MOST_HEADER_OVERHEAD
        for column in (headers.names, headers.values):
            room += int((_ends_at(column, lasts) - _ends_at(column, firsts)).sum())
    return room


def _most_bytes(column: BytesColumn, selected: Int64s) -> int:
    if len(selected) == 0:
        return len(column.data)
    starts, ends = _spans(column.ends, selected, len(column.data))
    return int((ends - starts).sum())


def _spans(all_ends: Int32s | Int64s, selected: Int64s, most: int) -> tuple[Int64s, Int64s]:
    """Where each row begins and ends. Room is made by these, so what cannot be is refused here already."""
    if len(selected):
        if selected.min() < 0 or selected.max() >= len(all_ends) - 1:
            raise ValueError(loops.REASONS[loops.BAD_ROW])
        starts, ends = all_ends[selected].astype(np.int64), all_ends[selected + 1].astype(np.int64)
    else:
        starts, ends = all_ends[:-1].astype(np.int64), all_ends[1:].astype(np.int64)
    if starts.min() < 0 or ends.max() > most or bool((ends < starts).any()):
        raise ValueError(loops.REASONS[loops.BAD_ENDS])
    return starts, ends


def _ends_at(column: BytesColumn, places: Int64s) -> Int64s:
    ends = np.clip(column.ends.astype(np.int64), 0, len(column.data))
    return ends[places] if len(ends) else np.zeros(len(places), np.int64)


def _stored(framed: memoryview, codec: int, level: int) -> bytearray | memoryview:
    """A batch with room for its header, compressed if it is to be."""
    if codec == NONE:
        return framed
    data = bytearray(HEADER_BYTES)
    data += compress(codec, framed[HEADER_BYTES:], level)
    return data
