"""Fetch responses to columns: which batches count, unfolded one by one, then taken apart in one compiled loop."""

import numpy as np
from crc32c import crc32c

from oncelog.records import decode_loops as loops
from oncelog.records.codecs import decompress
from oncelog.records.column_types import (
    ALL,
    MOST_BYTES,
    Batches,
    Bools,
    Bytes,
    BytesColumn,
    Columns,
    HeadersColumn,
    Int32s,
    Int64s,
    read_only,
)
from oncelog.records.errors import InvalidRecord, TooLarge
from oncelog.records.header import CODEC_MASK, CONTROL, CRC_FROM, HEADER_BYTES, MIN_RECORD_BYTES, Buffer

DEFAULT_UNFOLDED_BYTES = 1 << 30
LAST_OFFSET = (1 << 63) - 1


def decode(
    buffer: Buffer,
    *,
    start_offset: int = 0,
    end_offset: int = LAST_OFFSET,
    columns: frozenset[str] | set[str] = ALL,
    check_crc: bool = True,
    limit_bytes: int = DEFAULT_UNFOLDED_BYTES,
) -> Columns:
    """The records from `start_offset` on and before `end_offset`; control batches are left out.

    What is unfolded in one call is bounded: batches that would exceed `limit_bytes` are left for the next call, to
    which `next_offset` and `consumed_bytes` lead. A single batch beyond the limit raises TooLarge.
    """
    if unknown := columns - ALL:
        raise ValueError(f"no such columns: {', '.join(sorted(unknown))}")
    source = read_only(np.frombuffer(buffer, np.uint8))
    table = np.zeros((loops.count_batches(source), loops.TABLE_COLUMNS), np.int64)
    why, index = loops.read_table(source, table)
    _raise_for(why, index, table)
    table = table[: _batches_before(table, end_offset)]
    body, consumed_batches = _unfold(memoryview(buffer).cast("B"), source, table, start_offset, check_crc, limit_bytes)
    table = table[:consumed_batches]
    next_offset, consumed_bytes = start_offset, 0
    if len(table):
        last = table[-1]
        next_offset = max(start_offset, int(last[loops.BASE_OFFSET] + last[loops.LAST_DELTA]) + 1)
        consumed_bytes = int(last[loops.AT] + last[loops.SIZE])
    data_table = np.ascontiguousarray(table[_has_data(table, start_offset)])
    return _decode_table(body, data_table, start_offset, end_offset, columns, next_offset, consumed_bytes)


def _raise_for(why: int, index: int, table: Int64s) -> None:
    if why != loops.OK:
        offset = int(table[index, loops.BASE_OFFSET])
        raise InvalidRecord(f"{loops.REASONS[why]} (the batch at offset {offset})")


def _batches_before(table: Int64s, end_offset: int) -> int:
    """The number of batches before the first that begins at `end_offset` or later."""
    beyond = np.flatnonzero(table[:, loops.BASE_OFFSET] >= end_offset)
    return int(beyond[0]) if len(beyond) else len(table)


def _has_data(table: Int64s, start_offset: int) -> Bools:
    has_data: Bools = ((table[:, loops.ATTRIBUTES] & CONTROL) == 0) & _is_ahead(table, start_offset)
    return has_data


def _is_ahead(table: Int64s, start_offset: int) -> Bools:
    is_ahead: Bools = table[:, loops.BASE_OFFSET] + table[:, loops.LAST_DELTA] >= start_offset
    return is_ahead


def _unfold(
    view: memoryview, source: Bytes, table: Int64s, start_offset: int, check_crc: bool, limit_bytes: int
) -> tuple[Bytes, int]:
    """The bytes in which all records lie, and how many batches fit into the limit; the table gets their places."""
    limit_bytes = min(limit_bytes, MOST_BYTES)
    is_data = _has_data(table, start_offset)
    if check_crc:
        # Those of control batches and of batches before `start_offset` too: damage could make any look like one of
        # these, to be left out.
        _check_crcs(view, table)
    if np.any(table[is_data, loops.ATTRIBUTES] & CODEC_MASK):
        body, batches = _decompress_each(view, table, is_data.tolist(), limit_bytes)
    else:
        body, batches = source, _place_in_source(table, is_data, limit_bytes)
    table = table[:batches][is_data[:batches]]
    too_many = table[:, loops.COUNT] * MIN_RECORD_BYTES > table[:, loops.BODY_END] - table[:, loops.BODY_AT]
    if np.any(too_many):
        _raise_for(loops.BAD_COUNT, int(np.argmax(too_many)), table)
    return read_only(body), batches


def _check_crcs(view: memoryview, table: Int64s) -> None:
    columns = (loops.AT, loops.SIZE, loops.CRC, loops.BASE_OFFSET)
    for at, size, crc, offset in table[:, columns].tolist():
        if crc32c(view[at + CRC_FROM : at + size]) != crc:
            message = f"the CRC of the batch is not {crc:#010x} as its header says (the batch at offset {offset})"
            raise InvalidRecord(message)


