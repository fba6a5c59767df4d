"""Bringing one partition to the disk, and moving its recovery point. What waits for the disk may be any thread."""

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from oncelog.clock import Now
from oncelog.log.aborted import AbortedTransactions
from oncelog.log.disk import Disk
from oncelog.log.epochs import LeaderEpochs
from oncelog.log.errors import NO_DESCRIPTORS, LogStorageError
from oncelog.log.extent import Extent
from oncelog.log.health import Health
from oncelog.log.names import FLUSHED_FILE, WRITTEN_FILE
from oncelog.log.notes import write_flushed, write_written
from oncelog.log.segments import Segments
from oncelog.log.snapshots import RecoveryPoint, Snapshot, drop_old, write_snapshot
from oncelog.log.unsynced import Unsynced
from oncelog.log.verdict import Written
from oncelog.producers import ProducerMap

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class FlushPlan:
    """The order of the appending thread to the thread that waits for the disk."""

    flusher: "Flusher"
    folder: str
    snapshot: Snapshot
    log_path: str
    beside: tuple[str, ...]  # its index, and what else is made of the log
    segment_bases: list[int]
    still_holds: Callable[[], bool]  # False once the log was cut back or closed

    def sync(self) -> None:
        self.flusher.sync(self.log_path, *self.beside)

    def write_snapshot(self) -> None:
        self.flusher.move_point(self.snapshot, self.segment_bases)

    def failed(self, error: OSError) -> None:
        self.flusher.failed(error)


