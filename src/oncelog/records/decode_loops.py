"""The compiled loops that take batches apart. They get arrays and give numbers; `columns.py` is what others call.

No byte is read before its place has been compared with the end of what it belongs to, and every count was held
against the bytes behind it before arrays were made for it: the loops are right for any input, not only for sound one.
Inputs are always read-only arrays and numbers are always int64, so each loop is compiled once.
"""

import numpy as np

from oncelog.records.block_loops import compiled, copy, inlined, kept

# One row of the table of batches for each batch, in these columns.
AT, SIZE, BASE_OFFSET, LEADER_EPOCH, CRC, ATTRIBUTES, LAST_DELTA, BASE_TIMESTAMP, MAX_TIMESTAMP = range(9)
PRODUCER_ID, PRODUCER_EPOCH, BASE_SEQUENCE, COUNT, BODY_AT, BODY_END, FIRST_ROW = range(9, 16)
TABLE_COLUMNS = 16

# Why a loop stopped.
OK = 0
BAD_FRAME = 1  # a batch shorter than its header
BAD_MAGIC = 2
BAD_COUNT = 3  # a record count that is negative
BAD_NUMBER = 4  # a varint over its record's end or over 64 bits
BAD_LENGTH = 5  # a field that does not fit into its record, or a record into its batch
BAD_DELTA = 6  # an offset delta that does not grow, or over the last one
BAD_TIMESTAMP = 7  # beyond 64 bits
BAD_HEADER_COUNT = 8
REST_IN_RECORD = 9
REST_IN_BATCH = 10

REASONS = {
    BAD_FRAME: "a batch is shorter than its header",
    BAD_MAGIC: "a batch is not of magic 2",
    BAD_COUNT: "a batch states more records than can be in it",
    BAD_NUMBER: "a number runs over its record's end or over 64 bits",
    BAD_LENGTH: "a length exceeds what is left",
    BAD_DELTA: "offset deltas do not grow up to the last one",
    BAD_TIMESTAMP: "a timestamp or an offset exceeds 64 bits",
    BAD_HEADER_COUNT: "a record states more headers than can be in it",
    REST_IN_RECORD: "bytes follow the headers of a record",
    REST_IN_BATCH: "bytes follow the last record",
}

_LEGAL_SIZE = 61
_INT64_MAX = (1 << 63) - 1


@inlined
def _big_endian(buffer, at, width):  # type: ignore[no-untyped-def]
    """A signed big-endian number; the caller has checked that it is there."""
    value = np.int64(np.int8(buffer[at]))
    for i in range(1, width):
        value = (value << 8) | np.int64(buffer[at + i])
    return value


@kept("u1[]", results=1)
def count_batches(buffer):  # type: ignore[no-untyped-def]
    """The number of whole batches in the buffer. One with a size that cannot be is counted too, to be refused."""
    end = len(buffer)
    at = np.int64(0)
    count = np.int64(0)
    while at + _LEGAL_SIZE <= end:
        size = _big_endian(buffer, at + 8, 4) + 12
        if size < _LEGAL_SIZE:
            return count + 1
        if size > end - at:
            return count
        at += size
        count += 1
    return count


@kept("u1[]", "i8[,!]", results=2)
def read_table(buffer, table):  # type: ignore[no-untyped-def]
    """Fill the table of batches. Returns why it stopped and in which batch."""
    at = np.int64(0)
    for index in range(len(table)):
        row = table[index]
        size = _big_endian(buffer, at + 8, 4) + 12
        row[AT] = at
        row[SIZE] = size
        row[BASE_OFFSET] = _big_endian(buffer, at, 8)
        row[LEADER_EPOCH] = _big_endian(buffer, at + 12, 4)
        row[CRC] = _big_endian(buffer, at + 17, 4) & 0xFFFFFFFF
        row[ATTRIBUTES] = _big_endian(buffer, at + 21, 2)
        row[LAST_DELTA] = _big_endian(buffer, at + 23, 4)
        row[BASE_TIMESTAMP] = _big_endian(buffer, at + 27, 8)
        row[MAX_TIMESTAMP] = _big_endian(buffer, at + 35, 8)
        row[PRODUCER_ID] = _big_endian(buffer, at + 43, 8)
        row[PRODUCER_EPOCH] = _big_endian(buffer, at + 51, 2)
        row[BASE_SEQUENCE] = _big_endian(buffer, at + 53, 4)
        row[COUNT] = _big_endian(buffer, at + 57, 4)
        if size < _LEGAL_SIZE:
            return BAD_FRAME, index
        if buffer[at + 16] != 2:
            return BAD_MAGIC, index
        if row[COUNT] < 0 or row[COUNT] > row[LAST_DELTA] + 1:
            return BAD_COUNT, index
        if row[BASE_OFFSET] < 0 or row[BASE_OFFSET] > _INT64_MAX - (1 << 31):
            return BAD_TIMESTAMP, index
        at += size
    return OK, np.int64(0)


