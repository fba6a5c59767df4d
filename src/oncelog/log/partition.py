"""One partition's log, as the rest of oncelog sees it: open, append, read, care for, close."""

import logging
from collections.abc import Callable
from typing import Concatenate, ParamSpec, Self, TypeVar

from oncelog.clock import Now
from oncelog.log import compaction, lookup, retention, truncation
from oncelog.log.append import Fenced, Staged
from oncelog.log.appending import NEVER_MS, AppendingLog
from oncelog.log.checkpoint import Checkpointer
from oncelog.log.config import Flush, LogConfig
from oncelog.log.disk import Disk, replace_file
from oncelog.log.errors import NO_DESCRIPTORS, LogStorageError, OffsetOutOfRange
from oncelog.log.flush import FlushPlan
from oncelog.log.handles import Handles
from oncelog.log.lookup import TimestampOffset
from oncelog.log.names import EPOCH_FILE
from oncelog.log.reading import Slice, find_batches
from oncelog.log.recovery import Recovered, Recovery
from oncelog.log.segment import Segment
from oncelog.log.segments import Segments
from oncelog.log.snapshots import RecoveryPoint, Snapshot
from oncelog.producers import ProducerMap
from oncelog.records.header import HEADER_BYTES, read_header

__all__ = ["Fenced", "PartitionLog", "Staged", "TimestampOffset"]

logger = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")


