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
from typing import NamedTuple, NoReturn

from crc32c import crc32c

from oncelog.records.errors import BadBatch, BadBatchKind

HEADER = struct.Struct(">qiibIhiqqqhii")
HEADER_BYTES = HEADER.size
LENGTH_PREFIX_BYTES = 12  # base offset and batch length: what precedes the bytes that "batch length" counts
CRC_FROM = 21
MAGIC = 2

CODEC_MASK = 0x07
LOG_APPEND_TIME = 0x08
TRANSACTIONAL = 0x10
CONTROL = 0x20
LAST_CODEC = 4

NO_PRODUCER_ID = -1
NO_SEQUENCE = -1
NO_TIMESTAMP = -1

MIN_RECORD_BYTES = 7  # length, attributes, two deltas, key length, value length, header count: one byte each
# Sequences are compared modulo 2^31 within a window of 2^30, so no batch may span more than that.
MAX_RECORDS = 1 << 30
# The most bytes that one stored byte can stand for, by codec (none, gzip, snappy, lz4, zstd): deflate reaches
# 1,032, snappy copies 64 bytes by 3, lz4 adds 255 for a byte, a zstd block of 4 bytes fills 128 KiB. A record count
# beyond that is a lie which would make offsets jump, and it is seen without unfolding anything.
MOST_UNFOLDED = (1, 1_040, 22, 256, 40_000)

Buffer = bytes | bytearray | memoryview

_base_offset = struct.Struct(">q")
_leader_epoch = struct.Struct(">i")
_crc = struct.Struct(">I")
_attributes = struct.Struct(">h")
_max_timestamp = struct.Struct(">q")
_producer = struct.Struct(">qhi")
_length_and_time = struct.Struct(">i23xq")  # from byte 8
_unpack_from = HEADER.unpack_from
_new = tuple.__new__


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


def stamp_append_time(buffer: bytearray | memoryview, at: int, append_time_ms: int) -> None:
    """Make the log's clock the timestamp of every record of the batch; the CRC covers that, so it is made anew."""
    header = read_header(buffer, at)
    _attributes.pack_into(buffer, at + CRC_FROM, header.attributes | LOG_APPEND_TIME)
    _max_timestamp.pack_into(buffer, at + 35, append_time_ms)
    restamp_crc(buffer, at, header.size_bytes)


def stamp_producer(
    buffer: bytearray | memoryview, at: int, producer_id: int, producer_epoch: int, base_sequence: int
) -> int:
    """Say who sends the batch, and as which sequences; the answer is its max timestamp. The CRC covers the stamp, so it
    is made anew over the whole batch, which costs less than keeping what it was before the stamp."""
    _producer.pack_into(buffer, at + 43, producer_id, producer_epoch, base_sequence)
    batch_length, max_timestamp = _length_and_time.unpack_from(buffer, at + 8)
    body = memoryview(buffer)[at + CRC_FROM : at + LENGTH_PREFIX_BYTES + batch_length]
    _crc.pack_into(buffer, at + 17, crc32c(body))
    return int(max_timestamp)


def mark_transactional(buffer: bytearray | memoryview, at: int = 0) -> None:
    """Its CRC is to be made anew."""
    (attributes,) = _attributes.unpack_from(buffer, at + CRC_FROM)
    _attributes.pack_into(buffer, at + CRC_FROM, attributes | TRANSACTIONAL)


def restamp_crc(buffer: bytearray | memoryview, at: int, size_bytes: int) -> None:
    _crc.pack_into(buffer, at + 17, body_crc(buffer, at, size_bytes))


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


_NOT_IN_TRANSACTIONS = LOG_APPEND_TIME | CONTROL
_NOT_BY_CLIENTS = _NOT_IN_TRANSACTIONS | TRANSACTIONAL


