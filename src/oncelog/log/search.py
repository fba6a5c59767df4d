"""Finding the next whole batch where the chain of lengths is broken: by its magic, a likely header, and its CRC."""

import struct
from collections.abc import Sequence

from oncelog.log.disk import Disk, File
from oncelog.records.header import HEADER_BYTES, LENGTH_PREFIX_BYTES, MAGIC, body_crc, read_header

CHUNK_BYTES = 4 * 2**20
# Bytes of a record may look like headers, thousands of them, each with a length to check. Beyond that many bytes of
# CRCs it is not decided any more: then the first that looks like one counts.
MOST_CHECKED_BYTES = 2**32
_MAGIC_AT = 16
_MAGIC_BYTE = bytes([MAGIC])
_offset_and_length_at = struct.Struct(">qi").unpack_from


def first_whole(file: File, position: int, size_bytes: int, least_offset: int) -> int | None:
    """The position of the first whole batch that stands at `position` or behind it and has no smaller offset."""
    checked_bytes = 0
    while position + HEADER_BYTES <= size_bytes:
        chunk = file.pread(min(CHUNK_BYTES, size_bytes - position), position)
        at = chunk.find(_MAGIC_BYTE, _MAGIC_AT) - _MAGIC_AT
        while 0 <= at <= len(chunk) - HEADER_BYTES:
            base_offset, length = _offset_and_length_at(chunk, at)
            batch_bytes = length + LENGTH_PREFIX_BYTES
            if base_offset >= least_offset and HEADER_BYTES <= batch_bytes <= size_bytes - position - at:
                header = read_header(chunk, at)
                if header.last_offset_delta >= 0 and header.leader_epoch >= 0:
                    batch = file.pread(batch_bytes, position + at)
                    checked_bytes += batch_bytes
                    if body_crc(batch, 0, batch_bytes) == header.crc or checked_bytes > MOST_CHECKED_BYTES:
                        return position + at
            at = chunk.find(_MAGIC_BYTE, at + _MAGIC_AT + 1) - _MAGIC_AT
        position += max(1, len(chunk) - HEADER_BYTES + 1)
    return None


def whole_behind(disk: Disk, paths: Sequence[str], position: int, offset: int) -> str:
    """The place of something whole behind what is not: in the first file from `position` on, or in a later one."""
    for path in paths:
        file = disk.open(path)
        try:
            found = first_whole(file, position, file.size(), offset)
        finally:
            file.close()
        if found is not None:
            return f"{path.rpartition('/')[2]} at byte {found}"
        position = 0
    return ""
