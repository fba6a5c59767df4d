"""How a partition's log is appended to.

`stage` and `commit` are the hot path: no I/O in the first, one `writev` in the second, and no work for each record.
Everything belongs to one thread. What other modules of this room do to a log (retention, truncation, compaction) they
do through its public attributes, which are nobody else's business.
"""

import logging
import struct
import sys
from typing import NoReturn

from oncelog.clock import Now
from oncelog.log import undo
from oncelog.log.append import Fenced, Staged, fence_batch
from oncelog.log.checkpoint import Checkpointer
from oncelog.log.config import Flush, LogConfig, TimestampType
from oncelog.log.disk import MAX_BUFFERS, Disk, write_all
from oncelog.log.epochs import LeaderEpochs
from oncelog.log.errors import NO_DESCRIPTORS, LogStorageError, OffsetOutOfRange
from oncelog.log.flush import Flusher
from oncelog.log.handles import Handles
from oncelog.log.replay import replay_header
from oncelog.log.segment import Segment
from oncelog.log.segments import Segments
from oncelog.producers import Decision, ProducerMap
from oncelog.producers.sequences import SEQUENCE_MASK
from oncelog.records.header import BatchHeader, Buffer, headers, read_header, stamp, stamp_append_time
from oncelog.records.trim import trim

logger = logging.getLogger(__name__)

NEVER_MS = sys.maxsize
_stamp = struct.Struct(">qii").pack_into  # base offset, batch length, leader epoch
_number_at = struct.Struct(">q").unpack_from
_MAX_TIMESTAMP_AT = 35


