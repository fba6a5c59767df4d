"""Cutting a log back to an offset, for a follower whose leader has other records from there on."""

from oncelog.clock import Now
from oncelog.log import snapshots
from oncelog.log.cleaner_state import cut_state
from oncelog.log.notes import write_start
from oncelog.log.parts import Parts


def truncate(log: Parts, offset: int, now: Now) -> bool:
    """Drop every batch that holds `offset` or a later one. Whether anything was dropped.

    A follower's log may end before its start then, which goes back: its leader has those records in its batches, and
    will tell the start again.
    """
    first_offset = log.segments.first_offset if log.replicated else log.extent.log_start_offset
    offset = max(offset, first_offset)
    if offset >= log.extent.next_offset:
        return False
    number = log.segments.number_of(offset)
    segment = log.segments[number]
    found = segment.find(offset)
    position, new_end = (segment.size_bytes, offset) if found is None else (found[0], min(found[2], offset))
    starts_over = new_end < first_offset
    if starts_over:  # the batch that holds the log's start goes, so nothing is left
        log.stored_producers.rebuild(new_end, now)
        number, new_end = -1, first_offset
    log.extent.begin_cut()
    with log.noting_start:
        if starts_over or new_end < max(log.extent.log_start_offset, log.noted_start):
            write_start(log.disk, log.folder, new_end)
            log.noted_start = new_end
    # First of all: after a crash in the middle, a recovery point beyond the end would look like damage.
    log.checkpointer.wait(log.folder)
    log.flusher.wait_for_note()
    snapshots.drop_beyond(log.disk, log.folder, new_end)
    log.flusher.forget_point()
    log.flusher.forget_notes(new_end)
    log.disk.sync_folder(log.folder)
    log.segments.keep_first(number + 1)
    log.epochs.cut_end(new_end)
    log.aborted.cut_end(new_end)
    if log.replicated:  # elsewhere the end may lie in a gap of compaction, which must be believed
        with log.noting_start:
            cut_state(log.disk, log.folder, new_end)
    if not log.replicated:  # what is appended next is of the epoch that goes on
        log.epochs.begin(log.epochs.current, new_end)
    if starts_over:
        log.segments.add(new_end)
    else:
        segment.cut(position, new_end)
    log.disk.sync_folder(log.folder)  # so that what was cut off does not come back after a power failure
    log.extent.cut_to(new_end, log.segments.active)
    log.stored_producers.end_moved()
    if starts_over:
        log.checkpoint(now)
    else:
        log.stored_producers.rebuild(new_end, now)
    return True