def _place_in_source(table: Int64s, is_data: Bools, limit_bytes: int) -> int:
    """Records that are not compressed lie in the bytes as they came. Returns how many batches fit."""
    sizes = np.where(is_data, table[:, loops.SIZE] - HEADER_BYTES, 0)
    batches = int(np.searchsorted(np.cumsum(sizes), limit_bytes, side="right"))
    if batches < len(table) and not np.any(sizes[:batches]):
        raise TooLarge(f"a batch of {sizes[batches]} bytes where {limit_bytes} are allowed")
    table[:, loops.BODY_AT] = table[:, loops.AT] + HEADER_BYTES
    table[:, loops.BODY_END] = table[:, loops.AT] + table[:, loops.SIZE]
    return batches


def _decompress_each(view: memoryview, table: Int64s, is_data: list[bool], limit_bytes: int) -> tuple[Bytes, int]:
    """The bodies of all batches one after the other, and how many batches fit."""
    parts: list[Buffer] = []
    places: list[tuple[int, int]] = []
    used_bytes = 0
    columns = (loops.AT, loops.SIZE, loops.ATTRIBUTES, loops.COUNT)
    for has_data, (at, size, attributes, count) in zip(is_data, table[:, columns].tolist(), strict=True):
        body: Buffer = b""
        if has_data and (count or size > HEADER_BYTES):
            try:
                stored = view[at + HEADER_BYTES : at + size]
                body = decompress(attributes & CODEC_MASK, stored, limit_bytes - used_bytes)
            except TooLarge:
                if used_bytes == 0:
                    raise
                break
        parts.append(body)
        places.append((used_bytes, used_bytes + len(body)))
        used_bytes += len(body)
    table[: len(places), loops.BODY_AT : loops.BODY_END + 1] = places
    return np.frombuffer(parts[0] if len(parts) == 1 else b"".join(parts), np.uint8), len(places)


class _Growing:
    """Room for a column of bytes that a loop fills: never touched pages of it cost nothing."""

    def __init__(self, is_wanted: bool, rows: int, size_bytes: int) -> None:
        self.is_wanted = is_wanted
        self.ends = np.empty(rows + 1 if is_wanted else 0, np.int32)
        self.ends[:1] = 0
        self.valid = np.empty(rows if is_wanted else 0, np.bool_)
        self.data = np.empty(size_bytes if is_wanted else 0, np.uint8)

    @property
    def arrays(self) -> tuple[Int32s, Bools, Bytes]:
        return self.ends, self.valid, self.data

    def column(self, rows: int, size_bytes: int) -> BytesColumn:
        valid = self.valid[:rows]
        return BytesColumn(self.ends[: rows + 1], self.data[:size_bytes], None if valid.all() else valid)


def _decode_table(
    body: Bytes,
    table: Int64s,
    start_offset: int,
    end_offset: int,
    columns: frozenset[str] | set[str],
    next_offset: int,
    consumed_bytes: int,
) -> Columns:
    rows = int(table[:, loops.COUNT].sum())
    size_bytes = int((table[:, loops.BODY_END] - table[:, loops.BODY_AT]).sum())
    offsets = np.empty(rows if "offset" in columns else 0, np.int64)
    timestamps = np.empty(rows if "timestamp" in columns else 0, np.int64)
    header_places = np.empty((rows if "headers" in columns else 0, 2), np.int64)
    keys = _Growing("key" in columns, rows, size_bytes)
    values = _Growing("value" in columns, rows, size_bytes)
    totals = np.zeros(6, np.int64)
    bounds = np.array((start_offset, end_offset), np.int64)
    why, index = loops.decode_records(
        body, table, bounds, offsets, timestamps, header_places, keys.arrays, values.arrays, totals
    )
    _raise_for(why, index, table)
    rows, key_bytes, value_bytes, header_count, name_bytes, header_bytes = totals.tolist()
    headers = None
    if "headers" in columns:
        headers = _decode_headers(body, header_places[:rows], header_count, name_bytes, header_bytes)
    return Columns(
        row_count=rows,
        offset=offsets[:rows] if "offset" in columns else None,
        timestamp_ms=timestamps[:rows] if "timestamp" in columns else None,
        key=keys.column(rows, key_bytes) if keys.is_wanted else None,
        value=values.column(rows, value_bytes) if values.is_wanted else None,
        headers=headers,
        batches=_batches(table),
        next_offset=min(next_offset, max(end_offset, start_offset)),
        consumed_bytes=consumed_bytes,
    )


def _decode_headers(body: Bytes, places: Int64s, count: int, name_bytes: int, value_bytes: int) -> HeadersColumn:
    list_ends = np.zeros(len(places) + 1, np.int32)
    names = _Growing(True, count, name_bytes)
    values = _Growing(True, count, value_bytes)
    if count:
        loops.decode_headers(body, places, list_ends, names.arrays, values.arrays)
    return HeadersColumn(list_ends, names.column(count, name_bytes), values.column(count, value_bytes))


def _batches(table: Int64s) -> Batches:
    return Batches(
        first_row=table[:, loops.FIRST_ROW],
        base_offset=table[:, loops.BASE_OFFSET],
        last_offset=table[:, loops.BASE_OFFSET] + table[:, loops.LAST_DELTA],
        leader_epoch=table[:, loops.LEADER_EPOCH],
        attributes=table[:, loops.ATTRIBUTES],
        producer_id=table[:, loops.PRODUCER_ID],
        producer_epoch=table[:, loops.PRODUCER_EPOCH],
        base_sequence=table[:, loops.BASE_SEQUENCE],
        record_count=table[:, loops.COUNT],
    )
