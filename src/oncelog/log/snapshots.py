"""Snapshots: `<offset>.producers`, a recovery point and the producers as they were there.

    magic "OLSN" | version u16 | 2 reserved bytes | crc32c u32 of the rest
    offset i64           everything below it is on the disk, log and index
    base offset i64      of the segment that holds it
    position i64         in that segment's file
    index entries i64    of that segment, up to there
    max timestamp i64    of that segment, up to there
    sections, each       kind u16 | 2 reserved bytes | size u32 | what it holds

    1  the leader epochs that began below it (see `epochs`)
    2  the producer map, as it encodes itself
    5  i64: where the log might begin, because the segments below were removed or about to be
    6  i64: the high watermark, or one that was passed already
    7  i64: how many transactions were aborted in all, where there were some
    8  u32: the CRC of the batch before the recovery point, where it is known: another log may end there, too

A kind below 0x8000 that is not known is passed over. One from 0x8000 on changes what the others mean: then the snapshot
is not used, and the log is read instead. Version 1 had no sections: the two followed one another.

A start reads only what lies behind the newest snapshot. One is written after the log, so it never knows of a batch that
a power failure took; where the newest is damaged, an older one and the log tell the same.
"""

import struct
from bisect import bisect_right
from collections.abc import Collection, Iterator
from typing import NamedTuple

from crc32c import crc32c

from oncelog.log.disk import Disk, read_whole, replace_file
from oncelog.log.epochs import LeaderEpochs
from oncelog.log.errors import NO_DESCRIPTORS
from oncelog.log.names import SNAPSHOT, offsets_of, snapshot_path
from oncelog.log.verdict import NO_CRC

_HEAD = struct.Struct(">4sHxxI")
_POINT = struct.Struct(">qqqqq")
_MAGIC = b"OLSN"
_VERSION = 2
_SECTION = struct.Struct(">HxxI")
_OFFSET = struct.Struct(">q")
_CRC = struct.Struct(">I")
_EPOCHS, _PRODUCERS, _BEGINNING, _HIGH_WATERMARK, _ABORTED, _LAST_CRC = 1, 2, 5, 6, 7, 8
_MUST_BE_KNOWN = 0x8000
KEPT = 2  # besides the newest in each segment


class RecoveryPoint(NamedTuple):
    offset: int
    base_offset: int
    position: int
    index_entries: int
    max_timestamp_ms: int


class Snapshot(NamedTuple):
    point: RecoveryPoint
    epochs: LeaderEpochs
    producers: bytes
    beginning: int = -1  # where the log might begin; -1 in those of earlier versions, which do not say
    high_watermark: int = 0  # 0 in those of earlier versions
    aborted: int = 0  # transactions
    last_crc: int = NO_CRC  # of the batch before the recovery point


def encode(snapshot: Snapshot) -> bytes:
    sections = [
        (_EPOCHS, snapshot.epochs.encode()),
        (_PRODUCERS, snapshot.producers),
        (_BEGINNING, _OFFSET.pack(snapshot.beginning)),
        (_HIGH_WATERMARK, _OFFSET.pack(snapshot.high_watermark)),
    ]
    if snapshot.aborted:
        sections.append((_ABORTED, _OFFSET.pack(snapshot.aborted)))
    if snapshot.last_crc != NO_CRC:
        sections.append((_LAST_CRC, _CRC.pack(snapshot.last_crc)))
    parts = (part for kind, held in sections for part in (_SECTION.pack(kind, len(held)), held))
    body = b"".join((_POINT.pack(*snapshot.point), *parts))
    return _HEAD.pack(_MAGIC, _VERSION, crc32c(body)) + body


def write_snapshot(disk: Disk, folder: str, snapshot: Snapshot) -> None:
    replace_file(disk, snapshot_path(folder, snapshot.point.offset), encode(snapshot))


def read_snapshot(disk: Disk, folder: str, offset: int) -> Snapshot | None:
    """None when it is damaged, or holds what this version does not know."""
    try:
        data = read_whole(disk, snapshot_path(folder, offset))
    except OSError as error:
        if error.errno in NO_DESCRIPTORS:
            raise  # it may be quite all right
        return None
    snapshot = decode(data)
    return snapshot if snapshot is not None and snapshot.point.offset == offset else None


