"""One partition's log, as the rest of oncelog sees it: open, append, read, care for, close."""

import errno
import logging
from functools import partial
from typing import Self, TypeVar

from oncelog.clock import Now
from oncelog.log import compaction, follower_beginning, lookup, retention, truncation
from oncelog.log.appender import Appender
from oncelog.log.checkpoint import Behind, Checkpointer
from oncelog.log.config import Flush, LogConfig
from oncelog.log.disk import Disk
from oncelog.log.epochs import LeaderEpochs
from oncelog.log.errors import Damaged, LogStorageError, OffsetOutOfRange
from oncelog.log.flush import Flusher, FlushPlan
from oncelog.log.handles import Handles
from oncelog.log.lookup import TimestampOffset
from oncelog.log.notes import Opened, write_opened
from oncelog.log.parts import Parts
from oncelog.log.recovery import Recovered, Recovery
from oncelog.log.segments import Segments
from oncelog.log.slices import Slice, find_batches, find_committed
from oncelog.log.staged import End, Fate, Fenced, Staged
from oncelog.log.verdict import what_to_do
from oncelog.log.work_steps import Steps, Wait, at_once
from oncelog.producers import ProducerMap

__all__ = ["End", "Fate", "Fenced", "PartitionLog", "Staged", "TimestampOffset"]

logger = logging.getLogger(__name__)

T = TypeVar("T")


