"""Forgetting old records: by age, by size, and by DeleteRecords. Whole segments go, the oldest first.

Before a segment goes, the new start is on the disk, so the log's start never goes back; and a snapshot of the producers
that is newer than the segment is on the disk, so no live producer is forgotten with its records.
"""

import logging
from typing import TYPE_CHECKING

from oncelog.clock import Now
from oncelog.log import snapshots
from oncelog.log.disk import replace_file
from oncelog.log.names import START_FILE

if TYPE_CHECKING:
    from oncelog.log.partition import PartitionLog

logger = logging.getLogger(__name__)


def retain(log: "PartitionLog", now: Now) -> int:
    """What the settings ask for; answers how many segments went."""
    if log.config.deletes:
        _roll_if_expired(log, now)
        start = max(_start_by_age(log, now), _start_by_size(log))
        if start > log.log_start_offset:
            move_start(log, start, now)
    return remove_below_start(log, now)


def move_start(log: "PartitionLog", offset: int, now: Now) -> None:
    replace_file(log.disk, f"{log.folder}/{START_FILE}", f"{offset}\n".encode())
    log.log_start_offset = offset
    log.epochs.cut_start(offset)


def remove_below_start(log: "PartitionLog", now: Now) -> int:
    gone = 0
    for segment in log.segments.closed:
        if segment.end_offset > log.log_start_offset:
            break
        gone += 1
    if gone:
        _keep_producers(log, log.segments[gone].base_offset, now)
        first, last = log.segments[0].base_offset, log.segments[gone - 1].end_offset
        log.segments.remove_first(gone)
        log.flusher.new_names = True
        logger.info("%s: removed the records from %d to %d", log.folder, first, last)
    return gone


def _roll_if_expired(log: "PartitionLog", now: Now) -> None:
    """An active segment that is wholly too old would otherwise stay until the next append."""
    active, retention_ms = log.segments.active, log.config.retention_ms
    expired = 0 <= retention_ms < now.wall_ms - active.max_timestamp_ms
    if active.size_bytes and active.max_timestamp_ms >= 0 and expired and log.high_watermark == log.next_offset:
        log.roll()


def _start_by_age(log: "PartitionLog", now: Now) -> int:
    start, retention_ms = log.log_start_offset, log.config.retention_ms
    if retention_ms < 0:
        return start
    for segment in log.segments.closed:
        # Without timestamps there is no age: -1 stays, as there is nothing to count it from.
        young = now.wall_ms - segment.max_timestamp_ms <= retention_ms or segment.max_timestamp_ms < 0
        if young or segment.end_offset > log.high_watermark:
            break
        start = max(start, segment.end_offset)
    return start


def _start_by_size(log: "PartitionLog") -> int:
    start, limit_bytes = log.log_start_offset, log.config.retention_bytes
    if limit_bytes < 0:
        return start
    excess_bytes = log.segments.size_bytes - limit_bytes
    for segment in log.segments.closed:
        excess_bytes -= segment.size_bytes
        if excess_bytes < 0 or segment.end_offset > log.high_watermark:
            break
        start = max(start, segment.end_offset)
    return start


def _keep_producers(log: "PartitionLog", first_offset: int, now: Now) -> None:
    """A snapshot at or above the first offset that stays, unless there is one."""
    stored = snapshots.stored_offsets(log.disk, log.folder)
    if not stored or stored[-1] < first_offset:
        log.checkpoint(now)
