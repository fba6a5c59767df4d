"""Cutting a log back to an offset, for a follower whose leader has other records from there on."""

from typing import TYPE_CHECKING

from oncelog.log import snapshots
from oncelog.log.segment import Segment
from oncelog.log.undo import rebuild_producers

if TYPE_CHECKING:
    from oncelog.log.partition import PartitionLog


def truncate(log: "PartitionLog", offset: int) -> int:
    """Drop every batch that holds `offset` or a later one; answers the new end, which lies lower within a batch."""
    offset = max(offset, log.segments[0].base_offset)
    if offset >= log.next_offset:
        return log.next_offset
    number = log.segments.number_of(offset)
    segment = log.segments[number]
    found = segment.find(offset)
    position, new_end = (segment.size_bytes, offset) if found is None else (found[0], min(found[2], offset))
    # First of all: after a crash in the middle, a recovery point beyond the end would look like damage.
    log.cuts += 1
    log.checkpointer.wait()
    snapshots.drop_beyond(log.disk, log.folder, new_end)
    log.flusher.point_offset = -1
    log.disk.sync_folder(log.folder)
    while len(log.segments) > number + 1:
        log.segments.remove_last()
    log.handles.get(segment.log_path).truncate(position)
    segment.index.cut(position)
    segment.max_timestamp_ms = _max_timestamp(segment, position)
    segment.size_bytes, segment.end_offset, segment.next_index_at = position, new_end, 0
    log.epochs.cut_end(new_end)
    log.ended_at(new_end)
    rebuild_producers(log, new_end)
    return new_end


def _max_timestamp(segment: Segment, end: int) -> int:
    """Of the batches before `end`."""
    entry = segment.index.at_position(end - 1)
    greatest_ms = entry.max_timestamp_ms
    for _, header in segment.walk(entry.position, end):
        greatest_ms = max(greatest_ms, header.max_timestamp)
    return greatest_ms
