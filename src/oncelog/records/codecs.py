"""The four codecs of a record batch, and what they unfold to, bounded before it is unfolded.

A stored size is believed only up to the caller's limit, and the output goes into a buffer of fixed size: whatever the
bytes claim, no more memory than the limit is taken. Where a codec stores no size (zstd and lz4 as streams write
them), the buffer starts small and grows until the whole fits or the limit is reached.

Time is bounded, too. Streams of gzip and of snappy may follow one another, and each piece costs a step in Python, so
there is a limit to how many may be in what no sound writer makes so small. zstd's and lz4's frames are walked over by
compiled code: a megabyte of empty ones takes 40 ms at most.
"""

import struct
import zlib
from collections.abc import Callable

import cramjam

from oncelog.records.errors import BadCompression, TooLarge
from oncelog.records.header import MOST_UNFOLDED, Buffer

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
CODECS = {"none": NONE, "gzip": GZIP, "snappy": SNAPPY, "lz4": LZ4, "zstd": ZSTD}

DEFAULT_LIMIT_BYTES = 256 << 20

DEFAULT_LEVEL = -1  # each codec's own
GZIP_MOST_LEVEL = 9
LZ4_DEFAULT_LEVEL = 1
ZSTD_DEFAULT_LEVEL = 3

# Java's snappy-java frames blocks by its own header: magic, version 1, oldest compatible version 1, then for each block
# its compressed size. librdkafka writes one bare block. Both are read; Java's way is written, as every reader knows it.
_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK_BYTES = 32 << 10
_block_size = struct.Struct(">i")
# snappy-java's blocks are of 32 KiB, and of 1 KiB at least; what compresses well makes them a few bytes long.
_MOST_SNAPPY_PIECES = 1_024
_BYTES_PER_SNAPPY_PIECE = 256

_MOST_GZIP_MEMBERS = 1_024
_GZIP_PIECE_BYTES = 64 << 10  # what follows a member is copied, so it is given piece by piece
_GUNZIPPED_PIECE_BYTES = 256 << 10  # zlib holds what it makes in one go twice


def compress(codec: int, data: Buffer, level: int = DEFAULT_LEVEL) -> Buffer:
    """A level that the codec does not go up to is its highest; snappy has none."""
    if codec == NONE:
        return data
    if codec == GZIP:
        compressor = zlib.compressobj(min(level, GZIP_MOST_LEVEL), wbits=zlib.MAX_WBITS | 16)
        return compressor.compress(data) + compressor.flush()
    if codec == SNAPPY:
        return _compress_xerial(data)
    if codec == LZ4:
        return _compress_lz4(data, LZ4_DEFAULT_LEVEL if level < 0 else level)
    if codec == ZSTD:
        return memoryview(cramjam.zstd.compress(data, ZSTD_DEFAULT_LEVEL if level < 0 else level))
    raise BadCompression(f"there is no codec {codec}")


def decompress(codec: int, data: Buffer, limit_bytes: int = DEFAULT_LIMIT_BYTES) -> Buffer:
    """The unfolded bytes; BadCompression when they are not that codec's, TooLarge when they exceed the limit."""
    if codec == NONE:
        if len(data) > limit_bytes:
            raise TooLarge(f"{len(data)} bytes where {limit_bytes} are allowed")
        return data
    if not NONE < codec <= ZSTD:
        raise BadCompression(f"there is no codec {codec}")
    if len(data) == 0:
        raise BadCompression("nothing to decompress")
    return _DECOMPRESS[codec](data, limit_bytes)


def _gunzip(data: Buffer, limit_bytes: int) -> Buffer:
    """All members, one after the other, as concatenated gzip files are read."""
    view = memoryview(data)
    out = bytearray()
    at = members = 0
    try:
        while at < len(view):
            members += 1
            if members > _MOST_GZIP_MEMBERS:
                raise BadCompression(f"gzip data of more than {_MOST_GZIP_MEMBERS} members")
            member = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
            while not member.eof:
                piece = view[at : at + _GZIP_PIECE_BYTES]
                part = member.decompress(piece, _GUNZIPPED_PIECE_BYTES)
                if len(out) + len(part) > limit_bytes:
                    raise TooLarge(f"gzip data of more than {limit_bytes} bytes")
                if not piece and not part:
                    raise BadCompression("gzip data stops before its end")
                out += part
                at += len(piece) - len(member.unused_data) - len(member.unconsumed_tail)
    except zlib.error as error:
        raise BadCompression(f"gzip: {error}") from None
    return out


def _compress_xerial(data: Buffer) -> bytearray:
    view = memoryview(data)
    out = bytearray(_XERIAL_HEADER)
    for start in range(0, len(view), _XERIAL_BLOCK_BYTES):
        block = cramjam.snappy.compress_raw(view[start : start + _XERIAL_BLOCK_BYTES])
        out += _block_size.pack(len(block))
        out += memoryview(block)
    return out


