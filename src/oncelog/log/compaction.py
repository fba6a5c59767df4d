"""Compaction: of each key only the last record stays, and of each live producer the header of its last batch.

A job has three parts. `begin` on the appending thread chooses closed segments below the recovery point. `run`, on any
thread, reads them and writes cleaned ones beside them. `finish`, on the appending thread again, swaps them in. The two
on the appending thread go in steps: what they yield waits for the disk, is run by any thread, and then they go on.

Offsets stay. A batch keeps its numbers with fewer records in it, so followers and a start find the producers as they
were. A tombstone stays for `delete.retention.ms` after the first pass that met it, so that every reader meets it once;
so does the marker of a transaction of which nothing is left. What was aborted goes; what is still open waits.
"""

import logging
from dataclasses import dataclass, field
from functools import partial
from threading import Event

from oncelog.clock import Now
from oncelog.log import snapshots
from oncelog.log.cleaner_state import CleanerState, load_state, save_state
from oncelog.log.cleaning import Cleaner, KeyMap, Rules, Seen, Stopped
from oncelog.log.compaction_swap import decide_swap, finish_swap
from oncelog.log.disk import Disk, File
from oncelog.log.errors import LogStorageError
from oncelog.log.handles import Handles
from oncelog.log.names import CLEANED, cleaned_path
from oncelog.log.parts import Parts
from oncelog.log.segment import Segment
from oncelog.log.work_steps import Steps

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Group:
    """Segments that become one."""

    segments: list[Segment]
    end_offset: int  # as it was: a cut may move that of the last segment
    cleaned: bool = False

    @property
    def base_offset(self) -> int:
        return self.segments[0].base_offset


@dataclass(slots=True)
class CompactionJob:
    disk: Disk
    folder: str
    groups: list[Group]
    rules: Rules
    state: CleanerState
    cuts: int
    interval_bytes: int
    now: Now
    end_offset: int = 0  # up to where keys were looked at
    damage: str = ""  # what is stored is not what was written
    error: OSError | None = None
    _stop: Event = field(default_factory=Event)

    def stop(self) -> None:
        """`run` ends before its next batch and leaves nothing behind, and `finish` does nothing. For any thread."""
        self._stop.set()

    def run(self) -> None:
        """Never raises: `finish` tells what went wrong."""
        handles = Handles(self.disk, limit=16)
        keys = KeyMap(self.rules.key_limit, self._stop)
        try:
            segments = [segment for group in self.groups for segment in group.segments]
            seen = Seen(self.rules, handles, segments, self._stop)
            self.end_offset = keys.fill(handles, segments, self.state.dirty_offset, seen)
            cleaner = Cleaner(handles, self.folder, self.rules, keys, seen, self.interval_bytes, self._stop)
            for group in self.groups:
                if group.base_offset < self.end_offset:
                    cleaner.clean(group.segments, group.base_offset, group.end_offset)
                    group.cleaned = True
        except LogStorageError as error:
            self.damage = str(error)
        except OSError as error:
            self.error = error
        except Stopped:
            self._leave_nothing()
        finally:
            handles.close()
            keys.forget()

    @property
    def is_stopped(self) -> bool:
        return self._stop.is_set()

    def _leave_nothing(self) -> None:
        try:
            _discard(self)
        except OSError as error:
            logger.warning("%s keeps files of a compaction until the next start: %s", self.folder, error)


def begin(log: Parts, now: Now) -> Steps[CompactionJob | None]:
    if not log.config.compacts:
        return None
    state = load_state(log.disk, log.folder)
    segments = _cleanable(log, now)
    if not segments or not _is_worth_it(log, segments, state, now):
        return None
    if _is_ahead_of_the_point(log, segments):
        yield log.begin_checkpoint(now)
        if log.health.offline is not None or log.health.closed:
            return None
        segments = _cleanable(log, now)  # retention may have removed some meanwhile, and others been closed
        if not segments or _is_ahead_of_the_point(log, segments):
            return None
    # Of what was aborted and ended before, the pass before has left no record; this one may remove the markers.
    log.aborted.drop_below(state.dirty_offset)
    rules = Rules(
        live_pids=log.producers.live_pids(now),
        tombstone_ms=log.config.delete_retention_ms,
        first_pass_ms=state.first_pass_ms,
        key_limit=log.config.key_map_limit,
        wall_ms=now.wall_ms,
        ended_behind=tuple(log.aborted.between(segments[-1].end_offset, segments[-1].end_offset)),
    )
    groups = _grouped(segments, log.config.segment_bytes)
    return CompactionJob(
        log.disk, log.folder, groups, rules, state, log.extent.cuts, log.config.least_interval_bytes, now
    )


def _is_ahead_of_the_point(log: Parts, segments: list[Segment]) -> bool:
    newest = next(snapshots.newest_first(log.disk, log.folder), None)
    return newest is None or newest.point.base_offset < segments[-1].end_offset


