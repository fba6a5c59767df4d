"""Snapshots of the producer map in a partition's folder: `<offset>.producers`.

    magic "OLSN" | version u16 | 2 reserved bytes | offset i64 | crc32c u32 of the rest | the map, as it encodes itself

A snapshot holds the map after every batch below its offset. The log up to there is on the disk before the snapshot is
written, so a snapshot never knows of a batch that a power failure took.
"""

import struct
from bisect import bisect_right
from collections.abc import Iterator

from crc32c import crc32c

from oncelog.log.disk import Disk, read_whole, replace_file
from oncelog.log.names import SNAPSHOT, offsets_of, snapshot_path

_HEAD = struct.Struct(">4sHxxqI")
_MAGIC = b"OLSN"
_VERSION = 1
KEPT = 2  # besides the newest in each segment


def write_snapshot(disk: Disk, folder: str, offset: int, data: bytes) -> None:
    head = _HEAD.pack(_MAGIC, _VERSION, offset, crc32c(data))
    replace_file(disk, snapshot_path(folder, offset), head + data)


def read_snapshot(disk: Disk, folder: str, offset: int) -> bytes | None:
    """None when it is damaged: an older one and the log tell the same."""
    try:
        data = read_whole(disk, snapshot_path(folder, offset))
    except OSError:
        return None
    if len(data) < _HEAD.size:
        return None
    magic, version, stated_offset, crc = _HEAD.unpack_from(data)
    body = data[_HEAD.size :]
    whole = (magic, version, stated_offset) == (_MAGIC, _VERSION, offset) and crc32c(body) == crc
    return body if whole else None


def newest_first(disk: Disk, folder: str, up_to_offset: int) -> Iterator[tuple[int, bytes]]:
    """Every good snapshot that holds nothing from `up_to_offset` on."""
    for offset in reversed(offsets_of(disk.listdir(folder), SNAPSHOT)):
        if offset <= up_to_offset:
            data = read_snapshot(disk, folder, offset)
            if data is not None:
                yield offset, data


def drop_beyond(disk: Disk, folder: str, next_offset: int) -> None:
    """What lies beyond the log's end tells of batches that are no longer there."""
    for offset in offsets_of(disk.listdir(folder), SNAPSHOT):
        if offset > next_offset:
            disk.unlink(snapshot_path(folder, offset))


def drop_old(disk: Disk, folder: str, segment_bases: list[int]) -> None:
    """Keep the newest two, and the newest within each segment: cutting the log back needs one from before the cut."""
    offsets = offsets_of(disk.listdir(folder), SNAPSHOT)
    newest_in_segment = {bisect_right(segment_bases, offset): offset for offset in offsets}
    keep = {*offsets[-KEPT:], *newest_in_segment.values()}
    for offset in offsets:
        if offset not in keep:
            disk.unlink(snapshot_path(folder, offset))
