"""Batches without some of their records, the kept ones unchanged and under the same codec.

`trim` serves a replay that overlaps with what the log already has; `retain` serves compaction.
"""

from collections.abc import Sequence

from oncelog.records.codecs import compress
from oncelog.records.errors import InvalidRecord
from oncelog.records.header import (
    CODEC_MASK,
    HEADER,
    HEADER_BYTES,
    LENGTH_PREFIX_BYTES,
    NO_TIMESTAMP,
    BatchHeader,
    Buffer,
    restamp_crc,
)
from oncelog.records.read import INT64_MAX, batch_header, body_of, field_end, number, records_in
from oncelog.records.varint import zigzag

SEQUENCES = 1 << 31

Piece = tuple[bytes, int, int, bytes]  # attributes, timestamp delta, offset delta, everything behind them


def trim(buffer: Buffer, drop_records: int, *, limit_bytes: int | None = None) -> bytearray:
    """The batch from its record number `drop_records` on.

    Offsets stay what they were, so the base offset and the base sequence move on by as much as the deltas shrink.
    """
    header, pieces = _take_apart(buffer, 0, limit_bytes)
    if not 0 <= drop_records < len(pieces):
        raise ValueError(f"cannot drop {drop_records} of {len(pieces)} records")
    kept = pieces[drop_records:]
    _, time_shift, shift, _ = kept[0]
    shifted = [(attributes, time - time_shift, delta - shift, rest) for attributes, time, delta, rest in kept]
    if any(abs(time) > INT64_MAX for _, time, _, _ in shifted):
        raise InvalidRecord("timestamps further apart than 64 bits can say")
    sequence = header.base_sequence
    moved = header._replace(
        base_offset=header.base_offset + shift,
        last_offset_delta=header.last_offset_delta - shift,
        base_timestamp=header.base_timestamp + time_shift,
        base_sequence=sequence if sequence < 0 else (sequence + shift) % SEQUENCES,
    )
    return _put_together(moved, shifted)


def retain(buffer: Buffer, keep: Sequence[bool], at: int = 0, *, limit_bytes: int | None = None) -> bytearray:
    """The batch at `at` with those records that `keep` says, one answer for each of them.

    Offsets, sequences and the producer stay, the last offset and sequence too, so that the log has the same end and the
    same producers after it. Without any record the batch is a bare header: uncompressed, its greatest timestamp kept.
    """
    header, pieces = _take_apart(buffer, at, limit_bytes)
    kept = [piece for piece, is_kept in zip(pieces, keep, strict=True) if is_kept]
    return _put_together(header, kept)


def emptied(buffer: Buffer, at: int = 0) -> bytearray:
    """`retain` of no record at all, whatever the body holds."""
    return _put_together(batch_header(buffer, at, check_crc=False), [])


def _take_apart(buffer: Buffer, at: int, limit_bytes: int | None) -> tuple[BatchHeader, list[Piece]]:
    header = batch_header(buffer, at)
    body = bytes(body_of(buffer, at, header, limit_bytes))
    records_in(body, header)  # the steps below rely on sound records
    pieces: list[Piece] = []
    place, end = 0, len(body)
    while place < end:
        record_end, place = field_end(body, place, end)
        attributes = body[place : place + 1]
        time_delta, place = number(body, place + 1, record_end)
        offset_delta, place = number(body, place, record_end)
        pieces.append((attributes, time_delta, offset_delta, body[place:record_end]))
        place = record_end
    return header, pieces


def _put_together(header: BatchHeader, pieces: list[Piece]) -> bytearray:
    out = bytearray(HEADER_BYTES)
    attributes, base_timestamp, max_timestamp = header.attributes, header.base_timestamp, header.max_timestamp
    if pieces:
        out += compress(header.codec, _join(pieces))
        if not header.has_log_append_time:
            max_timestamp = base_timestamp + max(time_delta for _, time_delta, _, _ in pieces)
    else:
        attributes &= ~CODEC_MASK
        base_timestamp = NO_TIMESTAMP
    whole = header._replace(
        batch_length=len(out) - LENGTH_PREFIX_BYTES,
        attributes=attributes,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        record_count=len(pieces),
    )
    HEADER.pack_into(out, 0, *whole)
    restamp_crc(out, 0, len(out))
    return out


def _join(pieces: list[Piece]) -> bytes:
    parts: list[bytes] = []
    for attributes, time_delta, offset_delta, rest in pieces:
        deltas = zigzag(time_delta) + zigzag(offset_delta)
        parts += (zigzag(1 + len(deltas) + len(rest)), attributes, deltas, rest)
    return b"".join(parts)