def decode(data: bytes) -> Snapshot | None:
    """None for what was not written here."""
    try:
        return _decoded(data)
    except struct.error:
        return None


def _decoded(data: bytes) -> Snapshot | None:
    if len(data) < _HEAD.size + _POINT.size:
        return None
    magic, version, crc = _HEAD.unpack_from(data)
    if magic != _MAGIC or version not in (1, _VERSION) or crc32c(memoryview(data)[_HEAD.size :]) != crc:
        return None
    point = RecoveryPoint._make(_POINT.unpack_from(data, _HEAD.size))
    body = data[_HEAD.size + _POINT.size :]
    if version == 1:
        epochs = LeaderEpochs.decode(body)
        return Snapshot(point, epochs, body[epochs.encoded_bytes :])
    held = _sections(body)
    if held is None or not {_EPOCHS, _PRODUCERS} <= held.keys():
        return None
    (beginning,) = _OFFSET.unpack(held[_BEGINNING]) if _BEGINNING in held else (-1,)
    (high_watermark,) = _OFFSET.unpack(held[_HIGH_WATERMARK]) if _HIGH_WATERMARK in held else (0,)
    (aborted,) = _OFFSET.unpack(held[_ABORTED]) if _ABORTED in held else (0,)
    (last_crc,) = _CRC.unpack(held[_LAST_CRC]) if _LAST_CRC in held else (NO_CRC,)
    epochs = LeaderEpochs.decode(held[_EPOCHS])
    return Snapshot(point, epochs, held[_PRODUCERS], beginning, high_watermark, aborted, last_crc)


def _sections(body: bytes) -> dict[int, bytes] | None:
    """The sections by their kinds. None where one must be known and is not."""
    held: dict[int, bytes] = {}
    at = 0
    while at < len(body):
        kind, size_bytes = _SECTION.unpack_from(body, at)
        if kind >= _MUST_BE_KNOWN:
            return None
        at += _SECTION.size
        held[kind] = body[at : at + size_bytes]
        at += size_bytes
    return held


def stored_offsets(disk: Disk, folder: str) -> list[int]:
    """The offsets of all snapshots, damaged ones too: even the name of one says that the log was on the disk up to
    there."""
    return offsets_of(disk.listdir(folder), SNAPSHOT)


def newest_first(disk: Disk, folder: str, up_to_offset: int = 2**63 - 1) -> Iterator[Snapshot]:
    """Every good snapshot that holds nothing from `up_to_offset` on."""
    for offset in reversed(stored_offsets(disk, folder)):
        if offset <= up_to_offset:
            snapshot = read_snapshot(disk, folder, offset)
            if snapshot is not None:
                yield snapshot


def drop_beyond(disk: Disk, folder: str, next_offset: int) -> None:
    """Remove snapshots beyond the log's end: they name batches that are no longer there."""
    for offset in stored_offsets(disk, folder):
        if offset > next_offset:
            disk.unlink(snapshot_path(folder, offset))


def drop_old(disk: Disk, folder: str, segment_bases: list[int]) -> None:
    """Keep the newest two, the newest in each segment, and those at a segment's beginning.

    Cutting the log back needs one from before the cut; what the one at the log's beginning knows is nowhere else, and
    it says that the log may begin there. Retention may have moved that beginning since the bases were asked for.
    """
    offsets = stored_offsets(disk, folder)
    newest_in_segment = {bisect_right(segment_bases, offset): offset for offset in offsets}
    keep = {*offsets[-KEPT:], *newest_in_segment.values(), *segment_bases}
    for offset in offsets:
        if offset not in keep:
            disk.unlink(snapshot_path(folder, offset))


def drop_between(disk: Disk, folder: str, kept: Collection[int], offset: int) -> None:
    """Snapshots go before a compaction: the positions that they name within its segments are about to change."""
    for stored in stored_offsets(disk, folder):
        if stored not in kept and stored < offset:
            disk.unlink(snapshot_path(folder, stored))
