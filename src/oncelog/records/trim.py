"""A batch without its first records: what is appended when a replay overlaps with what the log already has."""

from oncelog.records.codecs import DEFAULT_LIMIT_BYTES, compress
from oncelog.records.errors import InvalidRecord
from oncelog.records.header import (
    HEADER,
    HEADER_BYTES,
    LENGTH_PREFIX_BYTES,
    NO_PRODUCER_ID,
    Buffer,
    restamp_crc,
)
from oncelog.records.read import batch_header, body_of, field_end, number, records_of
from oncelog.records.varint import zigzag

SEQUENCES = 1 << 31


def trim(buffer: Buffer, drop_records: int, *, limit_bytes: int = DEFAULT_LIMIT_BYTES) -> bytearray:
    """The batch from its record number `drop_records` on: same codec and attributes, every kept record unchanged.

    Offsets stay what they were, so the base offset and the base sequence move on by as much as the deltas shrink.
    """
    header = batch_header(buffer, 0)
    if not 0 <= drop_records < header.record_count:
        raise ValueError(f"cannot drop {drop_records} of {header.record_count} records")
    records_of(buffer, limit_bytes=limit_bytes, check_crc=False)  # what follows relies on sound records
    body = bytes(body_of(buffer, 0, header, limit_bytes))
    kept = _split(body)[drop_records:]
    dropped_delta = kept[0][2]
    first_time_delta = kept[0][1]
    stored = compress(header.codec, _join(kept, first_time_delta, dropped_delta))
    out = bytearray(HEADER_BYTES)
    out += stored
    max_timestamp = header.max_timestamp
    if not header.has_log_append_time:
        max_timestamp = header.base_timestamp + max(time_delta for _, time_delta, _, _ in kept)
    trimmed = header._replace(
        base_offset=header.base_offset + dropped_delta,
        batch_length=len(out) - LENGTH_PREFIX_BYTES,
        last_offset_delta=header.last_offset_delta - dropped_delta,
        base_timestamp=header.base_timestamp + first_time_delta,
        max_timestamp=max_timestamp,
        base_sequence=_moved_on(header.producer_id, header.base_sequence, dropped_delta),
        record_count=len(kept),
    )
    HEADER.pack_into(out, 0, *trimmed)
    restamp_crc(out, 0, len(out))
    return out


def _moved_on(producer_id: int, base_sequence: int, count: int) -> int:
    if producer_id == NO_PRODUCER_ID or base_sequence < 0:
        return base_sequence
    return (base_sequence + count) % SEQUENCES


Piece = tuple[bytes, int, int, bytes]  # attributes, timestamp delta, offset delta, everything behind them


def _split(body: bytes) -> list[Piece]:
    pieces: list[Piece] = []
    place, end = 0, len(body)
    while place < end:
        record_end, place = field_end(body, place, end)
        attributes = body[place : place + 1]
        time_delta, place = number(body, place + 1, record_end)
        offset_delta, place = number(body, place, record_end)
        pieces.append((attributes, time_delta, offset_delta, body[place:record_end]))
        place = record_end
    if not pieces:
        raise InvalidRecord("a batch without records")
    return pieces


def _join(pieces: list[Piece], first_time_delta: int, first_offset_delta: int) -> bytes:
    parts: list[bytes] = []
    for attributes, time_delta, offset_delta, rest in pieces:
        deltas = zigzag(time_delta - first_time_delta) + zigzag(offset_delta - first_offset_delta)
        parts += (zigzag(1 + len(deltas) + len(rest)), attributes, deltas, rest)
    return b"".join(parts)