# From here on a place below zero is an error, minus its reason, and goes through every further step unchanged.
# So a record is taken apart without a check after each number, and never read from after the first error.


@inlined
def varint(body, at, end):  # type: ignore[no-untyped-def]
    """A zigzag number and the place behind it."""
    if at < 0:
        return np.int64(0), at
    if at >= end:
        return np.int64(0), np.int64(-BAD_NUMBER)
    byte = np.uint64(body[at])
    at += 1
    raw = byte & np.uint64(0x7F)
    shift = np.uint64(0)
    while byte & np.uint64(0x80):
        shift += np.uint64(7)
        if at >= end or shift > np.uint64(63):
            return np.int64(0), np.int64(-BAD_NUMBER)
        byte = np.uint64(body[at])
        at += 1
        raw |= (byte & np.uint64(0x7F)) << shift
    if shift == np.uint64(63) and byte > np.uint64(1):
        return np.int64(0), np.int64(-BAD_NUMBER)
    return np.int64(raw >> np.uint64(1)) ^ -np.int64(raw & np.uint64(1)), at


@inlined
def _field(body, at, end, least_size):  # type: ignore[no-untyped-def]
    """The beginning of a field with its length in front, its size (-1 for null), and the place behind it."""
    size, start = varint(body, at, end)
    if start < 0:
        return start, size, start
    if size < least_size or size > end - start:
        return start, size, np.int64(-BAD_LENGTH)
    return start, size, start + max(size, np.int64(0))