class AppendingLog:
    def __init__(
        self,
        disk: Disk,
        folder: str,
        config: LogConfig,
        producers: ProducerMap,
        now: Now,
        topic: str,
        partition: int,
        handles: Handles | None,
        checkpointer: Checkpointer,
        replicated: bool,
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.producers = producers
        self._run = producers.run
        self.log_start_offset = 0
        self.next_offset = 0
        self.high_watermark = 0
        self.leader_epoch = 0
        self.offline: str | None = None
        self.readable = True
        self.unflushed_bytes = 0
        self.disk = disk
        self.folder = folder
        self.name = folder.rpartition("/")[2]
        self.now = now
        self.handles = handles or Handles(disk)
        self.checkpointer = checkpointer
        self.epochs = LeaderEpochs()
        self.flusher = Flusher(disk, folder)
        self.segments = Segments(disk, folder, self.handles, [])
        self.replicated = replicated
        self.cuts = 0  # how often the end moved back, so that a flush begun before does not count
        self.closed = False
        self._active = Segment(self.handles, folder, 0)
        self._staged: list[Buffer] = []
        self._staged_next = 0
        self._staged_bytes = 0
        self._staged_max_ms = -1
        self._trouble = False  # the last append failed
        self._producers_wait = False  # for a descriptor, to be read again after a failed append
        self._known_producers: bytes | None = None  # the map as it is on the disk, kept while appends fail
        self.config = config

    @property
    def config(self) -> LogConfig:
        return self._config

    @config.setter
    def config(self, config: LogConfig) -> None:
        self._config = config
        self._segment_bytes = config.segment_bytes
        self._interval_bytes = max(config.index_interval_bytes, 1)
        self._stamps_time = config.message_timestamp_type is TimestampType.LOG_APPEND
        self._watermark_follows = not self.replicated and config.flush is not Flush.EVERY

    @property
    def size_bytes(self) -> int:
        return self.segments.size_bytes

    @property
    def has_staged(self) -> bool:
        return bool(self._staged)

    def stage(self, batch: bytearray | memoryview, header: BatchHeader, now: Now) -> Staged:
        """Judge and stamp in place; the buffer must stay as it is until `commit`. No I/O."""
        if self.offline is not None and not self.come_back():
            raise LogStorageError(self.offline)
        (_, length, _, _, _, _, last_delta, _, max_ms, pid, generation, sequence, count) = header
        offset = self._staged_next
        append_time_ms = -1
        if self._stamps_time:
            append_time_ms = max_ms = now.wall_ms
        if pid > 0:
            run = self._run
            if sequence == run.next_sequence and pid == run.pid and generation == run.generation:
                # What `accept_next` does first. A tenth of a microsecond is a hundredth of what a small request takes.
                run.next_sequence = (sequence + count) & SEQUENCE_MASK
                run.batches.append((sequence, count, offset, max_ms, now))
            elif not self.producers.accept_next(pid, generation, sequence, count, offset, max_ms, now):
                decision, detail = self.producers.judge(pid, generation, sequence, count, now)
                if decision:
                    return self._stage_replay(decision, detail, batch, header, now)
                self.producers.accept(pid, generation, sequence, count, offset, max_ms, now)
        if self._stamps_time:
            stamp_append_time(batch, 0, append_time_ms)
        _stamp(batch, 0, offset, length, self.leader_epoch)
        self._staged.append(batch)
        self._staged_bytes += length + 12
        self._staged_next = end_offset = offset + last_delta + 1
        if max_ms > self._staged_max_ms:
            self._staged_max_ms = max_ms
        self.now = now
        return Staged(Decision.APPEND, offset, append_time_ms, 0, end_offset)

    def commit(self) -> None:
        """Write everything staged with one call. On failure log and producers are as before the first `stage`."""
        staged = self._staged
        if not staged:
            return
        self.producers.settle_many()
        active, size_bytes = self._active, self._staged_bytes
        position = active.size_bytes
        if self._trouble:
            self._clear_remains(active, position)
        try:
            if position + size_bytes > self._segment_bytes or self.now.wall_ms >= active.roll_at_ms:
                self._write_rolling(staged)
            else:
                file = self.handles.get(active.log_path)
                taken = file.pwritev(staged, position) if len(staged) <= MAX_BUFFERS else 0
                if taken != size_bytes:
                    # A short write, or more buffers than one call takes. To write some bytes twice does no harm.
                    write_all(file, staged, position)
                if position >= active.next_index_at or (size_bytes > self._interval_bytes and len(staged) > 1):
                    self._index(active, staged, position)
                if position == 0:
                    active.roll_at_ms = self.now.wall_ms + self._config.segment_ms
                active.size_bytes = position + size_bytes
                active.end_offset = self._staged_next
                if self._staged_max_ms > active.max_timestamp_ms:
                    active.max_timestamp_ms = self._staged_max_ms
        except OSError as error:
            self._undo(position, error)
        self.next_offset = self._staged_next
        self._staged = []
        self._staged_bytes = 0
        self._staged_max_ms = -1
        if self._watermark_follows:
            self.high_watermark = self.next_offset
        if self._trouble:
            self._well_again()
        self.unflushed_bytes += size_bytes
        checkpointer = self.checkpointer
        checkpointer.behind_bytes += size_bytes
        if checkpointer.behind_bytes >= checkpointer.forced_bytes:
            checkpointer.catch_up(self.now)

    def append(self, batch: bytearray | memoryview, header: BatchHeader, now: Now) -> Staged:
        staged = self.stage(batch, header, now)
        self.commit()
        return staged

    def append_replicated(self, batches: Buffer, now: Now) -> int:
        """Whole batches from the leader, offsets and epochs as they are; replay never refuses. The next offset."""
        if self.offline is not None:
            raise LogStorageError(self.offline)
        expected = self._staged_next
        found = list(headers(batches))
        for _, header in found:
            if header.base_offset < expected or header.leader_epoch < self.epochs.latest:
                raise OffsetOutOfRange(header.base_offset, expected, expected)
            expected = header.last_offset + 1
        view = memoryview(batches)
        for at, header in found:
            self.epochs.assign(header.leader_epoch, header.base_offset)
            self._take(view[at : at + header.size_bytes], header, now)
            replay_header(self.producers, header, now)
        self.leader_epoch = max(self.leader_epoch, self.epochs.latest)
        self.commit()
        return self.next_offset

    def fence(self, pid: int, generation: int, now: Now) -> Fenced:
        """Raise the pid's generation by a control batch. True once the high watermark is above its offset."""
        if self.offline is not None:
            raise LogStorageError(self.offline)
        decision = self.producers.judge_fence(pid, generation, now)
        known = self.producers.highwater(pid) or (-1, -1)
        if decision is not Decision.APPEND:
            return Fenced(decision, known[0], known[1], -1)
        batch = fence_batch(pid, generation, now.wall_ms)
        offset = self._staged_next
        stamp(batch, 0, offset, self.leader_epoch)
        self._take(batch, read_header(batch), now)
        self.producers.fence(pid, generation, now)
        self.commit()
        return Fenced(decision, generation, known[1], offset)

    def _take(self, batch: Buffer, header: BatchHeader, now: Now) -> None:
        self._staged.append(batch)
        self._staged_bytes += header.size_bytes
        self._staged_next = header.last_offset + 1
        self._staged_max_ms = max(self._staged_max_ms, header.max_timestamp)
        self.now = now

    def _stage_replay(
        self, decision: Decision, detail: int, batch: bytearray | memoryview, header: BatchHeader, now: Now
    ) -> Staged:
        """Anything but a plain append. What is there already is true only once everything staged before it is, too."""
        if decision is Decision.TRIM:
            rest = trim(batch, detail)
            staged = self.stage(rest, read_header(rest), now)
            return staged._replace(
                decision=Decision.TRIM, base_offset=staged.base_offset - detail, dropped_records=detail
            )
        base_offset = detail if decision is Decision.DUPLICATE else -1
        return Staged(decision, base_offset, end_offset=self._staged_next)

    def _index(self, active: Segment, staged: list[Buffer], position: int) -> None:
        greatest_ms = active.max_timestamp_ms
        for batch in staged:
            if position >= active.next_index_at:
                active.index.add(_number_at(batch)[0], position, greatest_ms)
                active.next_index_at = position + self._interval_bytes
            position += len(batch)
            greatest_ms = max(greatest_ms, _number_at(batch, _MAX_TIMESTAMP_AT)[0])

    def _write_rolling(self, staged: list[Buffer]) -> None:
        """Batch by batch, each in the segment where it belongs."""
        first, count = self._active, len(self.segments)
        facts = (first.size_bytes, first.end_offset, first.max_timestamp_ms, first.roll_at_ms)
        try:
            for batch in staged:
                active = self._active
                full = active.size_bytes + len(batch) > self._segment_bytes
                if active.size_bytes and (full or self.now.wall_ms >= active.roll_at_ms):
                    active = self.roll()
                if active.size_bytes == 0:
                    active.roll_at_ms = self.now.wall_ms + self._config.segment_ms
                write_all(self.handles.get(active.log_path), [batch], active.size_bytes)
                active.note_appended(active.size_bytes, read_header(batch), self._interval_bytes)
        except OSError:
            self._active = first
            first.size_bytes, first.end_offset, first.max_timestamp_ms, first.roll_at_ms = facts
            self._take_back(first, count)
            raise

    def _take_back(self, first: Segment, count: int) -> None:
        """Segments that a failed commit began, and what it put into the index of the one before."""
        try:
            while len(self.segments) > count:
                self.segments.remove_last()
            first.next_index_at = 0
            first.index.cut(first.size_bytes)
        except OSError as error:
            if error.errno in NO_DESCRIPTORS:
                return  # no entry of an index is believed before the batch is seen that it speaks of
            self.go_offline(f"{self.folder} holds remains of a failed write that cannot be removed: {error}")

    def roll(self) -> Segment:
        """Close the active segment and begin another one at its end."""
        full = self._active
        full.close_index()
        full.index.write()
        active = self.segments.add(full.end_offset)
        active.roll_at_ms = NEVER_MS
        # In this order: see `Flusher.sync`.
        self.flusher.closed_files.extend((full.log_path, full.index.path))
        self.flusher.name_changes += 1
        self._active = active
        return active

    def _undo(self, size_bytes: int, error: OSError) -> NoReturn:
        staged, self._staged = self._staged, []
        self._staged_next, self._staged_bytes, self._staged_max_ms = self.next_offset, 0, -1
        if not self._trouble:
            logger.error("%s: append failed, the log stays as it was: %s", self.folder, error)
        undo.cut_tail(self, self._active.log_path, size_bytes)
        self.epochs.cut_end(self.next_offset + 1 if not self.replicated else self.next_offset)
        if any(read_header(batch).producer_id > 0 for batch in staged):
            self._restore_producers()
        self._trouble = True
        raise LogStorageError(f"{self.folder}: {error}") from error

    def _clear_remains(self, active: Segment, position: int) -> None:
        # Opened while the disk was read-only, perhaps; it may be writable again.
        active.forget_handles()
        try:
            undo.cut_remains(self, active.log_path, position)
        except OSError as error:
            self._undo(position, error)

    def _restore_producers(self) -> None:
        try:
            if self._known_producers is None:
                undo.rebuild_producers(self, self.next_offset)
                self._known_producers = self.producers.encode(self.now)
            else:
                self.producers.decode(self._known_producers, self.now)
        except (OSError, LogStorageError) as error:
            self._producers_wait = isinstance(error, OSError) and error.errno in NO_DESCRIPTORS
            self.go_offline(f"{self.folder}: the producers cannot be read again after a failed append: {error}")

    def come_back(self) -> bool:
        """From the one trouble that goes by itself: producers that could not be read for want of a descriptor."""
        if not self._producers_wait or self.closed:
            return False
        reason, self.offline, self._producers_wait = self.offline, None, False
        try:
            undo.rebuild_producers(self, self.next_offset)
            self._known_producers = self.producers.encode(self.now)
        except (OSError, LogStorageError) as error:
            self.offline = reason
            self._producers_wait = isinstance(error, OSError) and error.errno in NO_DESCRIPTORS
            return False
        return True

    def _well_again(self) -> None:
        self._trouble = False
        self._known_producers = None
        logger.warning("%s: appends work again", self.folder)

    def go_offline(self, reason: str) -> None:
        """Nothing is appended any more until the log is opened anew. Said once."""
        if self.offline is None:
            self.offline = reason
            logger.error("%s is offline: %s", self.folder, reason)