class PartitionLog(AppendingLog):
    recovered = Recovered()  # what the start found; empty for a log that could not be opened

    @classmethod
    def open(
        cls,
        disk: Disk,
        folder: str,
        config: LogConfig,
        producers: ProducerMap,
        now: Now,
        *,
        topic: str = "",
        partition: int = 0,
        handles: Handles | None = None,
        checkpointer: Checkpointer | None = None,
        leader_epoch: int | None = None,
        replicated: bool = False,
    ) -> Self:
        """`handles` and `checkpointer` are shared by all logs of a data folder; one that stands alone has its own.

        Never raises for what is on the disk: a damaged partition comes back with `offline` saying why.
        """
        checkpointer = checkpointer or Checkpointer()
        log = cls(disk, folder, config, producers, now, topic, partition, handles, checkpointer, replicated)
        try:
            log._recover(leader_epoch)
        except (OSError, LogStorageError) as error:
            log.readable = False
            log.go_offline(str(error))
        return log

    def _recover(self, leader_epoch: int | None) -> None:
        if not self.disk.exists(self.folder):
            self.disk.mkdir(self.folder)
            self.flusher.new_folder = True
        recovery = Recovery(
            self.disk, self.folder, self.handles, self.producers, self._interval_bytes, self.now, self.replicated
        )
        found = recovery.run()
        self.recovered = found
        self.log_start_offset = found.log_start_offset
        self.segments = Segments(self.disk, self.folder, self.handles, found.segments)
        if not found.segments:
            self.segments.add(found.log_start_offset)
            self.flusher.name_changes += 1
        self.ended_at(self.segments.active.end_offset)
        # What is behind the recovery point may not be on the disk yet, whoever wrote it.
        for segment in self.segments.closed[-found.unflushed_segments :] if found.unflushed_segments else ():
            self.flusher.closed_files.extend((segment.log_path, segment.index.path))
        self.unflushed_bytes = found.scanned_bytes
        self.flusher.point_offset = found.point_offset
        self.checkpointer.register(self)
        if not self.replicated:
            self.high_watermark = self.next_offset
        self.epochs = found.epochs
        self._open_epoch(max(found.latest_epoch + 1, leader_epoch or 0))
        # After a kill the tail may be in memory only. With flush=every nothing below the high watermark may be lost,
        # and a duplicate of what is there is answered at once.
        if found.started_over or (self.unflushed_bytes and self._config.flush is Flush.EVERY):
            self.checkpoint(self.now)
        if found.read_only is not None:
            self.go_offline(found.read_only)

    def _open_epoch(self, leader_epoch: int) -> None:
        """A start is a new epoch, even if nothing will be appended in it: then only this file tells."""
        self.begin_epoch(leader_epoch)
        try:
            replace_file(self.disk, f"{self.folder}/{EPOCH_FILE}", f"{leader_epoch}\n".encode(), durable=False)
        except OSError as error:
            logger.warning("%s: cannot note leader epoch %d: %s", self.folder, leader_epoch, error)

    # Reading

    def read(self, offset: int, max_bytes: int, *, at_least_one: bool = True, limit_offset: int | None = None) -> bytes:
        found = self.find(offset, max_bytes, at_least_one=at_least_one, limit_offset=limit_offset)
        return b"" if found is None else found.read()

    def find(
        self, offset: int, max_bytes: int, *, at_least_one: bool = True, limit_offset: int | None = None
    ) -> Slice | None:
        """What `read` would read, to be read or sent before anything else is done with this log."""
        limit = self.high_watermark if limit_offset is None else min(limit_offset, self.next_offset)
        if not self.readable:
            raise LogStorageError(self.offline or self.folder)
        if not self.log_start_offset <= offset <= self.next_offset:
            raise OffsetOutOfRange(offset, self.log_start_offset, self.next_offset)
        if offset >= limit:
            return None
        try:
            return find_batches(self.segments, offset, max_bytes, at_least_one, limit)
        except OSError as error:
            raise LogStorageError(f"{self.folder}: {error}") from error

    def offset_for_time(self, timestamp_ms: int, *, limit_offset: int | None = None) -> TimestampOffset | None:
        limit = self.high_watermark if limit_offset is None else limit_offset
        return lookup.first_at_or_after(self.segments, timestamp_ms, self.log_start_offset, limit)

    def max_timestamp(self) -> TimestampOffset | None:
        return lookup.latest_timestamp(self.segments, self.log_start_offset, self.high_watermark)

    def end_of_epoch(self, epoch: int) -> tuple[int, int]:
        """(epoch, end offset) of the greatest epoch up to the one asked for; (-1, -1) for one yet to come."""
        return self.epochs.end_of(epoch, self.next_offset)

    # Replication

    def advance_high_watermark(self, offset: int) -> None:
        """Only ever forward, and only over what is there."""
        self.high_watermark = max(self.high_watermark, min(offset, self.next_offset))

    def begin_epoch(self, leader_epoch: int) -> None:
        self.leader_epoch = leader_epoch
        self.epochs.assign(leader_epoch, self.next_offset)

    def truncate_to(self, offset: int) -> int:
        """Answers the new end; lower than asked for when the offset lies within a batch."""
        try:
            return truncation.truncate(self, offset)
        except (OSError, LogStorageError) as error:  # half done, perhaps: neither its end nor its producers are sure
            self.go_offline(f"{self.folder} cannot be cut back: {error}")
            raise LogStorageError(f"{self.folder}: {error}") from error

    def ended_at(self, offset: int) -> None:
        self._active = self.segments.active
        self._active.roll_at_ms = self._roll_time(self._active)
        self.next_offset = self._staged_next = offset
        self.high_watermark = min(self.high_watermark, offset)
        self._known_producers = None

    def _roll_time(self, segment: Segment) -> int:
        """A segment's age is not stored: where it was begun before this start, its first batch's own time must do."""
        if segment.size_bytes == 0:
            return NEVER_MS
        first = read_header(segment.batch(0, HEADER_BYTES))
        began_ms = min(first.max_timestamp, self.now.wall_ms) if first.max_timestamp >= 0 else self.now.wall_ms
        return began_ms + self._config.segment_ms

    # Care

    def delete_before(self, offset: int, now: Now | None = None) -> int:
        """DeleteRecords. Answers the log's new start, which is on the disk by then."""
        if offset > self.high_watermark:
            raise OffsetOutOfRange(offset, self.log_start_offset, self.high_watermark)
        if offset > self.log_start_offset:
            self.now = now or self.now
            self._care(retention.delete_before, offset, self.now)
        return self.log_start_offset

    def maintain(self, now: Now) -> None:
        """Every `log.retention.check.interval.ms`: retention, and producers whose time is over."""
        self.now = now
        self.producers.expire(now)
        self.come_back()
        if self.offline is None:
            self._care(retention.retain, now)

    def compact(self, now: Now) -> bool:
        """`begin_compaction`, `run` and `finish_compaction` at once. Whether there was anything to do."""
        job = self.begin_compaction(now)
        if job is not None:
            job.run()
            self.finish_compaction(job)
        return job is not None

    def begin_compaction(self, now: Now) -> "compaction.CompactionJob | None":
        """On the appending thread. The job's `run` may take its time on another one; then `finish_compaction` here."""
        return None if self.offline is not None else self._care(compaction.begin, now)

    def finish_compaction(self, job: "compaction.CompactionJob") -> None:
        self._care(compaction.finish, job)

    def _care(self, work: "Callable[Concatenate[PartitionLog, P], T]", *args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return work(self, *args, **kwargs)
        except OSError as error:
            raise LogStorageError(f"{self.folder}: {error}") from error

    # The disk

    def flush(self) -> None:
        """Wait until everything committed before this call is on the disk. From any thread."""
        next_offset, cuts = self.next_offset, self.cuts
        try:
            self.flusher.sync(self._active.log_path)
        except OSError as error:
            self.flush_failed(error)
            raise LogStorageError(f"{self.folder}: {error}") from error
        if self._config.flush is Flush.EVERY and not self.replicated and cuts == self.cuts:
            self.high_watermark = max(self.high_watermark, next_offset)

    def flush_failed(self, error: OSError) -> None:
        """After a failed flush nobody knows what is on the disk, and the next one would not tell: no more appends.

        Where not even a file could be opened, nothing was asked of the disk, and the next flush does it all.
        """
        if error.errno in NO_DESCRIPTORS:
            logger.warning("%s is not brought to the disk yet: %s", self.folder, error)
            return
        self.go_offline(f"{self.folder} cannot be brought to the disk: {error}")

    def begin_flush(self, now: Now) -> FlushPlan:
        """On the appending thread, with nothing staged: what is needed to move the recovery point up to here."""
        if self.offline is not None:
            raise LogStorageError(self.offline)
        # A snapshot says how old its producers were at `now`. Whoever reads it back must not do so as of an earlier
        # time, or they would be by so much older than they are.
        self.now = now
        active, cuts = self._active, self.cuts
        for segment in self.segments:
            if segment.index.has_unwritten:
                try:
                    segment.index.write()
                except OSError as error:  # a full disk: a start makes anew what is missing
                    logger.warning("%s: %s", segment.index.path, error)
        point = RecoveryPoint(
            self.next_offset,
            active.base_offset,
            active.size_bytes,
            active.index.stored_entries,
            active.max_timestamp_ms,
        )
        return FlushPlan(
            disk=self.disk,
            folder=self.folder,
            flusher=self.flusher,
            snapshot=Snapshot(point, self.epochs.copy(), self.producers.encode(now)),
            log_path=active.log_path,
            index_path=active.index.path,
            segment_bases=self.segments.bases,
            still_holds=lambda: cuts == self.cuts and not self.closed,
        )

    def checkpoint(self, now: Now) -> None:
        """Bring log, index, epochs and producers to the disk, and move the recovery point, before going on."""
        plan = self.begin_flush(now)
        self.checkpointer.settle(self)
        self.checkpointer.run(self, plan)

    def close(self) -> None:
        """A start finds the recovery point at the log's end, and nothing to look at."""
        if self.closed:
            return
        try:
            if self.offline is None and (self.unflushed_bytes or self.flusher.point_offset != self.next_offset):
                self.checkpoint(self.now)
        finally:
            self.abandon()

    def destroy(self) -> None:
        """Remove the partition from the disk."""
        self.abandon()
        for name in self.disk.listdir(self.folder):
            self.disk.unlink(f"{self.folder}/{name}")
        self.disk.rmdir(self.folder)
        self.disk.sync_folder(self.folder.rpartition("/")[0] or ".")

    def abandon(self) -> None:
        """Let go of all files without writing anything: the folder is renamed or removed by somebody else."""
        self.closed = True
        self.checkpointer.unregister(self)
        self.checkpointer.wait()
        self.offline = self.offline or f"{self.folder} is closed"
        self.handles.forget_folder(self.folder)