def check_produced(buffer: Buffer, refused: int = _NOT_BY_CLIENTS) -> BatchHeader:
    """The header of what one partition of a Produce request holds, or BadBatch. `refused` are attributes.

    Everything is checked that a broker can tell without looking at the records: they are never decoded on the way
    through. One pass decides; only a refusal takes the time to find its reason.
    """
    size_bytes = len(buffer)
    if size_bytes < HEADER_BYTES:
        _refuse_framing(buffer)
    header: BatchHeader = _new(BatchHeader, _unpack_from(buffer, 0))
    (base_offset, batch_length, _, magic, crc, attributes, last_delta, _, _, producer_id, epoch, sequence, count) = (
        header
    )
    if magic != MAGIC or batch_length + LENGTH_PREFIX_BYTES != size_bytes:
        _refuse_framing(buffer)
    if crc32c(buffer[CRC_FROM:]) != crc:
        raise BadBatch(BadBatchKind.CORRUPT, f"the CRC of the batch is not {crc:#010x} as its header says")
    codec = attributes & CODEC_MASK
    if (
        attributes & refused
        or codec > LAST_CODEC
        or last_delta + 1 != count
        or not 0 < count <= MAX_RECORDS
        or count * MIN_RECORD_BYTES > (size_bytes - HEADER_BYTES) * MOST_UNFOLDED[codec]
        or (producer_id >= 0 and (sequence < 0 or epoch < 0))
        or producer_id < NO_PRODUCER_ID
        or base_offset
    ):
        _refuse_header(header, refused)
    return header


def check_in_transaction(buffer: Buffer) -> BatchHeader:
    """The same of a request that names a transaction: its batches may belong to it."""
    header = check_produced(buffer, _NOT_IN_TRANSACTIONS)
    if header.attributes & TRANSACTIONAL and header.producer_id < 0:
        raise BadBatch(BadBatchKind.INVALID, "a transaction belongs to a producer, and the batch names none")
    return header


def _refuse_framing(buffer: Buffer) -> NoReturn:
    """Kafka's order: nothing whole, then a length or a magic that cannot be, then an old magic, then a second batch."""
    size_bytes = len(buffer)
    if size_bytes < LENGTH_PREFIX_BYTES + 5:
        raise BadBatch(BadBatchKind.INVALID, f"{size_bytes} bytes hold no record batch")
    batch_length = int.from_bytes(buffer[8:12], "big", signed=True)
    magic = int.from_bytes(buffer[16:17], "big", signed=True)
    if not 0 <= magic <= MAGIC:
        raise BadBatch(BadBatchKind.CORRUPT, f"there is no record format of magic {magic}")
    if magic < MAGIC:
        raise BadBatch(BadBatchKind.OLD_FORMAT, f"records of the old magic {magic} are not accepted, only of magic 2")
    if batch_length < HEADER_BYTES - LENGTH_PREFIX_BYTES:
        raise BadBatch(BadBatchKind.CORRUPT, f"a batch length of {batch_length} is less than its header")
    whole_bytes = batch_length + LENGTH_PREFIX_BYTES
    if whole_bytes > size_bytes:
        raise BadBatch(BadBatchKind.INVALID, f"the batch stops after {size_bytes} of {whole_bytes} bytes")
    raise BadBatch(BadBatchKind.INVALID, f"{size_bytes - whole_bytes} bytes follow the one batch that is allowed")


def _refuse_header(header: BatchHeader, refused: int) -> NoReturn:
    count = header.record_count
    if header.is_control:
        raise BadBatch(BadBatchKind.INVALID, "clients may not write control batches")
    if header.attributes & refused & TRANSACTIONAL:
        raise BadBatch(BadBatchKind.TRANSACTIONAL, "the request names no transactional id")
    if header.codec > LAST_CODEC:
        raise BadBatch(BadBatchKind.UNKNOWN_CODEC, f"there is no codec {header.codec}")
    if header.base_offset != 0:
        raise BadBatch(BadBatchKind.INVALID, f"a produced batch begins at offset 0, not at {header.base_offset}")
    if header.last_offset_delta + 1 != count or count < 1:
        message = f"{count} records contradict a last offset delta of {header.last_offset_delta}"
        raise BadBatch(BadBatchKind.INVALID, message)
    if header.has_log_append_time:
        raise BadBatch(BadBatchKind.TIMESTAMP_TYPE, "only the log may say that timestamps are its append time")
    if header.producer_id != NO_PRODUCER_ID:
        message = f"producer {header.producer_id}, epoch {header.producer_epoch}, sequence {header.base_sequence}"
        if header.producer_id < 0 or header.producer_epoch < 0 or header.base_sequence < 0:
            raise BadBatch(BadBatchKind.INVALID, f"a negative number in {message}")
    raise BadBatch(BadBatchKind.INVALID, f"{count} records cannot be in {header.size_bytes} bytes")
