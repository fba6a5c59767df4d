"""The content of a cleaned segment: the keys that are newer elsewhere, and batches without their outdated records."""

from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from hashlib import blake2b
from threading import Event

from oncelog.log.aborted import Aborted
from oncelog.log.batch_replay import aborted_of
from oncelog.log.disk import write_all
from oncelog.log.handles import Handles
from oncelog.log.segment import Segment
from oncelog.producers import FIRST_KAFKA_PID
from oncelog.records.errors import InvalidRecord
from oncelog.records.header import HEADER, BatchHeader, body_crc
from oncelog.records.read import Record, records_of
from oncelog.records.trim import emptied, retain

_PARTS = 64
_DIGEST_BYTES = 16  # so that two keys never meet by accident, and a key of any size costs the same


class Stopped(Exception):
    """Nobody waits for the end of it any more."""


@dataclass(slots=True)
class Rules:
    live_pids: frozenset[int]
    tombstone_ms: int
    first_pass_ms: Callable[[int], int | None]
    key_limit: int
    wall_ms: int
    ended_behind: tuple[Aborted, ...] = ()  # aborted transactions with records here, and their markers behind


def whole_batches(handles: Handles, segment: Segment, stop: Event) -> Iterator[tuple[BatchHeader, bytes]]:
    """Every batch of a closed segment. LogStorageError where it is not what was written."""
    reader = segment.reader(handles)
    for position, header in reader.walk():
        if stop.is_set():
            raise Stopped
        batch = reader.batch(position, header.size_bytes)
        if body_crc(batch, 0, len(batch)) != header.crc:
            raise reader.damaged(position, f"the CRC of the batch of offset {header.base_offset} is wrong")
        yield header, batch


def records_or_none(batch: bytes) -> list[Record] | None:
    """None for a body that is no records: it was stored without a look into it, and is left as it is."""
    try:
        return records_of(batch, check_crc=False)
    except InvalidRecord:
        return None


class KeyMap:
    """The last offset of each key in the part not compacted before. Bounded; the next pass takes up the rest."""

    def __init__(self, limit: int, stop: Event) -> None:
        self._limit = limit
        self._stop = stop
        # One of many parts grows, or is given back, in no time; a whole map stops every other thread for that.
        self._offsets: list[dict[bytes, int]] = [{} for _ in range(_PARTS)]
        self._end_offset = 0

    def fill(self, handles: Handles, segments: list[Segment], dirty_offset: int, seen: "Seen") -> int:
        """The offset up to which every key is in the map."""
        for segment in segments:
            if segment.end_offset <= dirty_offset:
                continue
            for header, batch in whole_batches(handles, segment, self._stop):
                if header.last_offset < dirty_offset or header.is_control or seen.is_aborted(header):
                    continue
                known = sum(map(len, self._offsets))
                if known and known + header.record_count > self._limit:
                    self._end_offset = header.base_offset
                    return self._end_offset
                for record in records_or_none(batch) or ():
                    if record.key is not None:
                        digest = _digest(record.key)
                        self._offsets[digest[0] % _PARTS][digest] = record.offset
        self._end_offset = segments[-1].end_offset
        return self._end_offset

    def is_last(self, key: bytes, offset: int) -> bool:
        if offset >= self._end_offset:
            return True
        digest = _digest(key)
        return self._offsets[digest[0] % _PARTS].get(digest, -1) <= offset

    def forget(self) -> None:
        """Part by part; to let go of all at once takes as long as nothing else may run."""
        while self._offsets:
            self._offsets.pop()

    def covers(self, offset: int) -> bool:
        return offset < self._end_offset


def _digest(key: bytes) -> bytes:
    return blake2b(key, digest_size=_DIGEST_BYTES).digest()


