"""Reading a partition's folder from the first byte to the last, and changing nothing.

A start looks only at what lies behind the recovery point. This looks at everything: each batch's frame, CRC, offsets
and epoch, what indexes and snapshots say of them, and whether the pieces fit together. Damage is what a start would
refuse or a reader would miss; what a start mends by itself, such as a torn write or a wrong index, is a note.
`verdict.py` decides which of the two it is, here as in a start.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from oncelog.log import notes, snapshots
from oncelog.log.aborted_check import AbortedCheck
from oncelog.log.cleaner_state import CleanerState
from oncelog.log.compaction_swap import damage_of_swap
from oncelog.log.disk import Disk, File, read_whole
from oncelog.log.errors import LogStorageError
from oncelog.log.index import ENTRY, ENTRY_BYTES, HEAD
from oncelog.log.knowledge import NO_LIMIT, gaps_below, known_of, lost_log, noted_beginning, opened_of
from oncelog.log.names import (
    ABORTED_FILE,
    BEGINNING,
    CLEANED,
    CLEANER_FILE,
    EPOCH_FILE,
    FLUSHED_FILE,
    INDEX,
    LOG,
    SNAPSHOT,
    START_FILE,
    SWAP,
    TEMPORARY,
    WRITTEN_FILE,
    index_path,
    log_path,
    offsets_of,
    snapshot_path,
    swap_of,
)
from oncelog.log.search import first_whole, whole_behind
from oncelog.log.verdict import NO_CRC, Ending, Written, are_two, damage_of, not_as_written
from oncelog.producers import CorruptSnapshot
from oncelog.producers.snapshot import decode as decode_producers
from oncelog.records.header import (
    HEADER_BYTES,
    LENGTH_PREFIX_BYTES,
    MAGIC,
    BatchHeader,
    body_crc,
    read_header,
)

SMALL_FILES = (EPOCH_FILE, START_FILE, CLEANER_FILE, FLUSHED_FILE, WRITTEN_FILE, ABORTED_FILE)
CHUNK_BYTES = 4 * 2**20
MOST_FINDINGS = 20  # of one folder; the others are counted

OnBatch = Callable[[BatchHeader, bytes], None]


@dataclass(slots=True)
class Checked:
    """The findings in one place."""

    name: str
    damage: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    left_out: int = 0  # findings that are not listed
    batches: int = 0
    records: int = 0
    size_bytes: int = 0
    start_offset: int = 0
    end_offset: int = 0

    def damaged(self, text: str) -> None:
        self._add(self.damage, text)

    def note(self, text: str) -> None:
        self._add(self.notes, text)

    def _add(self, findings: list[str], text: str) -> None:
        if len(findings) < MOST_FINDINGS:
            findings.append(text)
        else:
            self.left_out += 1


class Piece(NamedTuple):
    """One segment's files, wherever a compaction that was cut short left them."""

    base_offset: int
    log_path: str
    index_path: str


class Unreadable(NamedTuple):
    """No batch begins there, or half of one."""

    position: int
    reason: str


def check_partition(
    disk: Disk,
    folder: str,
    on_batch: OnBatch | None = None,
    *,
    replicated: bool = False,
    stayed_up: bool = False,
    owner: str = "",
) -> Checked:
    """`on_batch` is called with every batch that is whole; the others are as in `PartitionLog.open`."""
    checked = Checked(folder.rpartition("/")[2])
    try:
        _Check(disk, folder, checked, on_batch, replicated, stayed_up, owner).run()
    except OSError as error:
        checked.damaged(f"cannot be read: {error}")
    return checked


