"""One segment: a file of v2 batches, its index, and how a batch is found in it."""

import struct
import sys
from collections.abc import Iterator, Sequence
from typing import NamedTuple, Self

from oncelog.clock import Now
from oncelog.log.errors import Damaged
from oncelog.log.handles import Handles
from oncelog.log.index import ENTRY_BYTES, Entry, Index
from oncelog.log.names import CLEANED, cleaned_path, index_path, log_path
from oncelog.log.verdict import NO_CRC
from oncelog.records.header import HEADER_BYTES, LENGTH_PREFIX_BYTES, MAGIC, BatchHeader, Buffer, read_header

_offsets_at = struct.Struct(">qi11xi").unpack_from  # base offset, batch length, last offset delta
_epoch_and_magic_at = struct.Struct(">12xib").unpack_from
_OFFSETS_BYTES = 27
_WALK_BYTES = 64 * 1024
_LOOK_BYTES = 4096 + 512
DEFAULT_INTERVAL_BYTES = 4096
NEVER_MS = sys.maxsize
ANY = -1, sys.maxsize
_number_at = struct.Struct(">q").unpack_from
_offset_and_time = struct.Struct(">q27xq").unpack_from  # base offset, max timestamp


class Facts(NamedTuple):
    size_bytes: int
    end_offset: int
    max_timestamp_ms: int
    roll_at_ms: int


