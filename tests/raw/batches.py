"""Record batches made by hand, so that a test can also make wrong ones.

Nothing here is taken from `oncelog.records`: a test that used the product's own builder would agree with its mistakes.
"""

import gzip
import struct
import time
import zlib
from collections.abc import Sequence
from typing import NamedTuple

import cramjam
from crc32c import crc32c

HEADER = struct.Struct(">qiibIhiqqqhii")
HEADER_BYTES = HEADER.size
CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}

_XERIAL_HEADER = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)

Header = tuple[str, bytes | None]


class Rec(NamedTuple):
    value: bytes | None
    key: bytes | None = None
    headers: tuple[Header, ...] = ()
    timestamp_delta_ms: int = 0


def varint(number: int) -> bytes:
    rest = (number << 1) ^ (number >> 63)
    out = bytearray()
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


def _sized(data: bytes | None) -> bytes:
    return varint(-1) if data is None else varint(len(data)) + data


def record_bytes(index: int, record: Rec) -> bytes:
    headers = b"".join(_sized(name.encode()) + _sized(value) for name, value in record.headers)
    body = (
        b"\x00"
        + varint(record.timestamp_delta_ms)
        + varint(index)
        + _sized(record.key)
        + _sized(record.value)
        + varint(len(record.headers))
        + headers
    )
    return varint(len(body)) + body


def squeeze(codec: int, data: bytes) -> bytes:
    match codec:
        case 0:
            return data
        case 1:
            return gzip.compress(data, 1)
        case 2:
            block = bytes(cramjam.snappy.compress_raw(data))
            return _XERIAL_HEADER + struct.pack(">i", len(block)) + block
        case 3:
            # Kafka reads independent blocks only.
            lz4 = cramjam.lz4.Compressor(level=1, content_checksum=False, block_linked=False)
            lz4.compress(data)
            return bytes(lz4.finish())
        case 4:
            return bytes(cramjam.zstd.compress(data))
    raise ValueError(f"no codec has the number {codec}")


def records_payload(records: Sequence[Rec | bytes | None]) -> bytes:
    return b"".join(
        record_bytes(i, record if isinstance(record, Rec) else Rec(record)) for i, record in enumerate(records)
    )


def batch(
    records: Sequence[Rec | bytes | None],
    *,
    pid: int = -1,
    epoch: int = -1,
    sequence: int = -1,
    codec: int = 0,
    timestamp_ms: int | None = None,
    base_offset: int = 0,
    attributes: int | None = None,
    magic: int = 2,
    last_offset_delta: int | None = None,
    record_count: int | None = None,
    length_bytes: int | None = None,
    crc: int | None = None,
    payload: bytes | None = None,
) -> bytes:
    """A batch of these records. Every number of the header can be overridden; the CRC follows unless it is given."""
    base_ms = time.time_ns() // 1_000_000 if timestamp_ms is None else timestamp_ms
    body = squeeze(codec, records_payload(records)) if payload is None else payload
    deltas = [record.timestamp_delta_ms for record in records if isinstance(record, Rec)]
    out = bytearray(HEADER_BYTES) + body
    length = len(out) - 12 if length_bytes is None else length_bytes
    flags = codec if attributes is None else attributes
    last = len(records) - 1 if last_offset_delta is None else last_offset_delta
    count = len(records) if record_count is None else record_count
    latest_ms = base_ms + max(deltas, default=0)
    fields = (base_offset, length, -1, magic, 0, flags, last, base_ms, latest_ms, pid, epoch, sequence, count)
    HEADER.pack_into(out, 0, *fields)
    struct.pack_into(">I", out, 17, crc32c(bytes(out[21:])) if crc is None else crc)
    return bytes(out)


def message_set(value: bytes, magic: int) -> bytes:
    """One message in the formats that came before record batches (magic 0 and 1)."""
    stamp = struct.pack(">q", time.time_ns() // 1_000_000) if magic == 1 else b""
    body = struct.pack(">bb", magic, 0) + stamp + struct.pack(">i", -1) + struct.pack(">i", len(value)) + value
    message = struct.pack(">I", zlib.crc32(body)) + body
    return struct.pack(">qi", 0, len(message)) + message
