"""The aborted transactions, in the file `aborted` of a partition's folder: readers of committed records need them.

    head     bytes FF "OLAT" 00 00 01, the last of them the version | i64: how many entries were dropped before these
    entries  pid i64 | first offset i64 | offset of the marker i64 | CRC-32C u32 of these | 4 zero bytes

Entries stand in the order of their markers. They are written after the markers and can be made anew from them (see
`producers/markers.py`), so a write that fails is no more than a warning. A start does so where the file does not hold
as many as the recovery point says. Entries about records that are gone are dropped, from the beginning only.

In memory there are two numbers for each block of entries: a reader passes over those that say nothing of its records.
"""

import logging
import struct
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from itertools import starmap, takewhile
from typing import NamedTuple

from crc32c import crc32c

from oncelog.log.disk import Disk, read_whole, replace_file, write_all
from oncelog.log.handles import Handles
from oncelog.log.names import ABORTED_FILE

logger = logging.getLogger(__name__)

BLOCK = 512  # entries: 16 KiB
DROPPED_AT_LEAST = 1024  # entries that are of no use any more, before the file is written anew
_HEAD = struct.Struct(">8sq")
_MAGIC = b"\xffOLAT\0\0\1"
_ENTRY = struct.Struct(">qqqI4x")
_NUMBERS = struct.Struct(">qqq")
_ENTRY_NUMBERS = struct.Struct(">qqq8x")


class Aborted(NamedTuple):
    pid: int
    first_offset: int
    marker_offset: int


