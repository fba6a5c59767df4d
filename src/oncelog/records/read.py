"""Records out of a batch, in pure Python: for compaction, for committed offsets, for tests.

Every length is checked against what is left before it is used, and a batch must be exactly its records:
anything else raises InvalidRecord. Bytes are copied out, so a record outlives the buffer that it came from.
"""

from collections.abc import Iterator
from typing import NamedTuple

from oncelog.records.codecs import decompress
from oncelog.records.errors import InvalidRecord, TooLarge
from oncelog.records.header import (
    HEADER_BYTES,
    MAGIC,
    MIN_RECORD_BYTES,
    BatchHeader,
    Buffer,
    body_crc,
    headers,
    read_header,
)

INT64_MAX = (1 << 63) - 1

# A server reads bodies that anyone may have sent, and a record costs it some 300 bytes however small it is. So a batch
# may unfold to this much or this many times its size, and hold a record for each few bytes of that.
LEAST_LIMIT_BYTES = 32 << 20
MOST_TIMES_UNFOLDED = 8
LIMIT_BYTES_PER_RECORD = 32

Headers = tuple[tuple[bytes, bytes | None], ...]


class Record(NamedTuple):
    """`headers` keeps the names as bytes: nothing makes a producer send UTF-8."""

    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp_ms: int
    offset: int


_new = tuple.__new__


def records_of(buffer: Buffer, at: int = 0, *, limit_bytes: int | None = None, check_crc: bool = True) -> list[Record]:
    """The records of the batch at `at`, those of a control batch too."""
    header = batch_header(buffer, at, check_crc)
    return records_in(bytes(body_of(buffer, at, header, limit_bytes)), header)


def records_in(body: bytes, header: BatchHeader) -> list[Record]:
    """The records that a batch's decompressed bytes are."""
    base_offset, base_timestamp, last_delta = header.base_offset, header.base_timestamp, header.last_offset_delta
    append_time_ms = header.max_timestamp if header.has_log_append_time else None
    count, end = header.record_count, len(body)
    if not 0 <= count * MIN_RECORD_BYTES <= end:
        raise InvalidRecord(f"{count} records cannot be in {end} bytes")
    if not 0 <= base_offset <= INT64_MAX - (1 << 31) or last_delta < -1:
        raise InvalidRecord(f"offsets from {base_offset}, last delta {last_delta}")
    records: list[Record] = []
    place = least_delta = 0
    for _ in range(count):
        record_end, place = field_end(body, place, end)
        if place >= record_end:
            raise InvalidRecord("a record without attributes")
        time_delta, place = number(body, place + 1, record_end)
        offset_delta, place = number(body, place, record_end)
        if not least_delta <= offset_delta <= last_delta:
            raise InvalidRecord(f"offset delta {offset_delta} is not within {least_delta} and {last_delta}")
        least_delta = offset_delta + 1
        key, place = _bytes_or_none(body, place, record_end)
        value, place = _bytes_or_none(body, place, record_end)
        headers, place = _headers(body, place, record_end)
        if place != record_end:
            raise InvalidRecord(f"{record_end - place} bytes follow the headers of a record")
        timestamp_ms = base_timestamp + time_delta
        if not -INT64_MAX - 1 <= timestamp_ms <= INT64_MAX:
            raise InvalidRecord(f"a timestamp of more than 64 bits: {timestamp_ms}")
        if append_time_ms is not None:
            timestamp_ms = append_time_ms
        records.append(_new(Record, (key, value, headers, timestamp_ms, base_offset + offset_delta)))
    if place != end:
        raise InvalidRecord(f"{end - place} bytes follow the last record")
    return records


def times_in(body: bytes, header: BatchHeader) -> Iterator[tuple[int, int]]:
    """Each record's timestamp and offset, without making anything of the rest, and checked no further than that."""
    append_time_ms = header.max_timestamp if header.has_log_append_time else None
    place, end = 0, len(body)
    for _ in range(header.record_count):
        record_end, place = field_end(body, place, end)
        time_delta, place = number(body, place + 1, record_end)
        offset_delta, _ = number(body, place, record_end)
        timestamp_ms = header.base_timestamp + time_delta if append_time_ms is None else append_time_ms
        yield timestamp_ms, header.base_offset + offset_delta
        place = record_end