class Seen:
    """Facts about the segments to be cleaned: where each live producer wrote last, where its last control batch is, and
    which transactions were aborted.

    A producer's very last batch may lie behind them. A log that is cut back before that one must still know it.
    """

    def __init__(self, rules: Rules, handles: Handles, segments: list[Segment], stop: Event) -> None:
        self._last: dict[tuple[int, bool], int] = {}
        # By pid: where each began, and where its marker is, in the order of the markers.
        self._aborted: dict[int, tuple[array[int], array[int]]] = {}
        for segment in segments:
            reader = segment.reader(handles)
            for position, header in reader.walk():
                if stop.is_set():
                    raise Stopped
                if header.producer_id in rules.live_pids:
                    self._last[header.producer_id, header.is_control] = header.base_offset
                if header.is_control:
                    aborted = aborted_of(header, reader.batch(position, header.size_bytes))
                    if aborted is not None:
                        self._note_aborted(aborted)

        for aborted in rules.ended_behind:
            self._note_aborted(aborted)

    def _note_aborted(self, aborted: Aborted) -> None:
        firsts, markers = self._aborted.setdefault(aborted.pid, (array("q"), array("q")))
        firsts.append(aborted.first_offset)
        markers.append(aborted.marker_offset)

    def holds_last(self, header: BatchHeader) -> bool:
        return self._last.get((header.producer_id, header.is_control)) == header.base_offset

    def is_aborted(self, header: BatchHeader) -> bool:
        if not header.is_transactional or header.producer_id not in self._aborted:
            return False
        firsts, markers = self._aborted[header.producer_id]
        at = bisect_left(markers, header.base_offset)
        return at < len(firsts) and firsts[at] <= header.base_offset


class Cleaner:
    """Writes one cleaned segment."""

    def __init__(
        self,
        handles: Handles,
        folder: str,
        rules: Rules,
        keys: KeyMap,
        seen: Seen,
        interval_bytes: int,
        stop: Event,
    ) -> None:
        self._stop = stop
        self._seen = seen
        self._left: set[int] = set()  # producers of which a transactional batch stays whose marker is yet to come
        self._handles = handles
        self._folder = folder
        self._rules = rules
        self._keys = keys
        self._interval_bytes = interval_bytes

    def clean(self, segments: list[Segment], base_offset: int, end_offset: int) -> None:
        written = Segment.cleaned(self._handles, self._folder, base_offset, end_offset)
        for segment in segments:
            for header, batch in whole_batches(self._handles, segment, self._stop):
                # The last one stays in any case, so that a segment tells by itself where it ends.
                ends = header.last_offset + 1 == end_offset
                self._write(written, self._cleaned(header, batch, ends or self._seen.holds_last(header)))
        written.close_index(end_offset)
        written.index.write()
        self._handles.get(written.log_path).fdatasync()
        self._handles.get(written.index.path).fdatasync()
        written.forget_handles()

    def _write(self, written: Segment, batch: bytes | bytearray | None) -> None:
        if batch is not None:
            write_all(self._handles.get(written.log_path), [batch], written.size_bytes)
            written.note_appended(
                written.size_bytes, BatchHeader._make(HEADER.unpack_from(batch)), self._interval_bytes
            )

    def _cleaned(self, header: BatchHeader, batch: bytes, must_stay: bool) -> bytes | bytearray | None:
        if header.is_control:
            return batch if self._control_stays(header) or must_stay else None
        cleaned = self._cleaned_records(header, batch, must_stay)
        if cleaned is not None and header.is_transactional:
            self._left.add(header.producer_id)
        return cleaned

    def _cleaned_records(self, header: BatchHeader, batch: bytes, must_stay: bool) -> bytes | bytearray | None:
        if self._seen.is_aborted(header):
            return emptied(batch) if must_stay else None
        records = records_or_none(batch)
        if records is None:
            return batch
        keep = [self._stays(record) for record in records]
        if not must_stay and not any(keep):
            return None
        return batch if all(keep) else retain(batch, keep)

    def _control_stays(self, header: BatchHeader) -> bool:
        """A marker goes when nothing is left of its transaction, and every reader had time to meet it."""
        if header.producer_id < FIRST_KAFKA_PID:
            return not self._keys.covers(header.base_offset)
        if header.producer_id in self._left:
            self._left.discard(header.producer_id)
            return True
        return not self._keys.covers(header.base_offset) or self._is_recent(header.base_offset)

    def _is_recent(self, offset: int) -> bool:
        """Whether readers that began before it was first passed over may still be on their way to it."""
        first_pass_ms = self._rules.first_pass_ms(offset)
        return first_pass_ms is None or self._rules.wall_ms - first_pass_ms < self._rules.tombstone_ms

    def _stays(self, record: Record) -> bool:
        if not self._keys.covers(record.offset):
            return True
        if record.key is None or not self._keys.is_last(record.key, record.offset):
            return False
        return record.value is not None or self._is_recent(record.offset)