class AbortedTransactions:
    def __init__(self, disk: Disk, folder: str, handles: Handles, note_name: Callable[[], None] = lambda: None) -> None:
        """`note_name` is called when a flush has a name to bring to the disk, too."""
        self._disk = disk
        self.note_name = note_name
        self._handles = handles
        self.path = f"{folder}/{ABORTED_FILE}"
        self._dropped = 0
        self._written = 0  # entries in the file
        self._unwritten: list[Aborted] = []  # none, unless the disk refused them
        self._least_first: array[int] = array("q")  # of each block in the file, the last of them perhaps not full
        self._last_marker: array[int] = array("q")
        self._said = False
        self._is_stale = False  # the file has entries that are to be gone

    def __len__(self) -> int:
        return self._written + len(self._unwritten)

    @property
    def total(self) -> int:
        """The number of all that there were, dropped ones included, as a recovery point counts them."""
        return self._dropped + len(self)

    def total_below(self, offset: int) -> int:
        """The same, as it was when the log ended there."""
        whole = bisect_left(self._last_marker, offset)  # blocks of which all are
        rest = self._block(whole) if whole < len(self._last_marker) else []
        below = sum(1 for each in (*rest, *self._unwritten) if each.marker_offset < offset)
        return self._dropped + min(whole * BLOCK, self._written) + below

    # Changes

    def load(self, up_to_offset: int) -> int:
        """Load those with a marker below the offset, as far as they are whole; what stands behind is cut off. Returns
        how many there were in all, up to there."""
        self.clear()
        try:
            data = read_whole(self._disk, self.path) if self._disk.exists(self.path) else b""
        except OSError as error:
            logger.warning("%s cannot be read: %s", self.path, error)
            return 0
        self._dropped, entries = entries_in(data)
        for each in takewhile(lambda each: each.marker_offset < up_to_offset, entries):
            self._index(each)
        if len(data) > _HEAD.size + self._written * _ENTRY.size:
            try:
                self._handles.get(self.path).truncate(_HEAD.size + self._written * _ENTRY.size)
            except OSError as error:  # then the next start finds more than there should be
                self._refused(error)
        return self.total

    def begin_with(self, entries: Iterable[Aborted], total: int) -> None:
        """Begin with entries made anew from the log, and with the number that there were in all."""
        self.clear()
        self._unwritten = list(entries)
        self._dropped = max(0, total - len(self._unwritten))
        self._replace()

    def add(self, entries: Iterable[Aborted]) -> None:
        """Their markers are in the log, in this order."""
        self.announce(entries)
        self.write()

    def announce(self, entries: Iterable[Aborted]) -> None:
        """Their markers are about to be appended: a recovery point that this moves counts them. Then comes `write`."""
        self._unwritten += entries

    def take_back(self, count: int) -> None:
        """The markers of the last ones were not appended."""
        del self._unwritten[len(self._unwritten) - count :]

    def write(self) -> None:
        """Write the entries that are not in the file yet. Where the disk refuses, they stay in memory."""
        if not self._unwritten:
            return
        try:
            if not self._written:
                self._replace_or_raise()
                return
            position = _HEAD.size + self._written * _ENTRY.size
            file = self._handles.get(self.path)
            write_all(file, [b"".join(map(_encoded, self._unwritten))], position)
            self._took()
        except OSError as error:
            self._refused(error)

    def cut_end(self, offset: int) -> None:
        """The log ends there from now on."""
        kept = [each for each in self._unwritten if each.marker_offset < offset]
        if not self._written or self._last_marker[-1] < offset:
            self._unwritten = kept
            return
        self._unwritten = [each for each in self._each() if each.marker_offset < offset]
        self._begin_anew()
        self._replace_or_raise()  # entries of other records would be taken for those of what comes next

    def forget_below(self, offset: int) -> None:
        """No reader meets a record before it that was written in a transaction. Whole blocks go, unread."""
        blocks = bisect_left(self._last_marker, offset)
        gone = min(blocks * BLOCK, self._written)
        if gone < max(DROPPED_AT_LEAST, len(self) // 2):
            return
        kept_bytes = (self._written - gone) * _ENTRY.size
        try:
            kept = self._handles.get(self.path).pread(kept_bytes, _HEAD.size + gone * _ENTRY.size)
            if len(kept) < kept_bytes:
                raise OSError(5, "it is shorter than the entries written to it", self.path)
            self._handles.forget(self.path)
            replace_file(self._disk, self.path, _HEAD.pack(_MAGIC, self._dropped + gone) + kept, durable=False)
        except OSError as error:
            logger.warning("%s stays as it is: %s", self.path, error)
            return
        self.note_name()
        self._dropped += gone
        self._written -= gone
        del self._least_first[:blocks], self._last_marker[:blocks]

    def drop_below(self, offset: int) -> None:
        """Entries go at once, also on the disk: compaction is about to remove markers, and a reader that gets an entry
        looks for its marker. Of those before the offset no record is left. Raises OSError."""
        every = list(self._each())
        kept = [each for each in every if each.marker_offset >= offset]
        if len(kept) < len(every):
            self._is_stale = True
            self._dropped += len(every) - len(kept)
            self._unwritten = kept
            self._begin_anew()
        if self._is_stale:
            self._replace_or_raise(durable=True)
            self._is_stale = False

    def clear(self) -> None:
        """Forget all entries: the file is written anew when there is something to write."""
        self._handles.forget(self.path)
        self._dropped = self._written = 0
        self._unwritten = []
        self._least_first, self._last_marker = array("q"), array("q")

    # Reading

    def between(self, offset: int, end_offset: int) -> list[Aborted]:
        """The entries with records within these offsets."""
        found = [each for block in self._blocks(offset, end_offset) for each in self._block(block)]
        return [each for each in (*found, *self._unwritten) if _is_within(each, offset, end_offset)]

    def told_between(self, offset: int, end_offset: int) -> list[tuple[int, int]]:
        """The pid and the first offset of each of them, as readers are told. They may be very many."""
        found = [
            (pid, first_offset)
            for block in self._blocks(offset, end_offset)
            for pid, first_offset, marker_offset in _ENTRY_NUMBERS.iter_unpack(self._bytes(block))
            if first_offset < end_offset and marker_offset >= offset
        ]
        return found + [each[:2] for each in self._unwritten if _is_within(each, offset, end_offset)]

    def most_between(self, offset: int, end_offset: int) -> int:
        """The most entries that there can be within these offsets, found without the file."""
        return BLOCK * sum(1 for _ in self._blocks(offset, end_offset)) + len(self._unwritten)

    def _blocks(self, offset: int, end_offset: int) -> Iterator[int]:
        for block in range(bisect_left(self._last_marker, offset), len(self._last_marker)):
            if self._least_first[block] < end_offset:
                yield block

    def __bool__(self) -> bool:
        return bool(self._written or self._unwritten)

    def _each(self) -> Iterator[Aborted]:
        for block in range(len(self._last_marker)):
            yield from self._block(block)
        yield from self._unwritten

    def _block(self, block: int) -> list[Aborted]:
        return list(starmap(Aborted, _ENTRY_NUMBERS.iter_unpack(self._bytes(block))))

    def _bytes(self, block: int) -> bytes:
        count = min(BLOCK, self._written - block * BLOCK)
        position = _HEAD.size + block * BLOCK * _ENTRY.size
        data = self._handles.get(self.path).pread(count * _ENTRY.size, position)
        if len(data) < count * _ENTRY.size:
            raise OSError(5, "it is shorter than the entries written to it", self.path)
        return data

    # Below

    def _index(self, entry: Aborted) -> None:
        """Take an entry of the file into the index."""
        if self._written % BLOCK == 0:
            self._least_first.append(entry.first_offset)
            self._last_marker.append(entry.marker_offset)
        else:
            self._least_first[-1] = min(self._least_first[-1], entry.first_offset)
            self._last_marker[-1] = entry.marker_offset
        self._written += 1

    def _took(self) -> None:
        for each in self._unwritten:
            self._index(each)
        self._unwritten = []
        self._said = False

    def _replace(self) -> None:
        """The file shall hold what is in memory, all of which is unwritten."""
        self._begin_anew()
        try:
            self._replace_or_raise()
        except OSError as error:
            self._refused(error)

    def _begin_anew(self) -> None:
        self._written = 0
        self._least_first, self._last_marker = array("q"), array("q")

    def _replace_or_raise(self, *, durable: bool = False) -> None:
        self._handles.forget(self.path)
        data = b"".join((_HEAD.pack(_MAGIC, self._dropped), *map(_encoded, self._unwritten)))
        replace_file(self._disk, self.path, data, durable=durable)
        self.note_name()
        self._took()

    def _refused(self, error: OSError) -> None:
        if not self._said:
            logger.warning("%s is kept in memory; a start makes it anew: %s", self.path, error)
            self._said = True


def entries_in(data: bytes) -> tuple[int, Iterator[Aborted]]:
    """The number of dropped entries of a file, and the entries in it, as far as they are whole and in order."""
    if len(data) < _HEAD.size or not data.startswith(_MAGIC):
        return 0, iter(())
    return _HEAD.unpack_from(data)[1], _whole_entries(data)


def _whole_entries(data: bytes) -> Iterator[Aborted]:
    last_marker, end = -1, len(data) - (len(data) - _HEAD.size) % _ENTRY.size
    for *numbers, crc in _ENTRY.iter_unpack(memoryview(data)[_HEAD.size : end]):
        entry = Aborted(*numbers)
        if entry.marker_offset <= last_marker or crc32c(_NUMBERS.pack(*entry)) != crc:
            return
        yield entry
        last_marker = entry.marker_offset


def _is_within(entry: Aborted, offset: int, end_offset: int) -> bool:
    return entry.marker_offset >= offset and entry.first_offset < end_offset


def _encoded(entry: Aborted) -> bytes:
    return _ENTRY.pack(*entry, crc32c(_NUMBERS.pack(*entry)))