class _Check:
    def __init__(
        self,
        disk: Disk,
        folder: str,
        checked: Checked,
        on_batch: OnBatch | None,
        replicated: bool,
        stayed_up: bool,
        owner: str,
    ) -> None:
        self._disk = disk
        self._replicated = replicated
        self._owner = owner
        self._folder = folder
        self._checked = checked
        self._on_batch = on_batch
        self._names = sorted(disk.listdir(folder))
        self._opened = opened_of(disk, folder, self._names)
        self._known = known_of(disk, folder, self._names, self._opened, stayed_up)
        self._place = self._known.last_place
        self._gaps_below = NO_LIMIT if replicated else gaps_below(disk, folder, self._names, self._known)
        self._snapshot: snapshots.Snapshot | None = None  # the newest that is good
        self._newest: snapshots.Snapshot | None = None  # the same, for as long as this looks
        self._aborted = AbortedCheck(disk, folder)
        self._compacted_to = 0
        self._expected = -1  # the offset that comes next, where that is known
        self._end = (-1, 0)  # the segment that the batch before is in, and the byte where that ends
        self._last_crc = NO_CRC  # of that batch, if it is whole
        self._epoch = -1
        self._is_cut = False  # a start ends the log before what follows

    def run(self) -> None:
        checked = self._checked
        for offset in offsets_of(self._names, BEGINNING):
            checked.note(f"a start lets the log begin anew at offset {offset}, as its leader's does")
            checked.start_offset = checked.end_offset = offset
            return
        self._check_names()
        if not self._names:
            checked.note("the folder is empty: if there were records in it, they are gone")
        checked.start_offset = self._stored_start()
        self._check_small_files()
        pieces = self._pieces()
        self._check_snapshots(pieces)
        lost = lost_log(self._names, self._known.stayed_up)
        if lost >= 0:
            self._checked.damaged(f"{_name(log_path(self._folder, lost))} is missing, and its index is there")
        if not pieces:
            checked.end_offset = checked.start_offset
            if self._known.durable_offset > checked.start_offset:
                checked.damaged(
                    f"there is no segment, but there were records up to offset {self._known.durable_offset}"
                )
            return
        first = pieces[0].base_offset
        noted = noted_beginning(self._disk, self._folder, self._names, first, checked.start_offset)
        if noted < 0 and not self._replicated:
            checked.damaged(f"the segments before offset {first} are missing")
        checked.start_offset = max(checked.start_offset, first)
        for number, piece in enumerate(pieces):
            if not self._is_cut:
                self._check_segment(piece, pieces[number + 1 :])
        if self._snapshot is not None:
            self._check_end(self._snapshot, pieces[-1])
        self._check_aborted()
        checked.end_offset = max(self._expected, checked.start_offset)
        if self._known.stayed_up and self._expected < checked.start_offset:
            checked.damaged(
                f"{START_FILE} says that it begins at {checked.start_offset}, but it ends at {self._expected}"
            )
        if checked.end_offset < self._known.durable_offset:
            checked.damaged(
                f"it ends at offset {self._expected}, but records up to {self._known.durable_offset} were on the disk"
            )

    def _check_end(self, snapshot: snapshots.Snapshot, last: Piece) -> None:
        """The end of a log with nothing behind its recovery point."""
        point = snapshot.point
        if self._replicated and self._end == (point.base_offset, point.position):
            self._expected = max(self._expected, point.offset)  # a cut may have ended in a gap
        if self._expected >= point.offset:
            self._check_point(snapshot, self._end, (last.base_offset, 0))

    # What is there

    def _check_names(self) -> None:
        numbered = {
            f"{offset:020d}{ending}" for ending in (LOG, INDEX, SNAPSHOT) for offset in offsets_of(self._names, ending)
        }
        for name in self._names:
            if name.endswith((TEMPORARY, CLEANED, SWAP)):
                self._checked.note(f"{name} is left from work that was cut short; a start finishes or removes it")
            elif name not in numbered and name not in SMALL_FILES:
                self._checked.note(f"{name} is no file of a partition")

    def _pieces(self) -> list[Piece]:
        found = {
            base: Piece(base, log_path(self._folder, base), index_path(self._folder, base))
            for base in offsets_of(self._names, LOG)
        }
        for swap in filter(None, map(swap_of, self._names)):
            if swap.is_log:  # decided, so it counts already
                damage = damage_of_swap(self._disk, self._folder, swap)
                if damage:
                    self._checked.damaged(damage)
                    continue
                for base in [base for base in found if swap.base_offset <= base < swap.end_offset]:
                    del found[base]
                index_swap = swap.name.replace(LOG, INDEX, 1)
                index = f"{self._folder}/{index_swap}" if index_swap in self._names else ""
                found[swap.base_offset] = Piece(
                    swap.base_offset,
                    f"{self._folder}/{swap.name}",
                    index or index_path(self._folder, swap.base_offset),
                )
        return [found[base] for base in sorted(found)]

    # The small files

    def _stored_start(self) -> int:
        if START_FILE not in self._names:
            return 0
        try:
            return notes.read_start(self._disk, self._folder)
        except LogStorageError as damage:
            self._checked.damaged(str(damage))
            return 0

    def _check_small_files(self) -> None:
        if EPOCH_FILE in self._names:
            wrong = notes.what_is_wrong_with_owner(self._folder, self._opened, self._owner)
            if wrong:
                self._checked.damaged(wrong)
            if self._opened.epoch < 0:
                self._checked.note(f"{EPOCH_FILE} holds no epoch; a start goes by the batches")
        if FLUSHED_FILE in self._names and self._known.flushed.offset < 0:
            self._checked.note(f"{FLUSHED_FILE} is not what was written; a start does without it")
        if WRITTEN_FILE in self._names and self._known.stayed_up and self._known.written.offset < 0:
            self._checked.note(f"{WRITTEN_FILE} is damaged or of an earlier boot; a start does without it")
        if CLEANER_FILE in self._names:
            try:
                state = CleanerState.decode(read_whole(self._disk, f"{self._folder}/{CLEANER_FILE}"))
                self._compacted_to = state.dirty_offset
            except ValueError as error:
                self._checked.note(f"{CLEANER_FILE} is wrong ({error}); compaction begins anew")

    def _check_snapshots(self, pieces: list[Piece]) -> None:
        bases = {piece.base_offset: piece for piece in pieces}
        newest = True
        for offset in reversed(offsets_of(self._names, SNAPSHOT)):
            name = f"{offset:020d}{SNAPSHOT}"
            snapshot = snapshots.read_snapshot(self._disk, self._folder, offset)
            try:
                if snapshot is None:
                    raise CorruptSnapshot("it is not what was written")
                decode_producers(snapshot.producers)
            except CorruptSnapshot as damage:
                self._checked.damaged(f"{name}: {damage}")
                continue
            piece = bases.get(snapshot.point.base_offset)
            if newest and bases and piece is None and snapshot.point.base_offset >= min(bases):
                self._checked.damaged(f"{name} speaks of the segment {snapshot.point.base_offset}, which is missing")
            if newest and piece is not None:
                self._snapshot = self._newest = snapshot
            newest = False

    def _check_aborted(self) -> None:
        """Check the aborted transactions. Where the log itself is damaged, nothing can be said of them."""
        checked, note = self._checked, self._aborted.note(self._newest)
        if note:
            checked.note(note)
        elif not checked.damage:
            damage = self._aborted.damage(self._newest, checked.start_offset, self._compacted_to)
            if damage:
                checked.damaged(damage)

    # The segments

    def _check_segment(self, piece: Piece, following: list[Piece]) -> None:
        if 0 <= self._expected != piece.base_offset:
            # No gap of compaction: the last batch of a segment always stays.
            reason = f"it begins at offset {piece.base_offset}, the segment before it ends at {self._expected}"
            self._problem(piece, 0, reason, [piece, *following])
            if self._is_cut:
                return
        self._expected = piece.base_offset
        size_bytes = self._disk.size(piece.log_path)
        self._checked.size_bytes += size_bytes
        index = _IndexCheck(self._disk, piece.index_path)
        if index.is_folder:
            self._checked.damaged(f"{_name(piece.index_path)} is a folder. Move it away; the index is made anew")
        max_timestamp_ms, position = -1, 0
        file = self._disk.open(piece.log_path)
        try:
            for position, header, batch in self._batches(file, piece, size_bytes, following):
                if not self._check_batch(piece, position, header, batch, following):
                    break
                if following or header.base_offset < self._known.point_offset:
                    index.saw(header.base_offset, position, max_timestamp_ms)
                max_timestamp_ms = max(max_timestamp_ms, header.max_timestamp)
        finally:
            file.close()
        if self._is_cut:
            return
        if following:
            index.ended(self._expected, size_bytes, max_timestamp_ms)
        else:
            index.reached(self._known.point_offset)
        if index.is_wrong and not index.is_folder:
            self._checked.note(f"{_name(piece.index_path)} is missing or wrong; it is made anew where it is needed")

    def _batches(
        self, file: File, piece: Piece, size_bytes: int, following: list[Piece]
    ) -> Iterator[tuple[int, BatchHeader, bytes]]:
        """The batches of a segment. Where the chain of lengths is broken, the next whole one follows."""
        position: int | None = 0
        while position is not None:
            broken = None
            for found in batches(file, position, size_bytes):
                if isinstance(found, Unreadable):
                    broken = found
                else:
                    yield found
            if broken is None:
                return
            position = first_whole(file, broken.position, size_bytes, self._expected)
            left_bytes = (size_bytes if position is None else position) - broken.position
            self._problem(
                piece, broken.position, broken.reason, following, f"; {left_bytes} bytes from there on are lost"
            )
            if self._is_cut:
                return
            if position is not None:
                self._expected = read_header(file.pread(HEADER_BYTES, position)).base_offset

    def _check_batch(
        self, piece: Piece, position: int, header: BatchHeader, batch: bytes, following: list[Piece]
    ) -> bool:
        """Whether to go on with what follows."""
        if self._snapshot is not None and self._snapshot.point.offset <= header.base_offset:
            self._check_point(self._snapshot, self._end, (piece.base_offset, position))
            self._epoch, self._snapshot = self._snapshot.epochs.latest, None  # as a start knows it
        if header.base_offset != self._expected:
            self._out_of_order(piece, position, header.base_offset, following)
        epoch = header.leader_epoch
        latest = epoch if self._snapshot is None else self._snapshot.epochs.latest
        if not self._epoch <= epoch <= latest and not self._is_cut:
            what = f"follows epoch {self._epoch}" if epoch < self._epoch else f"where there was none above {latest}"
            self._problem(piece, position, f"epoch {epoch} {what}", following)
            epoch = self._epoch
        is_whole = body_crc(batch, 0, len(batch)) == header.crc
        if not is_whole and not self._is_cut:
            reason = f"the CRC of the batch of offset {header.base_offset} is wrong"
            self._problem(piece, position, reason, following)
        if self._is_cut:
            return False
        crc = header.crc if is_whole else NO_CRC
        begins_there = header.base_offset < max(self._place.offset, self._gaps_below)  # or it is missing, and was told
        if begins_there and self._expected < self._place.offset <= header.last_offset + 1:
            self._check_place(Written(header.last_offset + 1, piece.base_offset, position + len(batch), crc))
        self._expected = max(self._expected, header.last_offset + 1)
        self._end = piece.base_offset, position + len(batch)
        self._last_crc = crc
        self._epoch = epoch
        if is_whole:
            self._checked.batches += 1
            self._checked.records += 0 if header.is_control else header.record_count
            self._aborted.saw(header, batch)
            if self._on_batch is not None:
                self._on_batch(header, batch)
        return True

    def _check_place(self, found: Written) -> None:
        """The batch is compared with which the log ended when that was noted."""
        if found._replace(crc=NO_CRC) != self._place._replace(crc=NO_CRC) or are_two(found.crc, self._place.crc):
            path = log_path(self._folder, self._place.base_offset)
            self._checked.damaged(not_as_written(_name(path), self._place))

    def _check_point(self, snapshot: snapshots.Snapshot, *places: tuple[int, int]) -> None:
        """The end of a segment and the beginning of the next are two names of one place."""
        point = snapshot.point
        if (point.base_offset, point.position) not in places or are_two(self._last_crc, snapshot.last_crc):
            self._checked.damaged(
                f"{_name(snapshot_path(self._folder, point.offset))} is of another log: offset {point.offset} is not "
                f"at byte {point.position} of the segment {point.base_offset}, or not behind the batch that was there"
            )

    def _out_of_order(self, piece: Piece, position: int, base_offset: int, following: list[Piece]) -> None:
        if base_offset < self._expected:
            self._problem(piece, position, f"offset {base_offset} comes again or is wrong", following)
        elif base_offset >= self._gaps_below:
            reason = f"the offsets from {self._expected} to {base_offset} are missing"
            self._problem(piece, position, reason, following)

    def _problem(self, piece: Piece, position: int, reason: str, following: list[Piece], more: str = "") -> None:
        """Note the damage there. Behind the recovery point a start would end the log here; then what it makes of it is
        told."""
        name = _name(piece.log_path)
        if self._expected >= self._known.durable_offset:
            paths = [piece.log_path, *(each.log_path for each in following)]
            behind = whole_behind(self._disk, paths, position, self._expected)
            if not damage_of(Ending(piece.log_path, position, self._expected, reason, behind), self._known):
                self._is_cut = True
                what = "with a torn write" if not behind else "where the machine stopped before a flush"
                self._checked.note(f"{name} ends {what}; a start cuts off what follows byte {position}: {reason}")
                return
        self._checked.damaged(f"{name} at byte {position}: {reason}{more}")


