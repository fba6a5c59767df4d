"""The compiled loops that put batches together. They get arrays and give numbers; `columns.py` is what others call.

Columns come from callers, so their ends are checked row by row before anything is read by them; the room in the output
was made for the longest that the rows can become. A column of bytes is a tuple of arrays: ends, validity, data. No ends
stand for a column of nulls, no validity for one without nulls.
"""

import numpy as np

from oncelog.records.block_loops import copy, inlined, kept
from oncelog.records.block_loops import prefetch as _prefetch

# The most that a record takes beside its bytes: its length, attributes, two deltas, two sizes, a count of headers.
MOST_RECORD_OVERHEAD = 5 + 1 + 10 + 5 + 5 + 5 + 5
MOST_HEADER_OVERHEAD = 5 + 5

# One row of the table of batches for each batch made, in these columns.
AT, END, FIRST_ROW, COUNT, BASE_TIMESTAMP, MAX_TIMESTAMP, PART = range(7)
TABLE_COLUMNS = 7
NO_PART = -1  # the row is left out

OK = 0
BAD_PART = 1
BAD_ENDS = 2
BAD_TIMESTAMP = 3
NO_ROOM = 4
REASONS = {
    BAD_PART: "a row of a part that is not there",
    BAD_ENDS: "a column's ends do not grow or exceed its data",
    BAD_TIMESTAMP: "timestamps of one batch lie more than 64 bits apart",
    NO_ROOM: "more batches than can be",
}

CACHE_LINE_BYTES = 64
_BATCH_HEADER_BYTES = 61
_NOWHERE = (np.int64(0), np.int64(-1))  # where a null begins, and its size


@inlined
def _varint_size(value):  # type: ignore[no-untyped-def]
    folded = np.uint64((value << 1) ^ (value >> 63))
    if folded < np.uint64(1 << 7):
        return np.int64(1)
    if folded < np.uint64(1 << 14):
        return np.int64(2)
    rest = folded >> np.uint64(21)
    size = np.int64(3)
    while rest:
        size += 1
        rest >>= np.uint64(7)
    return size


@inlined
def _put_varint(out, at, value):  # type: ignore[no-untyped-def]
    """Put a number; one or two bytes of it without a loop. The place is unsigned, since none counts from the end."""
    rest = np.uint64((value << 1) ^ (value >> 63))
    if rest < np.uint64(1 << 7):
        out[np.uint64(at)] = np.uint8(rest)
        return at + 1
    if rest < np.uint64(1 << 14):
        out[np.uint64(at)] = np.uint8(rest) | np.uint8(0x80)
        out[np.uint64(at + 1)] = np.uint8(rest >> np.uint64(7))
        return at + 2
    while rest >= np.uint64(0x80):
        out[np.uint64(at)] = np.uint8(rest) | np.uint8(0x80)
        rest >>= np.uint64(7)
        at += 1
    out[np.uint64(at)] = np.uint8(rest)
    return at + 1


@inlined
def _span(ends, data_bytes, row):  # type: ignore[no-untyped-def]
    """The beginning of a row's bytes and their number: -2 for ends that cannot be."""
    start = np.int64(ends[np.uint64(row)])
    end = np.int64(ends[np.uint64(row + 1)])
    if start < 0 or end < start or end > data_bytes:
        return np.int64(0), np.int64(-2)
    return start, end - start


@inlined
def _or_null(size, valid, row):  # type: ignore[no-untyped-def]
    return np.int64(-1) if size >= 0 and len(valid) > 0 and not valid[np.uint64(row)] else size


@inlined
def _put_cell(out, at, data, start, size):  # type: ignore[no-untyped-def]
    at = _put_varint(out, at, size)
    if size > 0:
        copy(data, start, size, out, at)
        at += size
    return at


@inlined
def _headers_size(row, list_ends, name_ends, name_data, value_ends, value_valid, value_data):  # type: ignore[no-untyped-def]
    """The bytes that the headers of a row take, their count included, or -1 for ends that cannot be."""
    first = np.int64(list_ends[row])
    last = np.int64(list_ends[row + 1])
    if first < 0 or last < first or last >= len(name_ends) or last >= len(value_ends):
        return np.int64(-1)
    total = _varint_size(last - first)
    for index in range(first, last):
        _, name_size = _span(name_ends, len(name_data), index)
        _, value_size = _span(value_ends, len(value_data), index)
        if name_size < 0 or value_size < 0:
            return np.int64(-1)
        value_size = _or_null(value_size, value_valid, index)
        total += _varint_size(name_size) + name_size + _varint_size(value_size) + max(value_size, np.int64(0))
    return total


@inlined
def _put_headers(out, at, row, list_ends, name_ends, name_data, value_ends, value_valid, value_data):  # type: ignore[no-untyped-def]
    first = np.int64(list_ends[row])
    last = np.int64(list_ends[row + 1])
    at = _put_varint(out, at, last - first)
    for index in range(first, last):
        start, size = _span(name_ends, len(name_data), index)
        at = _put_cell(out, at, name_data, start, size)
        start, size = _span(value_ends, len(value_data), index)
        at = _put_cell(out, at, value_data, start, _or_null(size, value_valid, index))
    return at