class Flusher:
    def __init__(
        self,
        disk: Disk,
        folder: str,
        unsynced: Unsynced,
        segments: Segments,
        extent: Extent,
        epochs: LeaderEpochs,
        producers: ProducerMap,
        health: Health,
        point_offset: int,
        flushed_offset: int,
        aborted: AbortedTransactions,
    ) -> None:
        self._disk = disk
        self.folder = folder
        self._unsynced = unsynced
        self._segments = segments
        self._extent = extent
        self._epochs = epochs
        self._producers = producers
        self._health = health
        self._aborted = aborted
        self.point_offset = point_offset  # where the newest recovery point stands; -1 where there is none
        self._moving = threading.Lock()
        self.beginning = -1  # the offset of the last snapshot that lets the log begin there
        self._noting = threading.Lock()
        self._noted_offset = flushed_offset
        self._durably_noted_offset = -1
        self._written_offset = point_offset  # up to there the next start knows how far the log was

    def sync(self, active_path: str, *also: str) -> None:
        self._unsynced.sync(active_path, *also)

    def flush(self, *, notes: bool = False) -> None:
        """Wait until everything committed before this call is on the disk. From any thread.

        `notes`: the next start shall know, because somebody is told that it is there.
        """
        (end, cuts), active = self._extent.captured(), self._segments.active
        try:
            self.sync(active.log_path)
        except OSError as error:
            self.failed(error)
            raise LogStorageError(f"{self.folder}: {error}") from error
        if notes:
            self._note_flushed(end, cuts, active.base_offset)
        self._extent.flushed(end.offset, cuts)

    def _note_flushed(self, flushed: Written, cuts: int, active_base: int) -> None:
        with self._noting:
            if flushed.offset <= self._noted_offset or cuts != self._extent.cuts or self._health.closed:
                return  # another log may be in the folder by now
            durable = self._durably_noted_offset <= max(self.point_offset, active_base)
            try:
                write_flushed(self._disk, self.folder, flushed, durable=durable)
            except OSError as error:  # an older one that stays is true as well, and half a one counts as none
                logger.warning("%s: cannot note what is flushed: %s", self.folder, error)
                return
            self._noted_offset = flushed.offset
            if durable:
                self._durably_noted_offset = flushed.offset

    def begin_note(self) -> Callable[[], None] | None:
        """None where the log has not grown since. On the appending thread. The answer notes how far it is, and may be
        called by any thread."""
        active, offset, cuts = self._segments.active, self._extent.next_offset, self._extent.cuts
        if offset <= self._written_offset or not active.size_bytes:
            return None
        written = Written(offset, active.base_offset, active.size_bytes, active.last_crc)
        return partial(self._note_written, written, cuts)

    def _note_written(self, written: Written, cuts: int) -> None:
        with self._noting:
            if cuts != self._extent.cuts or self._health.closed:
                return
            try:
                write_written(self._disk, self.folder, written)
            except OSError:
                # A full disk: appends say what there is to say. The older note may be gone, as this one is written over
                # it: half a one counts as none, by its sum, until the next try.
                return
            self._written_offset = written.offset

    @property
    def is_noting(self) -> bool:
        return self._noting.locked() or self._moving.locked()

    def wait_for_note(self) -> None:
        with self._noting, self._moving:
            return

    def forget_notes(self, end_offset: int) -> None:
        """The notes go before a cut, once `begin_cut` has been called. Their folder is brought to the disk by the
        caller.

        `end_offset`: after it. That may lie in a gap behind the last batch, so it is not noted.
        """
        with self._noting:
            for name in (FLUSHED_FILE, WRITTEN_FILE):
                if self._disk.exists(f"{self.folder}/{name}"):
                    self._disk.unlink(f"{self.folder}/{name}")
            self._noted_offset = self._written_offset = end_offset
            self._durably_noted_offset = -1

    def failed(self, error: OSError) -> None:
        """Nobody knows after a failed flush what is on the disk, and the next one would not tell: no more appends.

        Where not even a file could be opened, nothing was asked of the disk, and the next flush does it all.
        """
        if error.errno in NO_DESCRIPTORS:
            logger.warning("%s is not brought to the disk yet: %s", self.folder, error)
            return
        self._health.go_offline(f"{self.folder} cannot be brought to the disk: {error}")

    def begin(self, now: Now) -> FlushPlan:
        """The plan that moves the recovery point up to here. On the appending thread, with nothing staged."""
        self._health.check()
        active, cuts = self._segments.active, self._extent.cuts
        for segment in self._segments:
            if segment.index.has_unwritten:
                try:
                    segment.index.write()
                except OSError as error:  # a full disk: a start makes anew what is missing
                    logger.warning("%s: %s", segment.index.path, error)
        self._aborted.write()
        aborted_path = (self._aborted.path,) if self._aborted else ()
        point = RecoveryPoint(
            self._extent.next_offset,
            active.base_offset,
            active.size_bytes,
            active.index.stored_entries,
            active.max_timestamp_ms,
        )
        return FlushPlan(
            flusher=self,
            folder=self.folder,
            snapshot=Snapshot(
                point,
                self._epochs.copy(),
                self._producers.encode(now),
                self._segments.first_offset,
                self._extent.high_watermark,
                self._aborted.total,
                active.last_crc,
            ),
            log_path=active.log_path,
            beside=(active.index.path, *aborted_path),
            segment_bases=self._segments.bases,
            still_holds=lambda: cuts == self._extent.cuts and not self._health.closed,
        )

    def move_point(self, snapshot: Snapshot, segment_bases: list[int]) -> None:
        with self._moving:
            offset = snapshot.point.offset
            if offset < self.point_offset or offset == self.beginning:
                return  # a later plan was faster, and compaction may have changed what this one's positions mean
            write_snapshot(self._disk, self.folder, snapshot)
            self.point_offset = offset
            drop_old(self._disk, self.folder, segment_bases)

    def note_beginning(self, snapshot: Snapshot, cuts: int) -> None:
        """That the log may begin there from now on. It is a recovery point, too, and no flush writes over it. Nothing
        where the log was cut since, or let go: its folder may be another's by now."""
        with self._moving:
            if self._health.closed or cuts != self._extent.cuts:
                return
            write_snapshot(self._disk, self.folder, snapshot)
            self.beginning = snapshot.point.offset
            self.point_offset = max(self.point_offset, self.beginning)

    def begins_at(self, offset: int) -> None:
        """The log begins here, with a snapshot there."""
        self.point_offset = self.beginning = offset

    def forget_point(self) -> None:
        self.point_offset = -1
