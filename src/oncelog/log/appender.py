"""Appending to a partition's log.

`stage` and `commit` are the hot path: no I/O in the first, one `writev` in the second, and no work for each record.
Everything belongs to one thread.
"""

import logging
import struct
from collections.abc import Callable
from typing import NoReturn

from oncelog.clock import Now
from oncelog.log.aborted import Aborted
from oncelog.log.batch_replay import aborted_by, replay_whole
from oncelog.log.config import LogConfig, TimestampType
from oncelog.log.disk import MAX_BUFFERS, write_all
from oncelog.log.errors import NO_DESCRIPTORS, Damaged, LogStorageError, OffsetOutOfRange
from oncelog.log.markers import marker_batch
from oncelog.log.parts import Parts
from oncelog.log.segment import Segment
from oncelog.log.staged import Fenced, Marked, Staged, fence_batch
from oncelog.producers import FIRST_KAFKA_PID, Decision
from oncelog.producers.markers import NO_TRANSACTION, Marker
from oncelog.producers.sequences import SEQUENCE_MASK
from oncelog.records.header import (
    MAGIC,
    BatchHeader,
    Buffer,
    body_crc,
    headers,
    read_header,
    stamp,
    stamp_append_time,
)
from oncelog.records.trim import trim

logger = logging.getLogger(__name__)

Trim = Callable[[Buffer, int], bytearray]  # a batch without its first records

_new = tuple.__new__
_APPEND = Decision.APPEND  # an enum's own look-up takes three times as long
_stamp = struct.Struct(">qii").pack_into  # base offset, batch length, leader epoch
_crc_in = struct.Struct(">17xI").unpack_from