class _IndexCheck:
    """Whether each entry of an index speaks of a batch that is there."""

    def __init__(self, disk: Disk, path: str) -> None:
        data, self.is_folder = b"", False
        try:
            data = read_whole(disk, path) if disk.exists(path) else b""
        except IsADirectoryError:
            self.is_folder = True
        except OSError:
            pass  # as good as none
        self._entries = ENTRY.iter_unpack(data[: len(data) // ENTRY_BYTES * ENTRY_BYTES])
        self._next = next(self._entries, None)
        self.is_wrong = self._next is not None and self._next[1] < 0 and self._next != HEAD
        if self._next == HEAD:
            self._next = next(self._entries, None)

    def saw(self, offset: int, position: int, max_before_ms: int) -> None:
        if self._next is not None and self._next[1] <= position:
            self.is_wrong = self.is_wrong or self._next != (offset, position, max_before_ms)
            self._next = next(self._entries, None)

    def reached(self, offset: int) -> None:
        """The walk has come so far. Only what is known to be on the disk can be asked for of the active segment."""
        self.is_wrong = self.is_wrong or (self._next is not None and self._next[0] < offset)

    def ended(self, offset: int, size_bytes: int, max_timestamp_ms: int) -> None:
        self.is_wrong = self.is_wrong or self._next != (offset, size_bytes, max_timestamp_ms)


def batches(
    file: File, position: int, size_bytes: int, chunk_bytes: int = CHUNK_BYTES
) -> Iterator[tuple[int, BatchHeader, bytes] | Unreadable]:
    """Position, header and bytes of each batch from there on; at last why there is no further one before the end."""
    chunk, chunk_at = b"", position
    while position < size_bytes:
        left_bytes = size_bytes - position
        if position + HEADER_BYTES > chunk_at + len(chunk):
            chunk, chunk_at = file.pread(min(chunk_bytes, left_bytes), position), position
        if position + HEADER_BYTES > chunk_at + len(chunk):
            yield Unreadable(position, "half a batch header")
            return
        header = read_header(chunk, position - chunk_at)
        batch_bytes = header.batch_length + LENGTH_PREFIX_BYTES
        if header.magic != MAGIC or batch_bytes < HEADER_BYTES or header.last_offset_delta < 0:
            yield Unreadable(position, "no batch begins there")
            return
        if batch_bytes > left_bytes:
            yield Unreadable(position, f"a batch of {batch_bytes} bytes where {left_bytes} are left")
            return
        if position + batch_bytes > chunk_at + len(chunk):
            chunk, chunk_at = file.pread(min(max(chunk_bytes, batch_bytes), left_bytes), position), position
        at = position - chunk_at
        yield position, header, chunk[at : at + batch_bytes]
        position += batch_bytes


def _name(path: str) -> str:
    return path.rpartition("/")[2]
