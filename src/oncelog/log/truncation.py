"""Cutting a log back to an offset, for a follower whose leader has other records from there on."""

from typing import TYPE_CHECKING

from oncelog.log import snapshots
from oncelog.log.notes import write_start
from oncelog.log.segment import Segment
from oncelog.log.undo import rebuild_producers

if TYPE_CHECKING:
    from oncelog.log.partition import PartitionLog


def truncate(log: "PartitionLog", offset: int) -> int:
    """Drop every batch that holds `offset` or a later one; answers the new end, which lies lower within a batch."""
    offset = max(offset, log.log_start_offset)
    if offset >= log.next_offset:
        return log.next_offset
    number = log.segments.number_of(offset)
    segment = log.segments[number]
    found = segment.find(offset)
    position, new_end = (segment.size_bytes, offset) if found is None else (found[0], min(found[2], offset))
    starts_over = new_end < log.log_start_offset
    if starts_over:  # the batch that holds the log's start goes, so nothing is left
        rebuild_producers(log, new_end)
        number, new_end = -1, log.log_start_offset
        write_start(log.disk, log.folder, new_end)
    # First of all: after a crash in the middle, a recovery point beyond the end would look like damage.
    log.cuts += 1
    log.checkpointer.wait()
    snapshots.drop_beyond(log.disk, log.folder, new_end)
    log.flusher.point_offset = -1
    log.disk.sync_folder(log.folder)
    while len(log.segments) > number + 1:
        log.segments.remove_last()
    log.epochs.cut_end(new_end)
    if starts_over:
        log.segments.add(new_end)
        log.flusher.name_changes += 1
    else:
        _cut(log, segment, position, new_end)
    log.disk.sync_folder(log.folder)  # so that what was cut off does not come back after a power failure
    log.ended_at(new_end)
    if starts_over:
        log.checkpoint(log.now)
    else:
        rebuild_producers(log, new_end)
    return new_end


def _cut(log: "PartitionLog", segment: Segment, position: int, new_end: int) -> None:
    file = log.handles.get(segment.log_path)
    file.truncate(position)
    file.fdatasync()
    segment.index.cut(position)
    segment.max_timestamp_ms = _max_timestamp(segment, position)
    segment.size_bytes, segment.end_offset, segment.next_index_at = position, new_end, 0


def _max_timestamp(segment: Segment, end: int) -> int:
    """Of the batches before `end`."""
    entry = segment.index.at_position(end - 1)
    greatest_ms = entry.max_timestamp_ms
    for _, header in segment.walk(entry.position, end):
        greatest_ms = max(greatest_ms, header.max_timestamp)
    return greatest_ms