class Appender:
    def __init__(self, parts: Parts, now: Now) -> None:
        self._folder = parts.folder
        self._handles = parts.handles
        self._health = parts.health
        self._extent = parts.extent
        self._epochs = parts.epochs
        self._segments = parts.segments
        self._behind = parts.behind
        self._stored_producers = parts.stored_producers
        self._producers = parts.producers
        self._aborted = parts.aborted
        self._run = parts.producers.run
        self.now = now  # the latest that this log was told
        self._staged: list[Buffer] = []
        self._staged_next = 0
        self._staged_bytes = 0
        self._staged_max_ms = -1
        self._trouble = False  # the last append failed
        self._producers_wait = False  # for a descriptor, to be read again after a failed append
        self.configure(parts.config)

    def configure(self, config: LogConfig) -> None:
        self._segment_bytes = config.segment_bytes
        self._segment_ms = config.segment_ms
        self._interval_bytes = config.least_interval_bytes
        self._stamps_time = config.message_timestamp_type is TimestampType.LOG_APPEND

    def resume(self) -> None:
        """Appending goes on at the log's end, as a start has found it or a cut has left it."""
        self._segments.active.resume(self.now, self._segment_ms)
        self._staged_next = self._extent.next_offset

    def seen(self, now: Now) -> None:
        self.now = now

    @property
    def has_staged(self) -> bool:
        return bool(self._staged)

    def stage(self, batch: bytearray | memoryview, header: BatchHeader, now: Now, trim: Trim = trim) -> Staged:
        """Judge and stamp in place; the buffer must stay as it is until `commit`. No I/O. `trim` cuts off what is there
        already; where it raises, nothing was staged."""
        if self._health.offline is not None and not self.come_back():
            self._health.check()
        (_, length, _, _, _, _, last_delta, _, max_ms, pid, generation, sequence, count) = header
        offset = self._staged_next
        append_time_ms = -1
        if self._stamps_time:
            append_time_ms = max_ms = now.wall_ms
        if pid > 0:
            run = self._run
            if sequence == run.next_sequence and pid == run.pid and generation == run.generation:
                # First steps of `accept_next`. A tenth of a microsecond is a hundredth of what a small request takes.
                run.next_sequence = (sequence + count) & SEQUENCE_MASK
                run.batches.append((sequence, count, offset, max_ms, now))
            elif not self._producers.accept_next(pid, generation, sequence, count, offset, max_ms, now):
                decision, detail = self._producers.judge(pid, generation, sequence, count, now)
                if decision:
                    return self.stage_replay(decision, detail, batch, now, trim)
                self._producers.accept(pid, generation, sequence, count, offset, max_ms, now)
        if self._stamps_time:
            stamp_append_time(batch, 0, append_time_ms)
        epoch = self._epochs.current
        _stamp(batch, 0, offset, length, epoch)
        self._staged.append(batch)
        self._staged_bytes += length + 12
        self._staged_next = end_offset = offset + last_delta + 1
        if max_ms > self._staged_max_ms:
            self._staged_max_ms = max_ms
        self.now = now
        return _new(Staged, (_APPEND, offset, append_time_ms, 0, end_offset, epoch))  # sooner than by Staged(...)

    def stage_in_transaction(
        self, batch: bytearray | memoryview, header: BatchHeader, now: Now, *, begins_at_zero: bool = False
    ) -> Staged:
        """The same of a batch that belongs to its producer's transaction, by a pid of Kafka's. One without sequences is
        written by a coordinator in the producer's name. `begins_at_zero`: a producer that is unknown here is new."""
        if self._health.offline is not None and not self.come_back():
            self._health.check()
        (_, length, _, _, _, _, last_delta, _, max_ms, pid, epoch, sequence, count) = header
        offset = self._staged_next
        append_time_ms = -1
        if self._stamps_time:
            append_time_ms = max_ms = now.wall_ms
        decision, detail = self._judgement(header, now, begins_at_zero)
        if decision:
            base_offset = detail if decision is Decision.DUPLICATE else -1
            return Staged(decision, base_offset, end_offset=offset, epoch=self._epochs.current)
        self._producers.accept_in_transaction(pid, epoch, sequence, count, offset, max_ms, now)
        if self._stamps_time:
            stamp_append_time(batch, 0, append_time_ms)
        _stamp(batch, 0, offset, length, self._epochs.current)
        self._staged.append(batch)
        self._staged_bytes += length + 12
        self._staged_next = offset + last_delta + 1
        self._staged_max_ms = max(self._staged_max_ms, max_ms)
        self.now = now
        return Staged(Decision.APPEND, offset, append_time_ms, 0, self._staged_next, self._epochs.current)

    def _judgement(self, header: BatchHeader, now: Now, begins_at_zero: bool) -> tuple[Decision, int]:
        pid, epoch, sequence, count = header[9:13]
        if pid < FIRST_KAFKA_PID:
            return Decision.UNKNOWN_PRODUCER, 0
        if sequence < 0:
            return self._producers.judge_unsequenced(pid, epoch, now), 0
        if begins_at_zero and sequence and self._producers.highwater(pid) is None:
            return Decision.OUT_OF_ORDER, 0
        return self._producers.judge_in_transaction(pid, epoch, sequence, count, now)

    def commit(self) -> None:
        """Write everything staged with one call. On failure log and producers are as before the first `stage`."""
        staged = self._staged
        if not staged:
            return
        self._producers.pass_on_many()
        active, size_bytes = self._segments.active, self._staged_bytes
        position = active.size_bytes
        if self._trouble:
            self._clear_remains(active, position)
        try:
            if position + size_bytes > self._segment_bytes or self.now.wall_ms >= active.roll_at_ms:
                self._write_rolling(staged)
                active = self._segments.active
            else:
                file = self._handles.get(active.log_path)
                taken = file.pwritev(staged, position) if len(staged) <= MAX_BUFFERS else 0
                if taken != size_bytes:
                    # A short write, or more buffers than one call takes. To write some bytes twice does no harm.
                    write_all(file, staged, position)
                if position >= active.next_index_at or (size_bytes > self._interval_bytes and len(staged) > 1):
                    active.index_appended(staged, position, self._interval_bytes)
                if position == 0:
                    active.begin(self.now.wall_ms + self._segment_ms)
                active.appended(position + size_bytes, self._staged_next, self._staged_max_ms)
        except OSError as error:
            self._undo(position, error)
        active.last_crc = _crc_in(staged[-1])[0]
        self._staged = []
        self._staged_bytes = 0
        self._staged_max_ms = -1
        self._extent.appended(self._staged_next, size_bytes, active)
        if self._trouble:
            self._well_again()
        self._behind.appended(size_bytes, self.now)

    def append(self, batch: bytearray | memoryview, header: BatchHeader, now: Now) -> Staged:
        staged = self.stage(batch, header, now)
        self.commit()
        return staged

    def append_replicated(self, batches: Buffer, now: Now) -> int:
        """Whole batches from the leader, offsets and epochs as they are; replay never refuses. The next offset.

        A batch that is not what its leader took in is refused, so that rot does not spread. Whether its body is records
        only the leader can decide: behind a batch that is acknowledged, a copy without it could take in nothing more.
        """
        self._health.check()
        expected = self._staged_next
        found = list(headers(batches))
        view = memoryview(batches)
        for at, header in found:
            if header.base_offset < expected or header.leader_epoch < self._epochs.latest:
                raise OffsetOutOfRange(header.base_offset, expected, expected)
            if header.magic != MAGIC or body_crc(view, at, header.size_bytes) != header.crc:
                raise Damaged(f"{self._folder}: the leader's batch at offset {header.base_offset} does not fit its CRC")
            expected = header.last_offset + 1
        aborted: list[Aborted] = []
        epochs = self._epochs.copy()
        for at, header in found:
            batch = view[at : at + header.size_bytes]
            self._epochs.follow(header.leader_epoch, header.base_offset)
            self._take(batch, header, now)
            ended = replay_whole(self._producers, header, batch, now)
            if ended is not None:
                aborted.append(ended)
        try:
            self._commit_ending(aborted)
        except LogStorageError:
            self._epochs.replace(epochs)
            raise
        return self._extent.next_offset

    def fence(self, pid: int, generation: int, now: Now) -> Fenced:
        """Raise the pid's generation by a control batch. True once the high watermark is above its offset."""
        self._health.check()
        decision = self._producers.judge_fence(pid, generation, now)
        known = self._producers.highwater(pid) or (-1, -1)
        if decision is not Decision.APPEND:
            return Fenced(decision, known[0], known[1], -1)
        batch = fence_batch(pid, generation, now.wall_ms)
        offset = self._staged_next
        stamp(batch, 0, offset, self._epochs.current)
        self._take(batch, read_header(batch), now)
        self._producers.fence(pid, generation, now)
        self.commit()
        return Fenced(decision, generation, known[1], offset, self._epochs.current)

    def end_transaction(
        self, pid: int, epoch: int, coordinator_epoch: int, now: Now, *, is_commit: bool, raises_epoch: bool
    ) -> Marked:
        """Append the marker that ends the producer's transaction here; `raises_epoch` where each end does."""
        if self._health.offline is not None and not self.come_back():
            self._health.check()
        decision = self._producers.judge_marker(pid, epoch, coordinator_epoch, is_newer=raises_epoch)
        if decision is not Decision.APPEND:
            return Marked(decision, self._staged_next, self._epochs.current)
        first_offset = self._producers.transactions.open.get(pid, NO_TRANSACTION)
        marker = Marker(is_commit, coordinator_epoch, first_offset)
        batch = marker_batch(pid, epoch, marker, now.wall_ms)
        offset = self._staged_next
        stamp(batch, 0, offset, self._epochs.current)
        self._take(batch, read_header(batch), now)
        self._producers.end_transaction(pid, epoch, marker, offset, now.wall_ms, now)
        aborted = aborted_by(pid, marker, offset)
        self._commit_ending([] if aborted is None else [aborted])
        return Marked(decision, self._staged_next, self._epochs.current)

    def _commit_ending(self, aborted: list[Aborted]) -> None:
        """Commit markers, which end these. That may move the recovery point, and no start looks before it for them."""
        self._aborted.announce(aborted)
        try:
            self.commit()
        except LogStorageError:
            self._aborted.take_back(len(aborted))
            raise
        self._aborted.write()

    def _take(self, batch: Buffer, header: BatchHeader, now: Now) -> None:
        self._staged.append(batch)
        self._staged_bytes += header.size_bytes
        self._staged_next = header.last_offset + 1
        self._staged_max_ms = max(self._staged_max_ms, header.max_timestamp)
        self.now = now

    def stage_rest(self, rest: bytearray, dropped_records: int, now: Now) -> Staged:
        """The rest of a batch whose first records are there already."""
        staged = self.stage(rest, read_header(rest), now)
        return staged._replace(
            decision=Decision.TRIM, base_offset=staged.base_offset - dropped_records, dropped_records=dropped_records
        )

    def stage_replay(
        self, decision: Decision, detail: int, batch: bytearray | memoryview, now: Now, trim: Trim
    ) -> Staged:
        """Anything but a plain append. What is there already is true only once everything staged before it is, too."""
        if decision is Decision.TRIM:
            return self.stage_rest(trim(batch, detail), detail, now)
        base_offset = detail if decision is Decision.DUPLICATE else -1
        return Staged(decision, base_offset, end_offset=self._staged_next, epoch=self._epochs.current)

    def _write_rolling(self, staged: list[Buffer]) -> None:
        """Batch by batch, each in the segment where it belongs, or in the one there is if many were closed lately."""
        pace = self._handles.pace
        first, count = self._segments.active, len(self._segments)
        facts = first.facts()
        try:
            for batch in staged:
                active = self._segments.active
                full = active.size_bytes + len(batch) > self._segment_bytes
                is_due = active.size_bytes and (full or self.now.wall_ms >= active.roll_at_ms)
                if is_due and (pace is None or pace.allows(active.size_bytes, self.now)):
                    self._segments.roll()
                    active = self._segments.active
                if active.size_bytes == 0:
                    active.begin(self.now.wall_ms + self._segment_ms)
                write_all(self._handles.get(active.log_path), [batch], active.size_bytes)
                active.note_appended(active.size_bytes, read_header(batch), self._interval_bytes)
        except OSError:
            first.put_back(facts)
            self._take_back(first, count)
            raise

    def _take_back(self, first: Segment, count: int) -> None:
        """Segments that a failed commit began, and what it put into the index of the one before."""
        try:
            self._segments.keep_first(count)
            first.cut_index()
        except OSError as error:
            if error.errno in NO_DESCRIPTORS:
                return  # no entry of an index is believed before the batch is seen that it speaks of
            self._health.go_offline(f"{self._folder} holds remains of a failed write that cannot be removed: {error}")

    def _undo(self, size_bytes: int, error: OSError) -> NoReturn:
        staged, self._staged = self._staged, []
        next_offset = self._extent.next_offset
        self._staged_next, self._staged_bytes, self._staged_max_ms = next_offset, 0, -1
        if not self._trouble:
            logger.error("%s: append failed, the log stays as it was: %s", self._folder, error)
        self._cut_tail(self._segments.active, size_bytes)
        if any(read_header(batch).producer_id > 0 for batch in staged):
            self._restore_producers()
        self._trouble = self._health.refuses = True
        raise LogStorageError(f"{self._folder}: {error}") from error

    def _cut_tail(self, active: Segment, size_bytes: int) -> None:
        """Cut off what a failed write left behind the end. Where that fails, nothing may be appended behind it."""
        try:
            active.cut_remains(size_bytes)
        except OSError as error:
            if error.errno in NO_DESCRIPTORS:
                return  # the next append looks again before it writes
            self._health.go_offline(f"{active.log_path} ends in a failed write that cannot be cut off: {error}")
        # It may be open for reading only, from a time when the disk allowed no more.
        self._handles.forget(active.log_path)

    def _clear_remains(self, active: Segment, position: int) -> None:
        # Opened while the disk was read-only, perhaps; it may be writable again.
        active.forget_handles()
        try:
            active.cut_remains(position)
        except OSError as error:
            self._undo(position, error)

    def _restore_producers(self) -> None:
        try:
            self._stored_producers.restore(self._extent.next_offset, self.now)
        except (OSError, LogStorageError) as error:
            self._producers_wait = _is_want_of_descriptors(error)
            self._health.go_offline(
                f"{self._folder}: the producers cannot be read again after a failed append: {error}"
            )

    def come_back(self) -> bool:
        """Whether the one trouble is over that goes by itself: producers that could not be read for want of a
        descriptor."""
        if not self._producers_wait or self._health.closed:
            return False
        try:
            self._stored_producers.restore_anew(self._extent.next_offset, self.now)
        except (OSError, LogStorageError) as error:
            self._producers_wait = _is_want_of_descriptors(error)
            return False
        self._producers_wait = False
        self._health.come_back()
        return True

    def _well_again(self) -> None:
        self._trouble = self._health.refuses = False
        self._stored_producers.end_moved()
        logger.warning("%s: appends work again", self._folder)


def _is_want_of_descriptors(error: Exception) -> bool:
    return isinstance(error, OSError) and error.errno in NO_DESCRIPTORS
