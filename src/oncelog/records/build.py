"""Batches from records, in pure Python: what a producer without numba sends, and what the server writes itself.

The loop below is the whole cost, so it keeps to few steps for each record: numbers that fit one varint byte come from
a table, and the record that has a null or short key and no headers is put together by one join.
"""

from collections.abc import Iterable, Sequence

from oncelog.records.codecs import DEFAULT_LEVEL, compress
from oncelog.records.header import (
    CONTROL,
    HEADER,
    HEADER_BYTES,
    LENGTH_PREFIX_BYTES,
    MAGIC,
    MAX_RECORDS,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    TRANSACTIONAL,
    restamp_crc,
)
from oncelog.records.varint import SMALL, zigzag

Header = tuple[str | bytes, bytes | None]
NewRecord = tuple[bytes | None, bytes | None, Sequence[Header], int | None]


def build_batch(
    records: Iterable[NewRecord],
    *,
    codec: int = 0,
    level: int = DEFAULT_LEVEL,
    base_offset: int = 0,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = -1,
    base_sequence: int = NO_SEQUENCE,
    timestamp_ms: int = NO_TIMESTAMP,
    is_control: bool = False,
    is_transactional: bool = False,
    leader_epoch: int = -1,
) -> bytearray:
    """One batch of `(key, value, headers, timestamp_ms)` records; those without a time of their own get that given."""
    records = [record[:4] for record in records]
    body, base_timestamp, max_timestamp = encode_records(records, timestamp_ms)
    count = len(records)
    if count > MAX_RECORDS:
        raise ValueError(f"{count} records in one batch where {MAX_RECORDS} are allowed")
    attributes = codec | (CONTROL if is_control else 0) | (TRANSACTIONAL if is_transactional else 0)
    stored = compress(codec, body, level)
    batch = bytearray(HEADER_BYTES)
    batch += stored
    size_bytes = len(batch)
    HEADER.pack_into(
        batch, 0, base_offset, size_bytes - LENGTH_PREFIX_BYTES, leader_epoch, MAGIC, 0, attributes, count - 1,
        base_timestamp, max_timestamp, producer_id, producer_epoch, base_sequence, count,
    )  # fmt: skip
    restamp_crc(batch, 0, size_bytes)
    return batch


def encode_records(records: Sequence[NewRecord], timestamp_ms: int) -> tuple[bytes, int, int]:
    """The records' bytes, the first timestamp and the greatest one."""
    parts: list[bytes] = []
    append = parts.append
    small = SMALL
    first_ms = max_ms = NO_TIMESTAMP
    for delta, (key, value, headers, own_ms) in enumerate(records):
        time_ms = timestamp_ms if own_ms is None else own_ms
        if time_ms > max_ms or delta == 0:
            if delta == 0:
                first_ms = time_ms
            max_ms = time_ms
        time_delta = time_ms - first_ms
        key_size = -1 if key is None else len(key)
        value_size = -1 if value is None else len(value)
        body = b"".join(
            (
                b"\0",
                small[time_delta] if 0 <= time_delta < SMALL_COUNT else zigzag(time_delta),
                small[delta] if delta < SMALL_COUNT else zigzag(delta),
                small[key_size] if key_size < SMALL_COUNT else zigzag(key_size),
                key or b"",
                small[value_size] if value_size < SMALL_COUNT else zigzag(value_size),
                value or b"",
                encode_headers(headers) if headers else b"\0",
            )
        )
        size = len(body)
        append(small[size] if size < SMALL_COUNT else zigzag(size))
        append(body)
    return b"".join(parts), first_ms, max_ms


SMALL_COUNT = len(SMALL) - 1


def encode_headers(headers: Sequence[Header]) -> bytes:
    parts = [zigzag(len(headers))]
    for name, value in headers:
        name_bytes = name.encode() if isinstance(name, str) else name
        parts += (zigzag(len(name_bytes)), name_bytes)
        parts += (zigzag(-1),) if value is None else (zigzag(len(value)), value)
    return b"".join(parts)
