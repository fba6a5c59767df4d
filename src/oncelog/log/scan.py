"""The part of a log that a start reads behind the recovery point, batch by batch."""

from crc32c import crc32c

from oncelog.clock import Now
from oncelog.log.aborted import Aborted
from oncelog.log.batch_replay import replay_whole
from oncelog.log.epochs import LeaderEpochs
from oncelog.log.segment import Segment
from oncelog.producers import ProducerMap
from oncelog.records.header import CRC_FROM, HEADER, HEADER_BYTES, LENGTH_PREFIX_BYTES, MAGIC, BatchHeader

CHUNK_BYTES = 4 * 1024 * 1024


class Scan:
    """Headers and CRCs of one segment's end, in one pass: index, leader epochs and producers come out of it."""

    def __init__(
        self,
        segment: Segment,
        epochs: LeaderEpochs,
        producers: ProducerMap,
        interval_bytes: int,
        now: Now,
        gaps_below: int,
        aborted: list[Aborted],
    ) -> None:
        self._gaps_below = gaps_below
        self._aborted = aborted
        self._segment = segment
        self._epochs = epochs
        self._producers = producers
        self._interval_bytes = interval_bytes
        self._now = now

    def run(self, size_bytes: int, replay_from: int) -> str:
        segment = self._segment
        position = segment.size_bytes
        while position < size_bytes:
            chunk = self._segment.batch(position, min(CHUNK_BYTES, size_bytes - position))
            taken, reason = self._take(chunk, position, replay_from)
            if reason:
                return reason
            if taken == 0:
                reason = self._take_large(chunk, position, size_bytes, replay_from)
                if reason:
                    return reason
            position = segment.size_bytes
        return ""

    def _take(self, chunk: bytes, position: int, replay_from: int) -> tuple[int, str]:
        """Every whole batch of the chunk: how many bytes they are, and why the next one is refused."""
        view = memoryview(chunk)
        segment, producers, now = self._segment, self._producers, self._now
        unpack, interval_bytes, accept = HEADER.unpack_from, self._interval_bytes, producers.accept
        at, end = 0, len(chunk)
        expected, epoch = segment.end_offset, self._epochs.latest
        last_crc = segment.last_crc
        next_index_at, max_timestamp_ms = segment.next_index_at, segment.max_timestamp_ms
        gaps_below = self._gaps_below
        reason = ""
        while at + HEADER_BYTES <= end:
            fields = unpack(chunk, at)
            base, length, its_epoch, magic, crc, attributes, delta, _, its_max_ms, pid, generation, sequence, _ = fields
            size_bytes = length + LENGTH_PREFIX_BYTES
            in_order = base == expected or expected < base < gaps_below
            if magic != MAGIC or size_bytes < HEADER_BYTES or not in_order or delta < 0 or its_epoch < epoch:
                reason = f"no batch that follows offset {expected} and epoch {epoch}"
                break
            if at + size_bytes > end:
                break
            if crc32c(view[at + CRC_FROM : at + size_bytes]) != crc:
                reason = f"the CRC of the batch of offset {base} is wrong"
                break
            if its_epoch != epoch:
                self._epochs.assign(its_epoch, base)
                epoch = its_epoch
            if position + at >= next_index_at:
                segment.index.add(base, position + at, max_timestamp_ms)
                next_index_at = position + at + interval_bytes
            if its_max_ms > max_timestamp_ms:
                max_timestamp_ms = its_max_ms
            if pid > 0 and base >= replay_from:
                if attributes & 0x30 or sequence < 0:
                    header = BatchHeader._make(fields)
                    aborted = replay_whole(producers, header, view[at : at + size_bytes], now)
                    if aborted is not None:
                        self._aborted.append(aborted)
                else:
                    accept(pid, generation, sequence, delta + 1, base, its_max_ms, now)
            last_crc = crc
            expected = base + delta + 1
            at += size_bytes
        segment.found(position + at, expected, max_timestamp_ms, next_index_at)
        segment.last_crc = last_crc
        return at, reason

    def _take_large(self, chunk: bytes, position: int, size_bytes: int, replay_from: int) -> str:
        """A batch that is larger than a chunk."""
        if len(chunk) < HEADER_BYTES:
            return "half a batch header"
        length = BatchHeader._make(HEADER.unpack_from(chunk)).batch_length + LENGTH_PREFIX_BYTES
        if position + length > size_bytes:
            return f"a batch of {length} bytes where {size_bytes - position} are left"
        taken, reason = self._take(self._segment.batch(position, length), position, replay_from)
        return reason if taken or reason else "no batch"