class Segment:
    __slots__ = (
        "base_offset",
        "end_offset",
        "handles",
        "has_gaps",
        "index",
        "is_sendable",
        "is_time_seen",
        "last_crc",
        "log_path",
        "max_timestamp_ms",
        "next_index_at",
        "roll_at_ms",
        "rotten",
        "size_bytes",
        "unreadable",
    )

    def __init__(self, handles: Handles, folder: str, base_offset: int) -> None:
        self.handles = handles
        self.base_offset = base_offset
        self.log_path = log_path(folder, base_offset)
        self.index = Index(handles, index_path(folder, base_offset), 0)
        self.size_bytes = 0
        self.end_offset = base_offset  # the offset after its last record
        self.last_crc = NO_CRC  # of its last batch
        self.max_timestamp_ms = -1
        self.is_time_seen = True  # in the headers, where an index said it
        self.next_index_at = 0  # the size from which the next batch gets an entry in the index
        self.roll_at_ms = NEVER_MS  # wall clock; begins with the first batch
        self.is_sendable = True  # whether answers may go from the file to a socket without being read first
        self.has_gaps = False  # compaction took records out, here or at the leader that they came from
        self.unreadable = ""  # why its index cannot be made anew; not the error, to which each raise adds its frames
        self.rotten: tuple[tuple[int, int], ...] = ()  # from where to where what is stored is not what was written

    @classmethod
    def cleaned(cls, handles: Handles, folder: str, base_offset: int, end_offset: int) -> Self:
        """An empty segment beside the old ones, which compaction will put in the place of those from the one to the
        other."""
        segment = cls(handles, folder, base_offset)
        segment.log_path = cleaned_path(segment.log_path, end_offset, CLEANED)
        segment.index = Index(handles, cleaned_path(segment.index.path, end_offset, CLEANED), 0)
        segment.index.cut_to_entries(0)
        handles.get(segment.log_path, create=True).truncate(0)
        return segment

    def reader(self, handles: Handles) -> Self:
        """The same closed segment for another thread, with files of its own."""
        reader = type(self)(handles, self.log_path.rpartition("/")[0], self.base_offset)
        reader.size_bytes = self.size_bytes
        return reader

    def not_sendable(self) -> None:
        """Readers get an error code from here on instead of half an answer."""
        self.is_sendable = False

    def find(self, offset: int) -> tuple[int, int, int, int] | None:
        """Position, size, base offset and leader epoch of the batch that holds the offset, or of the first after it.

        Raises `Damaged` where what stands there cannot be that batch. The index is believed only where the batch that
        it promises stands at the place it names, and made anew where its word leads astray.
        """
        try:
            return self._find_from(self.index.at_offset(offset), offset)
        except Damaged:
            if not self._is_index_mended():
                raise
        return self._find_from(self.index.at_offset(offset), offset)

    def _find_from(self, entry: Entry, offset: int) -> tuple[int, int, int, int] | None:
        if not self._is_within(entry, offset):
            raise self.damaged(entry.position, f"{self.index.path} names a place beyond its end")
        file = self.handles.get(self.log_path)
        position, end = entry.position, self.size_bytes
        promised = self.base_offset if entry.offset < 0 and not self.has_gaps else entry.offset
        least, most = (promised, promised) if promised >= 0 else ANY  # where the next batch may begin
        while position < end:
            chunk = file.pread(min(_LOOK_BYTES, end - position), position)
            at, last = 0, len(chunk) - _OFFSETS_BYTES
            while at <= last:
                base_offset, length, delta = _offsets_at(chunk, at)
                if length < HEADER_BYTES - LENGTH_PREFIX_BYTES:
                    raise self.damaged(position + at, f"a batch length of {length}")
                if base_offset > offset or not least <= base_offset <= most:
                    behind = self._base_offset_at(position + at + length + LENGTH_PREFIX_BYTES)
                    if self.base_offset < behind <= offset:
                        least, most = ANY
                        at += length + LENGTH_PREFIX_BYTES  # what is wrong with it is nothing to those behind it
                        continue
                    # Where it fits what follows, it was the one before that was wrong; but the index is to be believed.
                    is_right = behind == base_offset + delta + 1 and position + at > entry.position
                    if not least <= base_offset <= most and not is_right:
                        raise self.damaged(position + at, f"offset {base_offset} where {least} should be")
                least = base_offset + delta + 1
                most = ANY[1] if self.has_gaps else least
                if least > offset:
                    self._check_holder(chunk, at, position + at, offset)
                    return position + at, length + LENGTH_PREFIX_BYTES, base_offset, _epoch_and_magic_at(chunk, at)[0]
                at += length + LENGTH_PREFIX_BYTES
            if at == 0:
                raise self.damaged(position, f"{len(chunk)} bytes are no batch")
            position += at
        if self.base_offset <= offset < self.end_offset and not self.has_gaps:
            raise self.damaged(position, f"the segment ends before offset {offset}")
        return None

    def _check_holder(self, chunk: bytes, at: int, position: int, offset: int) -> None:
        """Whether the header can be that of the batch that holds the offset, or of the first after it."""
        base_offset, length, _ = _offsets_at(chunk, at)
        end = position + length + LENGTH_PREFIX_BYTES
        if _epoch_and_magic_at(chunk, at)[1] != MAGIC or end > self.size_bytes or base_offset >= self.end_offset:
            raise self.damaged(position, f"no batch that holds offset {offset} can be there")
        if base_offset > offset >= self.base_offset and not self.has_gaps:
            raise self.damaged(position, f"offset {base_offset} where {offset} should be")

    def _base_offset_at(self, position: int) -> int:
        """The offset that the header there claims, or the segment's end offset at its end; -1 where no batch begins."""
        if position == self.size_bytes:
            return self.end_offset
        header = self.batch(position, HEADER_BYTES) if position + HEADER_BYTES <= self.size_bytes else b""
        is_one = len(header) == HEADER_BYTES and header[16] == MAGIC
        return int(_number_at(header)[0]) if is_one else -1

    def rots(self, position: int, end: int) -> None:
        """Readers are told from here on, instead of being given those bytes."""
        self.rotten = tuple(sorted({*self.rotten, (position, end)}))

    def whole_until(self, position: int, end: int) -> int:
        """The end of what is whole from the batch at `position` on, `end` at most."""
        for start, behind in self.rotten:
            if start <= position < behind:
                raise self.damaged(start, f"the {behind - start} bytes from there on are not what was written")
            if position < start < end:
                return start
        return end

    def is_older(self, timestamp_ms: int) -> bool:
        """Whether all of it is. Where an index says so, its word is compared once with what it speaks of."""
        if self.max_timestamp_ms < timestamp_ms and not self.is_time_seen:
            self.is_time_seen = True
            try:
                if self._max_timestamp_before(self.size_bytes) != self.max_timestamp_ms:
                    self.rebuild_index(DEFAULT_INTERVAL_BYTES)
            except Damaged:
                pass  # there is no better word
        return self.max_timestamp_ms < timestamp_ms

    def position_at_time(self, timestamp_ms: int) -> int:
        """Every batch before it is older than the timestamp."""
        try:
            entry = self.index.at_time(timestamp_ms)
            if self._is_true(entry) and self._max_timestamp_before(entry.position) == entry.max_timestamp_ms:
                return entry.position
        except Damaged:
            pass
        self.rebuild_index(DEFAULT_INTERVAL_BYTES)
        return self.index.at_time(timestamp_ms).position

    def position_at_offset(self, offset: int) -> int:
        """Every batch before it ends before the offset."""
        entry = self.index.at_offset(offset)
        return entry.position if self._is_true(entry) else 0

    def offset_from_position(self, position: int) -> int:
        """Every record before the position is before this offset."""
        try:
            entry = self.index.from_position(position)
            return entry.offset if entry is not None and self._is_true(entry) else self.end_offset
        except Damaged:
            return self.end_offset

    def _is_within(self, entry: Entry, offset: int) -> bool:
        if entry.offset < 0:
            return entry.position == 0  # the segment's beginning
        return 0 <= entry.position < self.size_bytes or offset >= self.end_offset

    def _is_true(self, entry: Entry) -> bool:
        """Whether the batch of which the entry speaks stands where it says. The last one may speak of the end."""
        if entry.position == 0:
            return True
        if entry.position == self.size_bytes:
            return entry.offset == self.end_offset
        if not 0 < entry.position <= self.size_bytes - _OFFSETS_BYTES:
            return False
        return bool(_offsets_at(self.batch(entry.position, _OFFSETS_BYTES))[0] == entry.offset)

    def _is_index_mended(self) -> bool:
        """Whether it could be made anew: then it may have been all that was wrong."""
        if self.unreadable:
            return False
        try:
            self.rebuild_index(DEFAULT_INTERVAL_BYTES)
        except Damaged:
            return False
        return True

    def rebuild_index(self, interval_bytes: int, *, end: int | None = None) -> None:
        """The index is made from the headers, up to `end` of the log file. Where that is given, the segment's facts
        come out of it, too.

        Where they contradict one another the index stays as it is, and nobody walks through them again.
        """
        if self.unreadable:
            raise Damaged(self.unreadable)
        is_known, end = end is None, self.size_bytes if end is None else end
        entries: list[Entry] = []
        next_at, expected, max_timestamp_ms = 0, self.base_offset, -1
        try:
            for position, header in self.walk(0, end):
                if header.base_offset < expected or (header.base_offset > expected and not self.has_gaps):
                    raise self.damaged(position, f"offset {header.base_offset} where {expected} should follow")
                if position >= next_at:
                    entries.append(Entry(header.base_offset, position, max_timestamp_ms))
                    next_at = position + interval_bytes
                max_timestamp_ms = max(max_timestamp_ms, header.max_timestamp)
                expected = header.last_offset + 1
                if is_known and expected > self.end_offset:
                    raise self.damaged(position, f"offset {expected - 1} where the segment ends at {self.end_offset}")
        except Damaged as damage:
            self.unreadable = str(damage)
            raise
        self.index.cut_to_entries(0)
        for entry in entries:
            self.index.add(*entry)
        self.size_bytes, self.next_index_at, self.max_timestamp_ms = end, next_at, max_timestamp_ms
        self.end_offset = max(self.end_offset, expected)

    def walk(self, position: int = 0, end: int | None = None) -> Iterator[tuple[int, BatchHeader]]:
        """Every batch's position and header from there on, without its records and without its CRC."""
        end = self.size_bytes if end is None else end
        chunk, chunk_at = b"", position
        while position < end:
            if position + HEADER_BYTES > chunk_at + len(chunk):
                chunk, chunk_at = self.batch(position, min(_WALK_BYTES, end - position)), position
            if len(chunk) - (position - chunk_at) < HEADER_BYTES:
                raise self.damaged(position, "half a batch header")
            header = read_header(chunk, position - chunk_at)
            size_bytes = header.batch_length + LENGTH_PREFIX_BYTES
            if header.magic != MAGIC or size_bytes < HEADER_BYTES or position + size_bytes > end:
                raise self.damaged(
                    position, f"magic {header.magic} and {size_bytes} bytes where {end - position} are left"
                )
            yield position, header
            position += size_bytes

    def batch(self, position: int, size_bytes: int) -> bytes:
        return self.handles.get(self.log_path).pread(size_bytes, position)

    # Appending

    def begin(self, roll_at_ms: int) -> None:
        self.roll_at_ms = roll_at_ms

    def resume(self, now: Now, segment_ms: int) -> None:
        """A segment's age is not stored: where it was begun before this start, its first batch's own time must do."""
        if self.size_bytes == 0:
            self.roll_at_ms = NEVER_MS
            return
        first = read_header(self.batch(0, HEADER_BYTES))
        began_ms = min(first.max_timestamp, now.wall_ms) if first.max_timestamp >= 0 else now.wall_ms
        self.roll_at_ms = began_ms + segment_ms

    def appended(self, size_bytes: int, end_offset: int, max_timestamp_ms: int) -> None:
        """The segment's facts after batches at its end, for which the index has what it needs."""
        self.size_bytes = size_bytes
        self.end_offset = end_offset
        if max_timestamp_ms > self.max_timestamp_ms:
            self.max_timestamp_ms = max_timestamp_ms

    def index_appended(self, batches: Sequence[Buffer], position: int, interval_bytes: int) -> None:
        """Entries for those of the batches, written at `position`, that need one. To be called before `appended`."""
        greatest_ms = self.max_timestamp_ms
        for batch in batches:
            base_offset, max_ms = _offset_and_time(batch)
            if position >= self.next_index_at:
                self.index.add(base_offset, position, greatest_ms)
                self.next_index_at = position + interval_bytes
            position += len(batch)
            if max_ms > greatest_ms:
                greatest_ms = max_ms

    def facts(self) -> Facts:
        return Facts(self.size_bytes, self.end_offset, self.max_timestamp_ms, self.roll_at_ms)

    def put_back(self, facts: Facts) -> None:
        """The facts of before an append that failed half-way; the index follows by `cut_index`."""
        self.size_bytes, self.end_offset, self.max_timestamp_ms, self.roll_at_ms = facts

    def cut_index(self) -> None:
        self.next_index_at = 0
        self.index.cut(self.size_bytes)

    def cut_remains(self, size_bytes: int) -> None:
        """Cut off what a failed write left behind the end."""
        file = self.handles.get(self.log_path)
        if file.size() > size_bytes:
            file.truncate(size_bytes)

    def cut(self, position: int, end_offset: int) -> None:
        """The batch at `position` and all behind it go, on the disk, too."""
        file = self.handles.get(self.log_path)
        file.truncate(position)
        file.fdatasync()
        self.index.cut(position)
        self.max_timestamp_ms = self._max_timestamp_before(position)
        self.size_bytes, self.end_offset, self.next_index_at = position, end_offset, 0
        self.last_crc = NO_CRC

    def _max_timestamp_before(self, end: int) -> int:
        entry = self.index.at_position(end - 1)
        greatest_ms = entry.max_timestamp_ms
        for _, header in self.walk(entry.position, end):
            greatest_ms = max(greatest_ms, header.max_timestamp)
        return greatest_ms

    def note_appended(self, position: int, header: BatchHeader, interval_bytes: int) -> None:
        """Take one batch at the end into the index and the segment's facts."""
        if position >= self.next_index_at:
            self.index.add(header.base_offset, position, self.max_timestamp_ms)
            self.next_index_at = position + interval_bytes
        self.size_bytes = position + header.batch_length + LENGTH_PREFIX_BYTES
        self.end_offset = header.base_offset + header.last_offset_delta + 1
        self.max_timestamp_ms = max(self.max_timestamp_ms, header.max_timestamp)

    def close_index(self, end_offset: int | None = None) -> None:
        """Close the index. Its last entry says where the segment ends: behind its last record where offsets are
        missing."""
        if end_offset is not None:
            self.end_offset = end_offset
        self.index.add(self.end_offset, self.size_bytes, self.max_timestamp_ms)

    def adopt_index(self, index_bytes: int) -> None:
        """A closed segment's facts, from the last entry of its index."""
        self.index.cut_to_entries(index_bytes // ENTRY_BYTES)
        end = self.index.last()
        if end is not None:
            self.adopt_end(end)

    def adopt_end(self, end: Entry) -> None:
        self.end_offset, self.size_bytes, self.max_timestamp_ms = end
        self.is_time_seen = False

    def found(self, size_bytes: int, end_offset: int, max_timestamp_ms: int, next_index_at: int) -> None:
        """The place up to which a start has looked."""
        self.size_bytes, self.end_offset = size_bytes, end_offset
        self.max_timestamp_ms, self.next_index_at = max_timestamp_ms, next_index_at

    def forget_handles(self) -> None:
        self.handles.forget(self.log_path)
        self.handles.forget(self.index.path)

    def damaged(self, position: int, what: str) -> Damaged:
        return Damaged(f"{self.log_path} is damaged at byte {position}: {what}")