def batch_header(buffer: Buffer, at: int, check_crc: bool = True) -> BatchHeader:
    """The header of a batch that is whole, of magic 2, and has the CRC that it states."""
    left_bytes = len(buffer) - at
    if at < 0 or left_bytes < HEADER_BYTES:
        raise InvalidRecord(f"{left_bytes} bytes hold no record batch")
    header = read_header(buffer, at)
    if header.magic != MAGIC:
        raise InvalidRecord(f"a batch of magic {header.magic}")
    if not HEADER_BYTES <= header.size_bytes <= left_bytes:
        raise InvalidRecord(f"a batch of {header.size_bytes} bytes where {left_bytes} are left")
    if check_crc and body_crc(buffer, at, header.size_bytes) != header.crc:
        raise InvalidRecord(f"the CRC of the batch is not {header.crc:#010x} as its header says")
    return header


def batches_with_records(buffer: Buffer) -> Iterator[tuple[int, BatchHeader]]:
    """All but control batches. Those are passed over only if they are sound: a wrong bit makes one of any batch."""
    for at, header in headers(buffer):
        if header.is_control:
            batch_header(buffer, at)
        else:
            yield at, header


def body_of(buffer: Buffer, at: int, header: BatchHeader, limit_bytes: int | None = None) -> Buffer:
    """The records' bytes, decompressed. A batch that compaction emptied has none, whatever its codec."""
    if limit_bytes is None:
        limit_bytes = max(LEAST_LIMIT_BYTES, MOST_TIMES_UNFOLDED * header.size_bytes)
    if header.record_count > limit_bytes // LIMIT_BYTES_PER_RECORD:
        raise TooLarge(f"{header.record_count} records where {limit_bytes} bytes are allowed")
    stored = memoryview(buffer)[at + HEADER_BYTES : at + header.size_bytes]
    if header.record_count == 0 and not stored:
        return b""
    return decompress(header.codec, stored, limit_bytes)


def number(body: bytes, place: int, end: int) -> tuple[int, int]:
    """A zigzag varint of at most 64 bits, and the place behind it."""
    if place < end:
        byte = body[place]
        if byte < 0x80:
            return (byte >> 1) ^ -(byte & 1), place + 1
    raw = shift = 0
    while True:
        if place >= end or shift > 63:
            raise InvalidRecord("a number that runs over its record's end or over 64 bits")
        byte = body[place]
        place += 1
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
    if raw >> 64:
        raise InvalidRecord("a number of more than 64 bits")
    return (raw >> 1) ^ -(raw & 1), place


def field_end(body: bytes, place: int, end: int) -> tuple[int, int]:
    """The end of a field of stated length, and its beginning."""
    size_bytes, place = number(body, place, end)
    if not 0 <= size_bytes <= end - place:
        raise InvalidRecord(f"a length of {size_bytes} where {end - place} bytes are left")
    return place + size_bytes, place


def _bytes_or_none(body: bytes, place: int, end: int) -> tuple[bytes | None, int]:
    size_bytes, place = number(body, place, end)
    if size_bytes == -1:
        return None, place
    if not 0 <= size_bytes <= end - place:
        raise InvalidRecord(f"a length of {size_bytes} where {end - place} bytes are left")
    return body[place : place + size_bytes], place + size_bytes


def _headers(body: bytes, place: int, end: int) -> tuple[Headers, int]:
    count, place = number(body, place, end)
    if count == 0:
        return (), place
    if not 0 <= count <= (end - place) // 2:
        raise InvalidRecord(f"{count} record headers where {end - place} bytes are left")
    headers: list[tuple[bytes, bytes | None]] = []
    for _ in range(count):
        name_end, place = field_end(body, place, end)
        name = body[place:name_end]
        value, place = _bytes_or_none(body, name_end, end)
        headers.append((name, value))
    return tuple(headers), place
