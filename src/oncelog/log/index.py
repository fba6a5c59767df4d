"""One segment's sparse index: about every `index.interval.bytes` one entry, 24 bytes big-endian.

    offset i64         base offset of a batch
    position i64       where that batch begins in the segment's file
    max timestamp i64  the greatest of all batches before it, -1 before the first

The first entry says what the file is: its "offset" is a negative number made of the letters OLIX and a version. Indexes
of the folder's first format begin without it. One of another version is made anew.

All three columns only grow, so one file finds offsets and times. A closed segment ends with an entry for its own end:
its position is the size of the log file. That is how a start knows a closed segment without reading it.

Entries are appended in memory and written 512 at a time; entries up to the recovery point are always on the disk. Only
what was looked into last stays in memory, so an old segment costs no more than its name.
"""

import struct
import sys
from array import array
from bisect import bisect_left, bisect_right
from typing import NamedTuple

from oncelog.log.disk import write_all
from oncelog.log.errors import NO_DESCRIPTORS, Damaged
from oncelog.log.handles import Handles, Page

ENTRY = struct.Struct(">qqq")
ENTRY_BYTES = ENTRY.size
PAGE_ENTRIES = 512
TAIL_ENTRIES = 512
TAIL_LIMIT = 16 * TAIL_ENTRIES  # what an index keeps in memory while the disk refuses it; beyond that it gets sparser

OFFSET, POSITION, TIME = range(3)


class Entry(NamedTuple):
    offset: int
    position: int
    max_timestamp_ms: int


VERSION = 1
HEAD = Entry(int.from_bytes(b"\xffOLIX\0\0" + bytes([VERSION]), "big", signed=True), -1, -1)
BEGINNING = Entry(-1, 0, -1)