class PartitionLog:
    def __init__(self, topic: str, partition: int, parts: Parts, recovered: Recovered, now: Now) -> None:
        self.topic = topic
        self.partition = partition
        self.recovered = recovered  # what the start found; empty for a log that could not be opened
        self.cared_for = 0  # by how many at this moment, in steps: until they end, files may still be removed
        self.config = parts.config  # which `configure` changes; an attribute, as each batch that comes in asks for it
        self._parts = parts
        self._health = parts.health
        self.producers = parts.producers
        self.extent = parts.extent
        self._appender = appender = Appender(parts, now)
        self.stage = appender.stage
        self.stage_rest = appender.stage_rest
        self.stage_in_transaction = appender.stage_in_transaction
        self.end_transaction = appender.end_transaction
        self.commit = appender.commit
        self.append = appender.append
        self.append_replicated = appender.append_replicated
        self.fence = appender.fence

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
        stayed_up: bool = False,
        owner: str = "",
    ) -> Self:
        """`handles` and `checkpointer` are shared by all logs of a data folder; one that stands alone has its own.

        `stayed_up`: the machine has run on since the log was written, so what was not flushed is there, too. `owner`
        says whose folder it is to be; one that another log was opened in before is not opened.

        Never raises for what is on the disk: a damaged partition comes back with `offline` saying why.
        """
        handles, checkpointer = handles or Handles(disk), checkpointer or Checkpointer()
        is_new, failure, found = False, None, Recovered()
        try:
            is_new = not disk.exists(folder)
            if is_new:
                disk.mkdir(folder)
            interval_bytes = config.least_interval_bytes
            recovery = Recovery(disk, folder, handles, producers, interval_bytes, now, replicated, stayed_up, owner)
            found = recovery.run()
            if found.is_bare and not is_new:
                logger.warning("%s is empty: if there were records in it, they are gone", folder)
        except (OSError, LogStorageError) as error:
            failure = error
            if isinstance(error, Damaged) or (isinstance(error, OSError) and error.errno == errno.EIO):
                failure = LogStorageError(f"{error}. {what_to_do(folder)}")
            elif isinstance(error, IsADirectoryError):
                failure = LogStorageError(f"{error}: it is in the place of a file. Move it away; an index is made anew")
        parts = Parts(disk, folder, config, producers, handles, checkpointer, found, replicated=replicated)
        log = cls(topic, partition, parts, found, now)
        if is_new:
            parts.unsynced.note_folder()
        try:
            if failure is not None:
                raise failure
            log._begin(found, Opened(leader_epoch or 0, owner, disk.boot_id() if found.read_only is None else ""))
        except (OSError, LogStorageError) as error:
            log.go_offline(str(error), readable=False)
        return log

    def _begin(self, found: Recovered, opened: Opened) -> None:
        parts = self._parts
        if not found.segments:
            parts.segments.add(found.log_start_offset)
        parts.extent.opened(found.log_start_offset, parts.segments.active, found.high_watermark)
        self._appender.resume()
        # Batches behind the recovery point may not be on the disk yet, no matter which process wrote them.
        unflushed = found.unflushed_segments
        parts.unsynced.note_closed(parts.segments.closed[-unflushed:] if unflushed else ())
        parts.checkpointer.register(self)
        self.open_epoch(found.latest_epoch, opened)
        # After a kill the tail may be in memory only. With flush=every nothing below the high watermark may be lost,
        # and a duplicate of what is there is answered at once. A note `flushed` beyond the recovery point, as a backup
        # has one, says that answers wait for flushes: where they do not, the point must pass it.
        is_noted = found.flushed_offset > found.point_offset
        is_unflushed = found.scanned_bytes and (self.config.flush is Flush.EVERY or is_noted)
        if found.started_over or found.is_partly_removed or is_unflushed:
            parts.checkpoint(self._appender.now)
        if found.read_only is not None:
            self.go_offline(found.read_only)

    def open_epoch(self, latest: int, opened: Opened) -> None:
        """A start is a new epoch, even if nothing will be appended in it: then only this file tells. Where brokers
        follow one another, only an election begins one: the follower of epoch 3 that came back as 4 would refuse it."""
        if self._parts.replicated:
            self.follow_epoch(max(latest, opened.epoch))
        else:
            self.begin_epoch(max(latest + 1, opened.epoch))
        try:
            write_opened(self._parts.disk, self.folder, opened._replace(epoch=self.leader_epoch))
        except OSError as error:
            logger.warning("%s: cannot note leader epoch %d: %s", self.folder, self.leader_epoch, error)

    # What it is

    @property
    def folder(self) -> str:
        return self._parts.folder

    @property
    def name(self) -> str:
        return self.folder.rpartition("/")[2]

    def configure(self, config: LogConfig) -> None:
        self.config = config
        self._parts.configure(config)
        self._appender.configure(config)

    @property
    def log_start_offset(self) -> int:
        return self.extent.log_start_offset

    @property
    def next_offset(self) -> int:
        return self.extent.next_offset

    @property
    def safe_offset(self) -> int:
        return self.extent.safe_offset

    @property
    def high_watermark(self) -> int:
        return self.extent.high_watermark

    @property
    def stable_offset(self) -> int:
        """The last stable offset: readers of committed records read up to here."""
        return self._parts.stable_offset

    @property
    def appended_bytes(self) -> int:
        """The bytes appended since the start. Unlike the size they only grow."""
        return self.extent.appended_bytes

    @property
    def leader_epoch(self) -> int:
        return self._parts.epochs.current

    @property
    def epochs(self) -> LeaderEpochs:
        return self._parts.epochs

    @property
    def segments(self) -> Segments:
        return self._parts.segments

    @property
    def flusher(self) -> Flusher:
        return self._parts.flusher

    @property
    def size_bytes(self) -> int:
        return self._parts.segments.size_bytes

    @property
    def offline(self) -> str | None:
        return self._health.offline

    @property
    def refuses(self) -> bool:
        return self._health.refuses

    def try_disk(self, now_ms: int) -> None:
        """Look whether the disk takes records again after a refusal."""
        self._health.refuses = not self._parts.handles.room.is_there(self.folder, now_ms)

    @property
    def readable(self) -> bool:
        return self._health.readable

    @property
    def damage(self) -> list[str]:
        """Places that were found not to be what was written, as far as they are told."""
        return self._health.damage

    @property
    def closed(self) -> bool:
        return self._health.closed

    @property
    def has_staged(self) -> bool:
        return self._appender.has_staged

    @property
    def behind(self) -> Behind:
        return self._parts.behind

    @property
    def is_behind(self) -> bool:
        return self._parts.is_behind

    def go_offline(self, reason: str, *, readable: bool = True) -> None:
        self._health.go_offline(reason, readable=readable)

    def note_damage(self, what: str) -> None:
        self._health.note_damage(what)

    @property
    def end(self) -> End:
        return End(self.extent.next_offset, self._parts.epochs.current)

    def fate(self, end: End) -> Fate:
        """The fate of what was appended up to there."""
        if self._parts.epochs.current != end.epoch:
            return Fate.LOST
        if self.extent.high_watermark >= end.offset:
            return Fate.SAFE
        return Fate.WAITS if self._health.offline is None else Fate.LOST

    # Reading

    def read(self, offset: int, max_bytes: int, *, at_least_one: bool = True, limit_offset: int | None = None) -> bytes:
        found = self.find(offset, max_bytes, at_least_one=at_least_one, limit_offset=limit_offset)
        return b"" if found is None else found.read()

    def find(
        self,
        offset: int,
        max_bytes: int,
        *,
        at_least_one: bool = True,
        limit_offset: int | None = None,
        stable_only: bool = False,
    ) -> Slice | None:
        """The bytes that `read` would read, to be read or sent before anything else is done with this log. A follower,
        who has a limit of its own, also reads deleted records that are still there: with it the producers are
        complete."""
        extent, parts = self.extent, self._parts
        limit = extent.high_watermark if limit_offset is None else min(limit_offset, extent.next_offset)
        if stable_only:
            limit = parts.stable_offset
        if not self._health.readable:
            raise LogStorageError(self.offline or self.folder)
        # While segments are removed, the start follows once the disk has that.
        start = parts.segments.first_offset
        if limit_offset is None:
            start = max(start, extent.log_start_offset)
        if not start <= offset <= extent.next_offset:
            raise OffsetOutOfRange(offset, extent.log_start_offset, extent.next_offset)
        if offset >= limit:
            return None
        wanted = offset, max_bytes, at_least_one, limit, parts.epochs.current
        try:
            if stable_only and parts.aborted:
                return find_committed(parts.segments, parts.aborted, *wanted)
            return find_batches(parts.segments, *wanted)
        except OSError as error:
            raise LogStorageError(f"{self.folder}: {error}") from error

    def aborted_within(self, offset: int, found: Slice) -> list[tuple[int, int]]:
        """The transactions of which records in what was found are not to be seen, by pid and first offset; in the order
        of their ends."""
        if not self._parts.aborted:
            return []
        try:
            return self._parts.aborted.told_between(offset, found.end_offset())
        except OSError as error:
            raise LogStorageError(f"{self.folder}: {error}") from error

    def offset_for_time(self, timestamp_ms: int) -> TimestampOffset | None:
        return at_once(self.finding_time(timestamp_ms))

    def max_timestamp(self) -> TimestampOffset | None:
        return at_once(self.finding_latest())

    def finding_time(self, timestamp_ms: int, limit_offset: int | None = None) -> Steps[TimestampOffset | None]:
        """The same in steps, and of what stands before the limit, if there is one."""

        def look() -> Steps[TimestampOffset | None]:
            limit = self.high_watermark if limit_offset is None else limit_offset
            return lookup.first_at_or_after(self.segments, timestamp_ms, self.log_start_offset, limit)

        return lookup.while_unchanged(self.segments, look)

    def finding_latest(self, limit_offset: int | None = None) -> Steps[TimestampOffset | None]:
        def look() -> Steps[TimestampOffset | None]:
            limit = self.high_watermark if limit_offset is None else limit_offset
            return lookup.latest_timestamp(self.segments, self.log_start_offset, limit)

        return lookup.while_unchanged(self.segments, look)

    def end_of_epoch(self, epoch: int) -> tuple[int, int]:
        """(epoch, end offset) of the greatest epoch up to the one asked for; (-1, -1) for one yet to come."""
        return self.epochs.end_of(epoch, self.next_offset)

    # Replication

    def advance_high_watermark(self, offset: int) -> None:
        self.extent.advance_high_watermark(offset)

    def begin_epoch(self, leader_epoch: int) -> None:
        """Batches that are appended from here on are of this epoch."""
        self.epochs.begin(leader_epoch, self.next_offset)

    def follow_epoch(self, leader_epoch: int) -> None:
        """Another broker leads in it. What waits for an earlier one is lost to who asked here."""
        self.epochs.follow_from(leader_epoch, self.next_offset)

    def truncate_to(self, offset: int) -> int:
        """Answers the new end; lower than asked for when the offset lies within a batch."""
        try:
            if truncation.truncate(self._parts, offset, self._appender.now):
                self._appender.resume()
        except (OSError, LogStorageError) as error:  # half done, perhaps: neither its end nor its producers are sure
            self.go_offline(f"{self.folder} cannot be cut back: {error}")
            raise LogStorageError(f"{self.folder}: {error}") from error
        return self.next_offset

    @property
    def first_offset(self) -> int:
        """The offset from which on a follower can read everything."""
        return self._parts.segments.first_offset

    def beginning(self) -> bytes:
        """The beginning for a follower that has nothing of this log: see `begin_anew`."""
        return follower_beginning.encoded(self._parts, self._appender.now)

    def begin_anew(self, encoded: bytes, now: Now) -> None:
        """The log goes on without any record where another one begins, with the producers as they were there. Empty: at
        0."""
        self._appender.seen(now)
        try:
            follower_beginning.begin_anew(self._parts, encoded, now)
            self._appender.resume()
        except (OSError, LogStorageError) as error:
            self.go_offline(f"{self.folder} cannot begin anew, the next start goes on with it: {error}", readable=False)
            raise LogStorageError(f"{self.folder}: {error}") from error

    # Care

    def delete_before(self, offset: int, now: Now | None = None) -> int:
        """DeleteRecords. Answers the log's new start, which is on the disk by then."""
        return at_once(self.deleting_before(offset, now))

    def deleting_before(self, offset: int, now: Now | None = None) -> Steps[int]:
        """The same in steps."""
        if offset > self.high_watermark:
            raise OffsetOutOfRange(offset, self.log_start_offset, self.high_watermark)
        if offset > self.log_start_offset:
            if now is not None:
                self._appender.seen(now)
            yield from self._care_in_steps(retention.deleting_before(self._parts, offset, self._appender.now))
        return self.log_start_offset

    def maintain(self, now: Now) -> None:
        """Every `log.retention.check.interval.ms`: retention, and producers whose time is over."""
        at_once(self.maintaining(now))

    def maintaining(self, now: Now) -> Steps[None]:
        """The same in steps."""
        self._appender.seen(now)
        while self.producers.expire(now):
            yield None
            if self.closed:
                return
        self._appender.come_back()
        if self.offline is None:
            yield from self._care_in_steps(retention.retaining(self._parts, now))

    def compact(self, now: Now) -> bool:
        """`begin_compaction`, `run` and `finish_compaction` at once. Whether there was anything to do."""
        job = self.begin_compaction(now)
        if job is not None:
            job.run()
            self.finish_compaction(job)
        return job is not None

    def begin_compaction(self, now: Now) -> compaction.CompactionJob | None:
        """A job whose `run` may take its time on another thread; then `finish_compaction`. Both on the appending
        thread."""
        return at_once(self.beginning_compaction(now))

    def finish_compaction(self, job: compaction.CompactionJob) -> None:
        at_once(self.finishing_compaction(job))

    def beginning_compaction(self, now: Now) -> Steps[compaction.CompactionJob | None]:
        """The same in steps."""
        if self.offline is not None:
            return None
        self._appender.seen(now)
        return (yield from self._care_in_steps(compaction.begin(self._parts, now)))

    def finishing_compaction(self, job: compaction.CompactionJob) -> Steps[None]:
        yield from self._care_in_steps(compaction.finish(self._parts, job))

    def _care_in_steps(self, steps: Steps[T]) -> Steps[T]:
        self.cared_for += 1
        try:
            return (yield from steps)
        except OSError as error:
            raise LogStorageError(f"{self.folder}: {error}") from error
        finally:
            self.cared_for -= 1

    # The disk

    def flush(self) -> None:
        """Wait until everything committed before this call is on the disk; a start will know it. From any thread."""
        self._parts.flusher.flush(notes=True)

    def begin_flush(self, now: Now | None = None) -> FlushPlan:
        """The plan that moves the recovery point up to here. On the appending thread, with nothing staged.

        A snapshot says how old its producers were at `now`. It must not be read back as of an earlier
        time, or they would be by so much older than they are.
        """
        if now is not None:
            self._appender.seen(now)
        return self._parts.flusher.begin(self._appender.now)

    def checkpoint(self, now: Now) -> None:
        self.begin_checkpoint(now)()

    def begin_checkpoint(self, now: Now) -> Wait:
        """The answer is what waits for the disk, on any thread."""
        self._appender.seen(now)
        return self._parts.begin_checkpoint(now)

    def begin_note(self) -> Wait | None:
        """Note the end of the log for the next start; None where it has not grown since. As `begin_checkpoint`."""
        return self._parts.flusher.begin_note()

    def close(self) -> None:
        """A start finds the recovery point at the log's end, and nothing to look at."""
        if self.closed:
            return
        try:
            if self.offline is None and self.is_behind:
                self._parts.checkpoint(self._appender.now)
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Let go of all files without writing anything: the folder is renamed or removed by somebody else."""
        at_once(self.abandoning())

    def abandoning(self) -> Steps[None]:
        self.give_up()
        if self._parts.checkpointer.is_at(self.folder):
            yield partial(self._parts.checkpointer.wait, self.folder)
        if self._parts.is_noting:
            yield self._parts.wait_for_notes
        self._parts.handles.forget_folder(self.folder)

    def give_up(self) -> None:
        """The first half of `abandon`, which waits for nothing: nothing is appended or flushed from here on."""
        self._health.close()
        self._parts.checkpointer.unregister(self)