def finish(log: Parts, job: CompactionJob) -> Steps[None]:
    if job.damage:
        log.health.go_offline(f"compaction found damage below the recovery point: {job.damage}")
    newest = next(snapshots.newest_first(log.disk, log.folder), None)
    if newest is None or job.damage or job.error is not None or _has_changed(log, job, job.groups):
        _discard(job)
        if job.error is not None:
            raise job.error
        return
    # Their recovery points name positions in segments that are about to change.
    kept = (log.segments[0].base_offset, log.flusher.beginning)
    snapshots.drop_between(log.disk, log.folder, kept, newest.point.offset)
    before = log.segments.size_bytes
    # Before the swaps: it also says that offsets may have gaps from here on. What is waited for aside is no more to be
    # waited for in the midst of a swap.
    job.state.passes_over(job.end_offset, job.now.wall_ms)
    save = partial(_save, log, job)
    yield save
    for number, group in enumerate(job.groups):
        if _has_changed(log, job, job.groups[number:]):
            _discard(job)
            return
        if group.cleaned:
            removed = _held(log, group)
            try:
                _swap(log, group)
            except (OSError, LogStorageError):
                _close_all(removed)
                raise
            yield partial(_close_all, removed)
            yield partial(log.disk.sync_folder, log.folder)
    job.state.dirty_offset = job.end_offset
    yield save
    logger.info(
        "%s: compacted up to %d, %d bytes became %d", log.folder, job.end_offset, before, log.segments.size_bytes
    )


def _save(log: Parts, job: CompactionJob) -> None:
    """Not where the log was let go: its folder may be another's by now. Nor where it was cut back meanwhile."""
    with log.noting_start:
        if not log.health.closed and job.cuts == log.extent.cuts:
            save_state(log.disk, log.folder, job.state)


def _has_changed(log: Parts, job: CompactionJob, groups: list[Group]) -> bool:
    """Whether what is still to be swapped is no longer what was cleaned."""
    present = {segment.base_offset: segment for segment in log.segments.closed}
    is_same = all(present.get(one.base_offset) is one for group in groups for one in group.segments)
    is_gone = log.health.offline is not None or log.health.closed
    return job.cuts != log.extent.cuts or not is_same or job.is_stopped or is_gone


def _held(log: Parts, group: Group) -> list[File]:
    """The old files, open: the room of a large one is given back when its last user goes, which takes a while."""
    files: list[File] = []
    try:
        for segment in group.segments:
            files.append(log.disk.open(segment.log_path))
    except OSError as error:
        logger.debug("%s: old segments are given back at once: %s", log.folder, error)
    return files


def _close_all(files: list[File]) -> None:
    for file in files:
        file.close()


def _swap(log: Parts, group: Group) -> None:
    for segment in group.segments:
        segment.forget_handles()
    try:
        decide_swap(log.disk, log.folder, group.base_offset, group.end_offset)
        finish_swap(log.disk, log.folder, group.base_offset, group.end_offset)
        log.segments.replace(group.segments, closed_segment(log.handles, log.disk, log.folder, group))
    except (OSError, LogStorageError) as error:
        if not log.disk.exists(cleaned_path(group.segments[0].log_path, group.end_offset, CLEANED)):
            # The state in memory does not match the files any more.
            log.health.go_offline(
                f"a compaction of {log.folder} stopped half-way, the next start goes on with it: {error}",
                readable=False,
            )
        raise


def closed_segment(handles: Handles, disk: Disk, folder: str, group: Group) -> Segment:
    segment = Segment(handles, folder, group.base_offset)
    segment.has_gaps = True
    segment.adopt_index(disk.size(segment.index.path))
    return segment


def _discard(job: CompactionJob) -> None:
    for group in job.groups:
        segment = group.segments[0]
        for path in (segment.log_path, segment.index.path):
            leftover = cleaned_path(path, group.end_offset, CLEANED)
            if job.disk.exists(leftover):
                job.disk.unlink(leftover)


def _cleanable(log: Parts, now: Now) -> list[Segment]:
    found = []
    stable_offset = log.stable_offset
    for segment in log.segments.closed:
        least_ms = log.config.min_compaction_lag_ms
        too_young = least_ms > 0 and now.wall_ms - segment.max_timestamp_ms < least_ms
        if segment.end_offset > stable_offset or too_young:
            break
        found.append(segment)
    return found


def _is_worth_it(log: Parts, segments: list[Segment], state: CleanerState, now: Now) -> bool:
    dirty = [segment for segment in segments if segment.end_offset > state.dirty_offset]
    if not dirty:
        return False
    if now.wall_ms - dirty[0].max_timestamp_ms > log.config.max_compaction_lag_ms:
        return True
    total_bytes = sum(segment.size_bytes for segment in segments)
    return sum(segment.size_bytes for segment in dirty) >= log.config.min_cleanable_dirty_ratio * total_bytes


def _grouped(segments: list[Segment], limit_bytes: int) -> list[Group]:
    groups: list[Group] = []
    size_bytes = 0
    for segment in segments:
        if groups and size_bytes + segment.size_bytes <= limit_bytes:
            groups[-1].segments.append(segment)
            groups[-1].end_offset = segment.end_offset
            size_bytes += segment.size_bytes
        else:
            groups.append(Group([segment], segment.end_offset))
            size_bytes = segment.size_bytes
    return groups
