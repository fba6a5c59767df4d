"""The header of a v2 record batch: read, checked and stamped without touching the records behind it.

    offset  field                    covered by the CRC
    0       base offset       int64  no
    8       batch length      int32  no     counts the bytes after itself
    12      leader epoch      int32  no
    16      magic             int8   no
    17      crc               uint32 no     CRC-32C of everything from byte 21
    21      attributes        int16  yes
    23      last offset delta int32  yes
    27      base timestamp    int64  yes
    35      max timestamp     int64  yes
    43      producer id       int64  yes
    51      producer epoch    int16  yes
    53      base sequence     int32  yes
    57      record count      int32  yes

Base offset and leader epoch lie outside the CRC, which is why a log can stamp a batch in place.
"""

import struct
from collections.abc import Iterator
from typing import NamedTuple

from crc32c import crc32c

HEADER = struct.Struct(">qiibIhiqqqhii")
HEADER_BYTES = HEADER.size
LENGTH_PREFIX_BYTES = 12  # base offset and batch length: what precedes the bytes that "batch length" counts
CRC_FROM = 21

CODEC_MASK = 0x07
LOG_APPEND_TIME = 0x08
TRANSACTIONAL = 0x10
CONTROL = 0x20

NO_PRODUCER_ID = -1
NO_SEQUENCE = -1

Buffer = bytes | bytearray | memoryview

_base_offset = struct.Struct(">q")
_leader_epoch = struct.Struct(">i")


class BatchHeader(NamedTuple):
    base_offset: int
    batch_length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size_bytes(self) -> int:
        return self.batch_length + LENGTH_PREFIX_BYTES

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def codec(self) -> int:
        return self.attributes & CODEC_MASK

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def has_log_append_time(self) -> bool:
        return bool(self.attributes & LOG_APPEND_TIME)


def read_header(buffer: Buffer, at: int = 0) -> BatchHeader:
    return BatchHeader._make(HEADER.unpack_from(buffer, at))


def stamp(buffer: bytearray | memoryview, at: int, base_offset: int, leader_epoch: int) -> None:
    _base_offset.pack_into(buffer, at, base_offset)
    _leader_epoch.pack_into(buffer, at + 12, leader_epoch)


def body_crc(buffer: Buffer, at: int, size_bytes: int) -> int:
    return crc32c(memoryview(buffer)[at + CRC_FROM : at + size_bytes])


def headers(buffer: Buffer, at: int = 0) -> Iterator[tuple[int, BatchHeader]]:
    """Every whole batch in the buffer, as (position, header); a partial one at the end is left out."""
    end = len(buffer)
    while at + HEADER_BYTES <= end:
        header = read_header(buffer, at)
        size_bytes = header.batch_length + LENGTH_PREFIX_BYTES
        if size_bytes < HEADER_BYTES or at + size_bytes > end:
            return
        yield at, header
        at += size_bytes
