"""Forgetting old records: by age, by size, and by DeleteRecords. Whole segments go, the oldest first.

The log's start moves only after the disk has taken note: a start at a segment's beginning is noted by what is left,
any other in the file `log-start`. Before a segment goes, a snapshot of the producers that is newer than its last batch
is on the disk, so no live producer is forgotten with its records. All of it works on a full disk: what else would make
room?

It is done in `steps`: between two of them the log may be appended to, cut back, compacted, or lose segments to another
who does the same.
"""

import errno
import logging
from functools import partial

from oncelog.clock import Now
from oncelog.log import snapshots
from oncelog.log.notes import write_start
from oncelog.log.parts import Parts
from oncelog.log.segment import Segment
from oncelog.log.work_steps import Steps

logger = logging.getLogger(__name__)


def retaining(log: Parts, now: Now) -> Steps[None]:
    """Remove the records that the settings say are over."""
    if log.config.deletes:
        _roll_if_expired(log, now)
        yield from _removing_below(log, max(_start_by_age(log, now), _start_by_size(log)), now)


def deleting_before(log: Parts, offset: int, now: Now) -> Steps[None]:
    cuts = log.extent.cuts
    yield from _removing_below(log, offset, now)
    if offset > log.extent.log_start_offset and cuts == log.extent.cuts:
        if not log.replicated and max(log.flusher.point_offset, log.extent.flushed_offset) < offset:
            yield log.flusher.flush  # or a power failure takes what stands before the start, and with it who wrote it
        yield partial(_note_start, log, cuts, offset)
        if cuts == log.extent.cuts:  # else it was cut back meanwhile, or has begun anew
            _start_at(log, offset)


def _removing_below(log: Parts, offset: int, now: Now) -> Steps[None]:
    """Segments that hold nothing from `offset` on."""
    cuts = log.extent.cuts
    gone = [segment for segment in log.segments.closed if segment.end_offset <= offset]
    if not gone or not (yield from _keeping_producers(log, gone, now)):
        return
    removed = 0
    # A log that was cut back goes on in the last of the segments that stayed.
    while removed < len(gone) and cuts == log.extent.cuts and _are_first(log, gone[removed : removed + 1]):
        log.segments.remove_first(1)
        removed += 1
        yield None
    if not removed:
        return
    yield partial(log.disk.sync_folder, log.folder)
    end_offset = gone[removed - 1].end_offset
    _start_at(log, min(end_offset, log.segments.first_offset))  # less where it has begun anew meanwhile
    logger.info("%s: removed the records from %d to %d", log.folder, gone[0].base_offset, end_offset)


def _are_first(log: Parts, segments: list[Segment]) -> bool:
    return not log.health.closed and log.segments.first(len(segments)) == segments


def _note_start(log: Parts, cuts: int, offset: int) -> None:
    """One thread at a time, and never back; nor where the log was cut since, or let go: its folder may be another's by
    now."""
    with log.noting_start:
        if offset > log.noted_start and cuts == log.extent.cuts and not log.health.closed:
            write_start(log.disk, log.folder, offset)
            log.noted_start = offset


def _start_at(log: Parts, offset: int) -> None:
    if offset > log.extent.log_start_offset:
        log.extent.start_at(offset)
        log.aborted.forget_below(offset)
        if log.replicated:
            log.epochs.forget_below(log.segments.first_offset)
        else:
            log.epochs.cut_start(offset)


def _roll_if_expired(log: Parts, now: Now) -> None:
    """An active segment that is wholly too old would otherwise stay until the next append."""
    active, retention_ms = log.segments.active, log.config.retention_ms
    expired = 0 <= retention_ms < now.wall_ms - active.max_timestamp_ms
    if (
        active.size_bytes
        and active.max_timestamp_ms >= 0
        and expired
        and log.extent.high_watermark == log.extent.next_offset
    ):
        log.segments.roll()


def _start_by_age(log: Parts, now: Now) -> int:
    start, retention_ms = log.extent.log_start_offset, log.config.retention_ms
    if retention_ms < 0:
        return start
    for segment in log.segments.closed:
        # Without timestamps there is no age: -1 stays, as there is nothing to count it from.
        is_young = not segment.is_older(now.wall_ms - retention_ms) or segment.max_timestamp_ms < 0
        if is_young or segment.end_offset > log.extent.high_watermark:
            break
        start = max(start, segment.end_offset)
    return start


def _start_by_size(log: Parts) -> int:
    start, limit_bytes = log.extent.log_start_offset, log.config.retention_bytes
    if limit_bytes < 0:
        return start
    excess_bytes = log.segments.size_bytes - limit_bytes
    for segment in log.segments.closed:
        excess_bytes -= segment.size_bytes
        if excess_bytes < 0 or segment.end_offset > log.extent.high_watermark:
            break
        start = max(start, segment.end_offset)
    return start


def _keeping_producers(log: Parts, gone: list[Segment], now: Now) -> Steps[bool]:
    """A snapshot at the first offset that stays: a reader that begins there, such as a log cut back, knows them all.
    Whether it is there, and what goes still stands first."""
    cuts = log.extent.cuts
    yield log.flusher.flush
    if not _are_first(log, gone):
        return False
    snapshot = yield from _snapshot_behind(log, gone, now)
    if snapshot is None:
        return False
    write = partial(log.flusher.note_beginning, snapshot, cuts)
    try:
        yield write
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        if not _are_first(log, gone):
            return False
        # The indexes of what is about to go make room, and can be made anew should it stay after all.
        for segment in gone:
            segment.index.cut_to_entries(0)
        yield write
    return _are_first(log, gone)


def _snapshot_behind(log: Parts, gone: list[Segment], now: Now) -> Steps[snapshots.Snapshot | None]:
    """A snapshot at the beginning of the segment that follows; None where others have taken them away meanwhile."""
    producers = yield from log.stored_producers.encoding_end_of(gone, partial(_are_first, log, gone), now)
    if producers is None:
        return None
    offset = gone[-1].end_offset
    epochs = log.epochs.copy()
    epochs.cut_end(offset)
    point, total = snapshots.RecoveryPoint(offset, offset, 0, 0, -1), log.aborted.total_below(offset)
    return snapshots.Snapshot(point, epochs, producers, offset, aborted=total)