@kept("i4[]", "i8[]", "i8[!]", results=1)
def rooms_of_parts(parts, row_bytes, rooms):  # type: ignore[no-untyped-def]
    """Add to each part's room what its rows can take at most. Answers the first row whose part is not there, or -1."""
    for row in range(len(parts)):
        part = parts[np.uint64(row)]
        if part >= len(rooms) or part < NO_PART:
            return np.int64(row)
        if part >= 0:
            rooms[part] += row_bytes[np.uint64(row)] + MOST_RECORD_OVERHEAD + _BATCH_HEADER_BYTES
    return np.int64(-1)


@kept(
    "i4[]", "i8", "i8[]", ("i4[]", "?[]", "u1[]"), ("i4[]", "?[]", "u1[]"), "i4[]",
    ("i4[]", "?[]", "u1[]"), ("i4[]", "?[]", "u1[]"), "i8", "u1[!]", "i8[]", "i8[,!]", "i8[!]",
    results=3,
)  # fmt: skip
def encode_records(  # type: ignore[no-untyped-def]
    parts, row_count, timestamps, keys, values, list_ends, header_names, header_values,
    target_bytes, out, starts, table, last_of_part,
):  # fmt: skip
    """All rows, read once and in their order, as batches of at most `target_bytes`; a longer record is one by itself.

    `parts` says to which part each row goes, whose batches stand one behind the other from `starts[part]` on; no parts
    stand for a single one. Before each batch the room of its header is left free. The table has a row for each batch,
    in the order in which they were begun; `last_of_part` gets each part's newest, and is -1 where it has none yet.
    Returns why it stopped, at which row, and how many batches there are.
    """
    key_ends, key_valid, key_data = keys
    value_ends, value_valid, value_data = values
    name_ends, _, name_data = header_names
    header_ends, header_valid, header_data = header_values
    # Questions with one answer for all records are asked once.
    has_parts, has_times = len(parts) > 0, len(timestamps) > 1
    has_keys, has_values, has_headers = len(key_ends) > 0, len(value_ends) > 0, len(list_ends) > 0
    batch_count = np.int64(0)
    for row in range(row_count):
        part = np.int64(parts[np.uint64(row)]) if has_parts else np.int64(0)
        if part < 0:
            continue
        timestamp = timestamps[np.uint64(row)] if has_times else timestamps[0]
        key_at, key_size = _span(key_ends, len(key_data), row) if has_keys else _NOWHERE
        value_at, value_size = _span(value_ends, len(value_data), row) if has_values else _NOWHERE
        headers_size = np.int64(1)
        if has_headers:
            headers_size = _headers_size(row, list_ends, name_ends, name_data, header_ends, header_valid, header_data)
        if key_size < -1 or value_size < -1 or headers_size < 0:
            return BAD_ENDS, row, batch_count
        key_size = _or_null(key_size, key_valid, row)
        value_size = _or_null(value_size, value_valid, row)
        fixed_size = (
            1
            + _varint_size(key_size) + max(key_size, np.int64(0))
            + _varint_size(value_size) + max(value_size, np.int64(0))
            + headers_size
        )  # fmt: skip
        batch = last_of_part[np.uint64(part)]
        number = time_delta = size = np.int64(0)
        is_full = batch < 0
        if not is_full:
            number = table[batch, COUNT]
            time_delta = timestamp - table[batch, BASE_TIMESTAMP]
            size = fixed_size + _varint_size(time_delta) + _varint_size(number)
            is_full = table[batch, END] - table[batch, AT] + _varint_size(size) + size > target_bytes
        if is_full:
            if batch_count >= len(table):
                return NO_ROOM, row, batch_count
            _begin(table, batch_count, batch, starts[np.uint64(part)], part, timestamp)
            batch = last_of_part[np.uint64(part)] = batch_count
            batch_count += 1
            number = time_delta = np.int64(0)
            size = fixed_size + 2
        elif ((timestamp ^ table[batch, BASE_TIMESTAMP]) & (timestamp ^ time_delta)) < 0:
            return BAD_TIMESTAMP, row, batch_count
        at = _put_varint(out, table[batch, END], size)
        out[np.uint64(at)] = 0
        at = _put_varint(out, at + 1, time_delta)
        at = _put_varint(out, at, number)
        at = _put_cell(out, at, key_data, key_at, key_size)
        at = _put_cell(out, at, value_data, value_at, value_size)
        if has_headers:
            at = _put_headers(out, at, row, list_ends, name_ends, name_data, header_ends, header_valid, header_data)
        else:
            out[np.uint64(at)] = 0
            at += 1
        table[batch, END] = at
        table[batch, COUNT] = number + 1
        table[batch, MAX_TIMESTAMP] = max(table[batch, MAX_TIMESTAMP], timestamp)
        # By the time that this part's next record comes, the processor would have to wait for these lines.
        _prefetch(out, np.uint64(at + CACHE_LINE_BYTES))
        _prefetch(out, np.uint64(at + 2 * CACHE_LINE_BYTES))
    return OK, np.int64(row_count), batch_count


@inlined
def _begin(table, batch, last_batch, start, part, timestamp):  # type: ignore[no-untyped-def]
    """Begin a batch, behind the part's last one if it has one."""
    at, first = start, np.int64(0)
    if last_batch >= 0:
        at = table[last_batch, END]
        first = table[last_batch, FIRST_ROW] + table[last_batch, COUNT]
    table[batch, AT] = at
    table[batch, END] = at + _BATCH_HEADER_BYTES
    table[batch, FIRST_ROW] = first
    table[batch, COUNT] = 0
    table[batch, BASE_TIMESTAMP] = timestamp
    table[batch, MAX_TIMESTAMP] = timestamp
    table[batch, PART] = part
