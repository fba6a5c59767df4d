"""Whether a batch's body is the records that its header announces, found out without making anything of them.

What passes every client can read: each record ends where it says, its offset delta is its place in the batch, a number
takes no more bytes than Kafka's own reader allows it, a time fits into 64 bits, and nothing follows the last record.
Kafka checks the same but the offset deltas, which it passes on or makes anew; readers that count by them lose a record,
or stop for good.

`walk_loops.py` does the same in compiled code. Here a record of the usual shape is read in few steps; whatever is
unlike goes the general way, which alone refuses.
"""

from functools import lru_cache

from oncelog.records.errors import InvalidRecord
from oncelog.records.header import BatchHeader
from oncelog.records.read import INT64_MAX, number
from oncelog.records.varint import zigzag

MOST_HEADS = 4096
MOST_NUMBER_BYTES = 5  # of a length or an offset delta; Java reads no more

_NULL = 1  # the length -1
_SURE_MS = 1 << 62  # two times below it add up to 64 bits


def check_records(body: bytes, header: BatchHeader) -> None:
    """InvalidRecord says what is wrong with which record."""
    count, base_timestamp = header.record_count, header.base_timestamp
    is_plain = -_SURE_MS <= base_timestamp < _SURE_MS
    at = 0
    for index in range(count):
        try:
            end = _plain_end(body, at, index) if is_plain else 0
        except IndexError:  # the last one, read as another shape than it has
            end = 0
        at = end or _any_end(body, at, index, base_timestamp)
    if at != len(body):
        raise InvalidRecord(f"{len(body) - at} bytes follow the last record")


def _plain_end(body: bytes, at: int, index: int) -> int:
    """The end of a record of the usual shape; 0 for one of another shape, and for one that is wrong."""
    size = body[at]
    if size >= 0x80:
        at += 1
        size += (body[at] << 7) - 0x80
    end = at + 1 + (size >> 1)
    at += 2  # behind the attributes
    if body[at] >= 0x80:
        at += 1
        if body[at] >= 0x80:
            return 0
    delta = body[at + 1]
    at += 2
    if delta >= 0x80:
        delta += (body[at] << 7) - 0x80
        at += 1
    key = body[at]
    at += 1
    if key != _NULL:
        at += key >> 1
    value = body[at]
    at += 1
    if value >= 0x80:
        value += (body[at] << 7) - 0x80
        at += 1
    if value != _NULL:
        at += value >> 1
    headers = body[at]
    at = _behind_headers(body, at + 1, headers) if headers else at + 1
    # A number of more bytes than were read is too great by now, and a negative one odd.
    if at != end or delta != index + index or (size | value | delta) >= 0x4000 or key >= 0x80:
        return 0
    return 0 if size & 1 or (key & 1 and key != _NULL) or (value & 1 and value != _NULL) else end


def _behind_headers(body: bytes, at: int, count: int) -> int:
    if count & 0x81:
        return 0
    for _ in range(count >> 1):
        name = body[at]
        at += 1 + (name >> 1)
        value = body[at]
        at += 1
        if value != _NULL:
            at += value >> 1
            if value & 0x81:
                return 0
        if name & 0x81:
            return 0
    return at


def _any_end(body: bytes, at: int, index: int, base_timestamp: int) -> int:
    """The end of a record of any shape."""
    size, at = _number(body, at)
    end = at + size
    if size < 1 or end > len(body):
        raise InvalidRecord(f"record {index} has a length of {size} where {len(body) - at} bytes are left")
    time_delta, at = number(body, at + 1, end)
    if not -INT64_MAX - 1 <= base_timestamp + time_delta <= INT64_MAX:
        raise InvalidRecord(f"record {index} has a timestamp of more than 64 bits")
    offset_delta, at = _number(body, at)
    if offset_delta != index:
        raise InvalidRecord(f"record {index} has the offset delta {offset_delta}")
    at = _behind_field(body, at, index, -1)
    at = _behind_field(body, at, index, -1)
    headers, at = _number(body, at)
    if not 0 <= headers <= (end - at) // 2:
        raise InvalidRecord(f"record {index} has {headers} headers where {end - at} bytes are left")
    for _ in range(headers):
        at = _behind_field(body, at, index, 0)
        at = _behind_field(body, at, index, -1)
    if at != end:
        raise InvalidRecord(f"record {index} should end at byte {end} of the records, and ends at {at}")
    return end


def _behind_field(body: bytes, at: int, index: int, least_bytes: int) -> int:
    size, at = _number(body, at)
    if not least_bytes <= size <= len(body) - at:
        raise InvalidRecord(f"record {index} has a field of {size} bytes where {len(body) - at} are left")
    return at + max(size, 0)


def _number(body: bytes, at: int) -> tuple[int, int]:
    return number(body, at, min(at + MOST_NUMBER_BYTES, len(body)))


@lru_cache(MOST_HEADS)
def head_of_one(body_bytes: int) -> bytes:
    """The first bytes of a body of this size that is one record without key or headers, at its batch's time; it
    ends with a zero byte. Many produced bodies are such, and are known at once by these bytes."""
    for size_bytes in range(body_bytes - 1, max(body_bytes - MOST_NUMBER_BYTES, 0) - 1, -1):
        length = zigzag(size_bytes)
        if len(length) + size_bytes == body_bytes:
            for value_bytes in range(max(size_bytes - 6, 0), max(size_bytes - 11, 0) - 1, -1):
                head = length + b"\0\0\0\1" + zigzag(value_bytes)
                if len(head) + value_bytes + 1 == body_bytes:
                    return head
    return b"no record is of this size"