def _unsnappy(data: Buffer, limit_bytes: int) -> Buffer:
    view = memoryview(data)
    blocks = _xerial_blocks(view) if view[:8] == _XERIAL_MAGIC else [view]
    sizes = [_snappy_size(block) for block in blocks]
    total_bytes = sum(sizes)
    if total_bytes > limit_bytes:
        raise TooLarge(f"snappy data of {total_bytes} bytes where {limit_bytes} are allowed")
    out = bytearray(total_bytes)
    target = memoryview(out)
    at = 0
    for block, size_bytes in zip(blocks, sizes, strict=True):
        if size_bytes:
            _decompress_into(cramjam.snappy.decompress_raw_into, block, target[at : at + size_bytes])
        at += size_bytes
    return out


def _xerial_blocks(view: memoryview) -> list[memoryview]:
    """The compressed blocks; a stream may follow another, then its header comes where a block's size would."""
    blocks: list[memoryview] = []
    at, end = 0, len(view)
    left = _MOST_SNAPPY_PIECES + end // _BYTES_PER_SNAPPY_PIECE
    while at < end:
        left -= 1
        if left < 0:
            raise BadCompression(f"{end} bytes of snappy data in more pieces than a sound writer makes")
        if view[at : at + 8] == _XERIAL_MAGIC:
            at += len(_XERIAL_HEADER)
            if at > end:
                raise BadCompression("snappy data stops in its header")
            continue
        if at + 4 > end:
            raise BadCompression("snappy data stops in the size of a block")
        size_bytes = _block_size.unpack_from(view, at)[0]
        at += 4
        if size_bytes < 0 or at + size_bytes > end:
            raise BadCompression(f"a snappy block of {size_bytes} bytes where {end - at} are left")
        blocks.append(view[at : at + size_bytes])
        at += size_bytes
    return blocks


def _snappy_size(block: memoryview) -> int:
    """The size that a raw block states: a varint of at most 32 bits."""
    size_bytes = 0
    for index in range(min(5, len(block))):
        byte = block[index]
        size_bytes |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return size_bytes
    raise BadCompression("a snappy block without a size")


def _compress_lz4(data: Buffer, level: int) -> Buffer:
    """One frame of independent blocks: Java's reader refuses blocks that refer to earlier ones."""
    compressor = cramjam.lz4.Compressor(level=level, content_checksum=False, block_linked=False)
    compressor.compress(bytes(data))
    return memoryview(compressor.finish())


def _unlz4(data: Buffer, limit_bytes: int) -> Buffer:
    return _unfold(LZ4, cramjam.lz4.decompress_into, data, _lz4_stated_bytes(data), limit_bytes)


def _unzstd(data: Buffer, limit_bytes: int) -> Buffer:
    return _unfold(ZSTD, cramjam.zstd.decompress_into, data, _zstd_stated_bytes(data), limit_bytes)


def _lz4_stated_bytes(data: Buffer) -> int | None:
    """The content size in the first frame's header, if it is there: bit 3 of the flags says so."""
    if len(data) < 14 or not data[4] & 0x08:
        return None
    return int.from_bytes(data[6:14], "little")


def _zstd_stated_bytes(data: Buffer) -> int | None:
    """The content size in the first frame's header; its width stands in the two top bits of the descriptor."""
    if len(data) < 18:
        return None
    descriptor = data[4]
    is_single_segment = descriptor & 0x20
    width_bytes = (1 if is_single_segment else 0, 2, 4, 8)[descriptor >> 6]
    if width_bytes == 0:
        return None
    at = 5 + (0 if is_single_segment else 1) + (0, 1, 2, 4)[descriptor & 3]
    size_bytes = int.from_bytes(data[at : at + width_bytes], "little")
    return size_bytes + 256 if width_bytes == 2 else size_bytes


def _unfold(codec: int, into: Callable[..., int], data: Buffer, stated_bytes: int | None, limit_bytes: int) -> Buffer:
    """Decompress into a buffer of the stated size, or of a guess; larger each time that it turns out too small."""
    if stated_bytes is not None and stated_bytes > limit_bytes:
        raise TooLarge(f"{stated_bytes} bytes where {limit_bytes} are allowed")
    most_bytes = min(len(data) * MOST_UNFOLDED[codec], limit_bytes)
    size_bytes = min(max(len(data) * 4, 1 << 12) if stated_bytes is None else stated_bytes, most_bytes)
    while True:
        out = bytearray(size_bytes)
        try:
            used_bytes = into(data, out)
        except cramjam.DecompressionError as error:
            if str(error) != _BUFFER_TOO_SMALL:
                raise BadCompression(str(error)) from None
        else:
            return memoryview(out)[:used_bytes]
        if size_bytes >= most_bytes:
            raise TooLarge(f"more than {most_bytes} bytes")
        size_bytes = min(max(size_bytes * 4, 1 << 12), most_bytes)


_BUFFER_TOO_SMALL = "failed to write whole buffer"


def _decompress_into(into: Callable[..., int], data: Buffer, out: memoryview) -> None:
    try:
        used_bytes = into(data, out)
    except cramjam.DecompressionError as error:
        raise BadCompression(str(error)) from None
    if used_bytes != len(out):
        raise BadCompression(f"{used_bytes} bytes where {len(out)} were announced")


_DECOMPRESS: dict[int, Callable[[Buffer, int], Buffer]] = {
    GZIP: _gunzip,
    SNAPPY: _unsnappy,
    LZ4: _unlz4,
    ZSTD: _unzstd,
}