@compiled
def _walk_headers(body, at, end, count):  # type: ignore[no-untyped-def]
    """The place behind `count` headers, the bytes of their names and of their values."""
    name_bytes = np.int64(0)
    value_bytes = np.int64(0)
    if at >= 0 and (count < 0 or count > (end - at) // 2):
        at = np.int64(-BAD_HEADER_COUNT)
    for _ in range(count):
        if at < 0:
            break
        _, size, at = _field(body, at, end, np.int64(0))
        name_bytes += size
        _, size, at = _field(body, at, end, np.int64(-1))
        value_bytes += max(size, np.int64(0))
    return at, name_bytes, value_bytes


@inlined
def _record(body, at, body_end, least_delta, last_delta, base_timestamp):  # type: ignore[no-untyped-def]
    """One record: the place behind it, then all that stands in it."""
    at, _, end = _field(body, at, body_end, np.int64(1))
    if end < 0:
        at = end
    time_delta, at = varint(body, at + 1 if at >= 0 else at, end)
    delta, at = varint(body, at, end)
    key_at, key_size, at = _field(body, at, end, np.int64(-1))
    value_at, value_size, at = _field(body, at, end, np.int64(-1))
    headers, headers_at = varint(body, at, end)
    at = headers_at
    names = np.int64(0)
    contents = np.int64(0)
    if headers != 0:
        at, names, contents = _walk_headers(body, at, end, headers)
    if at >= 0 and at != end:
        at = np.int64(-REST_IN_RECORD)
    timestamp = base_timestamp + time_delta
    if at >= 0 and ((base_timestamp ^ timestamp) & (time_delta ^ timestamp)) < 0:
        at = np.int64(-BAD_TIMESTAMP)
    if at >= 0 and (delta < least_delta or delta > last_delta):
        at = np.int64(-BAD_DELTA)
    return at, timestamp, delta, key_at, key_size, value_at, value_size, headers_at, headers, names, contents


@inlined
def _put(body, at, size, row, ends, valid, data, used):  # type: ignore[no-untyped-def]
    """One field into its column. Returns how many bytes the column has now."""
    valid[row] = size >= 0
    if size > 0:
        copy(body, at, size, data, used)
        used += size
    ends[row + 1] = used
    return used


@kept(
    "u1[]", "i8[,!]", "i8[]", "i8[!]", "i8[!]", "i8[,!]",
    ("i4[!]", "?[!]", "u1[!]"), ("i4[!]", "?[!]", "u1[!]"), "i8[!]",
    results=2,
)  # fmt: skip
def decode_records(  # type: ignore[no-untyped-def]
    body, table, bounds, offsets, timestamps, header_places, keys, values, totals
):
    """Fill the columns from every record whose offset is within the two `bounds`, the second one excluded.

    A column of bytes is a tuple of arrays: ends, validity, data. One of length 0 is not wanted. `header_places` gets,
    for each row, where its headers begin and how many they are. `totals` gets rows, key bytes, value bytes, headers,
    and the bytes of their names and of their values. Returns why it stopped, and in which batch.
    """
    key_ends, key_valid, key_data = keys
    value_ends, value_valid, value_data = values
    row = np.int64(0)
    key_bytes = np.int64(0)
    value_bytes = np.int64(0)
    for index in range(len(table)):
        batch = table[index]
        at = batch[BODY_AT]
        is_append_time = (batch[ATTRIBUTES] & 0x08) != 0
        least_delta = np.int64(0)
        batch[FIRST_ROW] = row
        for _ in range(batch[COUNT]):
            (at, timestamp, delta, key_at, key_size, value_at, value_size, headers_at, headers, names, contents) = (
                _record(body, at, batch[BODY_END], least_delta, batch[LAST_DELTA], batch[BASE_TIMESTAMP])
            )
            if at < 0:
                return -at, index
            least_delta = delta + 1
            if is_append_time:
                timestamp = batch[MAX_TIMESTAMP]
            offset = batch[BASE_OFFSET] + delta
            if offset < bounds[0] or offset >= bounds[1]:
                continue
            if len(offsets) > 0:
                offsets[row] = offset
            if len(timestamps) > 0:
                timestamps[row] = timestamp
            if len(key_ends) > 0:
                key_bytes = _put(body, key_at, key_size, row, key_ends, key_valid, key_data, key_bytes)
            if len(value_ends) > 0:
                value_bytes = _put(body, value_at, value_size, row, value_ends, value_valid, value_data, value_bytes)
            if len(header_places) > 0:
                header_places[row, 0] = headers_at
                header_places[row, 1] = headers
                totals[3] += headers
                totals[4] += names
                totals[5] += contents
            row += 1
        if at != batch[BODY_END]:
            return REST_IN_BATCH, index
    totals[0] = row
    totals[1] = key_bytes
    totals[2] = value_bytes
    return OK, np.int64(0)


@kept("u1[]", "i8[,]", "i4[!]", ("i4[!]", "?[!]", "u1[!]"), ("i4[!]", "?[!]", "u1[!]"))
def decode_headers(  # type: ignore[no-untyped-def]
    body, header_places, list_ends, names, values
):
    """The headers that `decode_records` has walked over and counted."""
    end = np.int64(len(body))
    name_ends, name_valid, name_data = names
    value_ends, value_valid, value_data = values
    index = np.int64(0)
    name_bytes = np.int64(0)
    value_bytes = np.int64(0)
    for row in range(len(header_places)):
        at = header_places[row, 0]
        for _ in range(header_places[row, 1]):
            start, size, at = _field(body, at, end, np.int64(0))
            name_bytes = _put(body, start, size, index, name_ends, name_valid, name_data, name_bytes)
            start, size, at = _field(body, at, end, np.int64(-1))
            value_bytes = _put(body, start, size, index, value_ends, value_valid, value_data, value_bytes)
            index += 1
        list_ends[row + 1] = index