class Index:
    __slots__ = ("_handles", "_stored", "_tail", "path")

    def __init__(self, handles: Handles, path: str, stored_entries: int) -> None:
        self._handles = handles
        self._stored = stored_entries
        self._tail = (array("q"), array("q"), array("q"))
        self.path = path

    @property
    def entries(self) -> int:
        return self._stored + len(self._tail[OFFSET])

    @property
    def stored_entries(self) -> int:
        return self._stored

    @property
    def has_unwritten(self) -> bool:
        return bool(self._tail[OFFSET])

    def add(self, offset: int, position: int, max_timestamp_ms: int) -> None:
        offsets, positions, times = self._tail
        count = len(offsets)
        if count >= TAIL_LIMIT:
            return
        if not count and not self._stored:
            for column, value in zip(self._tail, HEAD, strict=True):
                column.append(value)
            count = 1
        offsets.append(offset)
        positions.append(position)
        times.append(max_timestamp_ms)
        if (count + 1) % TAIL_ENTRIES == 0:
            try:
                self.write()
            except OSError:
                return  # the entries stay in memory and go along with the next write

    def write(self) -> None:
        """Hand all entries to the operating system."""
        offsets, positions, times = self._tail
        if not offsets:
            return
        data = b"".join(map(ENTRY.pack, offsets, positions, times))
        write_all(self._handles.get(self.path, create=True), [data], self._stored * ENTRY_BYTES)
        self._stored += len(offsets)
        self._tail = (array("q"), array("q"), array("q"))
        self._handles.drop_page(self.path)

    @property
    def is_known(self) -> bool:
        """Whether both ends can be read, and its version is this one or the one that had none."""
        try:
            first, _ = (self.entry(0), self.entry(self.entries - 1)) if self.entries else (HEAD, HEAD)
        except Damaged:
            return False
        return first == HEAD or first.position >= 0

    def last(self) -> Entry | None:
        """The last entry, if it names a place."""
        last = self.entry(self.entries - 1) if self.entries else HEAD
        return None if last.position < 0 else last

    def entry(self, number: int) -> Entry:
        """The first one is number 0."""
        if number < self._stored:
            return self._entry(number)
        offsets, positions, times = self._tail
        at = number - self._stored
        return Entry(offsets[at], positions[at], times[at])

    def at_offset(self, offset: int) -> Entry:
        """The entry to begin at when looking for the batch that holds the offset: of that batch or one before it."""
        return self._search(OFFSET, offset)

    def at_time(self, timestamp_ms: int) -> Entry:
        """Every batch before this entry is older than the timestamp."""
        return self._search(TIME, timestamp_ms - 1)

    def at_position(self, position: int) -> Entry:
        """The last entry at or before a position of the log."""
        return self._search(POSITION, position)

    def from_position(self, position: int) -> Entry | None:
        """The first entry at or behind a position of the log."""
        at = bisect_left(self._tail[POSITION], position)
        if at == 0 and self._stored:
            number = self._number_of(POSITION, position - 1)
            if number < self._stored:
                return self._entry(number)
        return self.entry(self._stored + at) if at < len(self._tail[POSITION]) else None

    def cut(self, position: int) -> None:
        """Forget the entries from `position` of the log on."""
        offsets, positions, times = self._tail
        keep = bisect_right(positions, position - 1)
        if keep == 0 and self._stored:
            self._keep_stored(self._number_of(POSITION, position - 1))
        self._tail = (offsets[:keep], positions[:keep], times[:keep])

    def cut_to_entries(self, entries: int) -> None:
        """The first entries are kept: a start does not trust those behind the recovery point."""
        self._keep_stored(entries)
        self._tail = (array("q"), array("q"), array("q"))

    def _keep_stored(self, entries: int) -> None:
        """Keep this many stored entries. Where the disk refuses the cut, the next write goes over what should be gone;
        a start notices the rest. What is in the place of the file would refuse every write."""
        self._stored = entries
        self._handles.drop_page(self.path)
        try:
            file = self._handles.get(self.path, create=True)
            if file.size() != entries * ENTRY_BYTES:
                file.truncate(entries * ENTRY_BYTES)
        except IsADirectoryError:
            raise
        except OSError:
            self._handles.forget(self.path)

    def _search(self, column: int, value: int) -> Entry:
        """The last entry whose column is at most `value`; the segment's beginning when there is none."""
        tail = self._tail[column]
        at = bisect_right(tail, value) - 1
        if at >= 0:
            found = Entry(self._tail[OFFSET][at], self._tail[POSITION][at], self._tail[TIME][at])
        else:
            number = self._number_of(column, value)
            found = self._entry(number - 1) if number else BEGINNING
        return BEGINNING if found.position < 0 else found

    def _number_of(self, column: int, value: int) -> int:
        """The number of stored entries whose column is at most `value`."""
        low, high = 0, self._stored
        page = self._handles.page(self.path)
        if page is None or not self._covers(page, page.columns[column], value):
            while high - low > PAGE_ENTRIES:
                middle = (low + high) // 2
                if self._entry(middle)[column] <= value:
                    low = middle + 1
                else:
                    high = middle
            if low == high:
                return low
            # One entry before the window too, so that the next search for a little more ends in this page.
            page = self._load(max(0, low - 1))
        return page.first_entry + bisect_right(page.columns[column], value)

    def _covers(self, page: Page, values: "array[int]", value: int) -> bool:
        return values[0] <= value and (value < values[-1] or page.first_entry + len(values) == self._stored)

    def _load(self, first: int) -> Page:
        count = min(PAGE_ENTRIES + 1, self._stored - first)
        numbers = array("q", self._read(first, count))
        if sys.byteorder == "little":
            numbers.byteswap()
        page = Page(first, (numbers[OFFSET::3], numbers[POSITION::3], numbers[TIME::3]))
        self._handles.keep_page(self.path, page)
        return page

    def _entry(self, number: int) -> Entry:
        page = self._handles.page(self.path)
        if page is not None:
            offsets, positions, times = page.columns
            at = number - page.first_entry
            if 0 <= at < len(offsets):
                return Entry(offsets[at], positions[at], times[at])
        return Entry._make(ENTRY.unpack(self._read(number, 1)))

    def _read(self, first: int, count: int) -> bytes:
        """Read entries of the file. Whatever is wrong with it, it can be made anew from the log."""
        try:
            data = self._handles.get(self.path).pread(count * ENTRY_BYTES, first * ENTRY_BYTES)
        except OSError as error:
            if error.errno in NO_DESCRIPTORS:
                raise
            raise Damaged(f"{self.path} cannot be read: {error}") from error
        if len(data) != count * ENTRY_BYTES:
            raise Damaged(f"{self.path} ends before its entry {first + count}")
        return data
