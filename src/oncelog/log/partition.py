"""One partition's log: judge, stamp, append, read."""

from bisect import bisect_right
from typing import TYPE_CHECKING, NamedTuple, Self

from oncelog.clock import Now
from oncelog.log.config import LogConfig, TimestampType
from oncelog.log.disk import Disk, File, write_all
from oncelog.log.errors import LogStorageError, OffsetOutOfRange
from oncelog.producers.decision import Decision
from oncelog.records.build import build_batch
from oncelog.records.header import (
    HEADER_BYTES,
    LOG_APPEND_TIME,
    BatchHeader,
    headers,
    read_header,
    stamp,
    stamp_append_time,
)

if TYPE_CHECKING:
    from oncelog.producers import ProducerMap


class Staged(NamedTuple):
    decision: Decision
    base_offset: int  # what a producer is told; -1 where nothing is known or nothing was appended
    append_time_ms: int = -1  # with message.timestamp.type=LogAppendTime
    dropped_records: int = 0  # the first n records were in the log already
    end_offset: int = 0  # the answer is true once the high watermark has reached this


class TimestampOffset(NamedTuple):
    timestamp_ms: int
    offset: int
    leader_epoch: int


class PartitionLog:
    @classmethod
    def open(
        cls,
        disk: Disk,
        folder: str,
        config: LogConfig,
        producers: "ProducerMap",
        now: Now,
        *,
        topic: str = "",
        partition: int = 0,
        leader_epoch: int | None = None,
    ) -> Self:
        disk.mkdir(folder)
        file = disk.open(f"{folder}/{0:020d}.log", create=True)
        log = cls(file, config, producers, topic, partition)
        log._recover(now)
        log.leader_epoch = max(log.leader_epoch + 1, leader_epoch or 0)
        return log

    def __init__(self, file: File, config: LogConfig, producers: "ProducerMap", topic: str, partition: int) -> None:
        self.topic = topic
        self.partition = partition
        self.config = config
        self.producers = producers
        self.log_start_offset = 0
        self.next_offset = 0
        self.high_watermark = 0
        self.leader_epoch = -1
        self.size_bytes = 0
        self.offline: str | None = None
        self._file = file
        self._staged: list[bytearray | memoryview] = []
        self._staged_next = 0
        self._offsets: list[int] = []
        self._positions: list[int] = []

    def _recover(self, now: Now) -> None:
        data = self._file.pread(self._file.size(), 0)
        for at, header in headers(data):
            self._offsets.append(header.base_offset)
            self._positions.append(at)
            self.leader_epoch = max(self.leader_epoch, header.leader_epoch)
            if header.producer_id > 0:
                if header.is_control:
                    self.producers.fence(header.producer_id, header.producer_epoch, now)
                else:
                    self.producers.accept(
                        header.producer_id,
                        header.producer_epoch,
                        header.base_sequence,
                        header.last_offset_delta + 1,
                        header.base_offset,
                        header.max_timestamp,
                        now,
                    )
            self.next_offset = header.last_offset + 1
            self.size_bytes = at + header.size_bytes
        self._file.truncate(self.size_bytes)
        self.high_watermark = self._staged_next = self.next_offset

    def stage(self, batch: bytearray | memoryview, header: BatchHeader, now: Now) -> Staged:
        if self.offline is not None:
            raise LogStorageError(self.offline)
        dropped = 0
        if header.producer_id > 0:
            decision, detail = self.producers.judge(
                header.producer_id, header.producer_epoch, header.base_sequence, header.record_count, now
            )
            if decision is Decision.TRIM:
                from oncelog.records.trim import trim

                dropped = detail
                batch = trim(batch, dropped)
                header = read_header(batch)
            elif decision is not Decision.APPEND:
                base = detail if decision is Decision.DUPLICATE else -1
                return Staged(decision, base, end_offset=self._staged_next)
        append_time_ms = -1
        if self.config.message_timestamp_type is TimestampType.LOG_APPEND:
            append_time_ms = now.wall_ms
            stamp_append_time(batch, 0, append_time_ms)
            header = read_header(batch)
        base_offset = self._staged_next
        stamp(batch, 0, base_offset, self.leader_epoch)
        self._staged.append(batch)
        self._staged_next = base_offset + header.last_offset_delta + 1
        if header.producer_id > 0:
            self.producers.accept(
                header.producer_id,
                header.producer_epoch,
                header.base_sequence,
                header.record_count,
                base_offset,
                header.max_timestamp,
                now,
            )
        return Staged(
            Decision.TRIM if dropped else Decision.APPEND,
            base_offset - dropped,
            append_time_ms,
            dropped,
            self._staged_next,
        )

    def commit(self) -> None:
        if not self._staged:
            return
        staged, self._staged = self._staged, []
        try:
            write_all(self._file, staged, self.size_bytes)
        except OSError as error:
            raise LogStorageError(str(error)) from error
        for batch in staged:
            self._offsets.append(read_header(batch).base_offset)
            self._positions.append(self.size_bytes)
            self.size_bytes += len(batch)
        self.next_offset = self.high_watermark = self._staged_next

    def append(self, batch: bytearray | memoryview, header: BatchHeader, now: Now) -> Staged:
        staged = self.stage(batch, header, now)
        self.commit()
        return staged

    def fence(self, pid: int, generation: int, now: Now) -> tuple[Decision, int, int, int]:
        """Generation, last sequence and the fence's offset; -1 where there is none."""
        decision = self.producers.judge_fence(pid, generation, now)
        known = self.producers.highwater(pid) or (-1, -1)
        if decision is not Decision.APPEND:
            return decision, *known, -1
        batch = build_batch(
            [(b"\0\0\x4f\x4c", b"\0\0", [], now.wall_ms)],
            producer_id=pid,
            producer_epoch=generation,
            is_control=True,
            timestamp_ms=now.wall_ms,
        )
        offset = self._staged_next
        stamp(batch, 0, offset, self.leader_epoch)
        self._staged.append(batch)
        self._staged_next += 1
        self.producers.fence(pid, generation, now)
        self.commit()
        return decision, generation, known[1], offset

    def read(self, offset: int, max_bytes: int, *, at_least_one: bool = True, limit_offset: int | None = None) -> bytes:
        limit = self.high_watermark if limit_offset is None else min(limit_offset, self.next_offset)
        if not self.log_start_offset <= offset <= limit:
            raise OffsetOutOfRange(offset, self.log_start_offset, limit)
        if offset == limit:
            return b""
        at = bisect_right(self._offsets, offset) - 1
        start = self._positions[at]
        first = read_header(self._file.pread(HEADER_BYTES, start))
        if max_bytes < first.size_bytes:
            if not at_least_one:
                return b""
            max_bytes = first.size_bytes
        return self._file.pread(min(max_bytes, self.size_bytes - start), start)

    def offset_for_time(self, timestamp_ms: int) -> TimestampOffset | None:
        data = self._file.pread(self.size_bytes, 0)
        for _, header in headers(data):
            if header.max_timestamp >= timestamp_ms:
                return TimestampOffset(header.max_timestamp, header.base_offset, header.leader_epoch)
        return None

    def max_timestamp(self) -> TimestampOffset | None:
        data = self._file.pread(self.size_bytes, 0)
        best = max((header for _, header in headers(data)), key=lambda header: header.max_timestamp, default=None)
        return None if best is None else TimestampOffset(best.max_timestamp, best.last_offset, best.leader_epoch)

    def end_of_epoch(self, epoch: int) -> tuple[int, int]:
        return (epoch, self.next_offset) if epoch == self.leader_epoch else (-1, -1)

    def delete_before(self, offset: int) -> int:
        self.log_start_offset = max(self.log_start_offset, min(offset, self.high_watermark))
        return self.log_start_offset

    def maintain(self, now: Now) -> None:
        self.producers.expire(now)

    def flush(self) -> None:
        self._file.fdatasync()

    def close(self) -> None:
        self._file.close()
