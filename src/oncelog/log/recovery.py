"""A start: the files in a folder become a log that can be appended to, after any kill.

1. A swap that compaction had decided on is finished, half-written files are removed.
2. The newest good snapshot is the recovery point, and the producers as they were there.
3. Segments below it are known by their index's last entry; their sizes and offsets must fit together. Where they do
   not, the log is damaged, and nothing is touched.
4. What lies behind the recovery point is checked batch by batch. It ends at the first that is not whole; what follows
   is cut off, because a batch counts only when all before it are there. `verdict.py` says where that would be damage,
   not a torn write.
"""

import logging
from dataclasses import dataclass, field
from itertools import pairwise

from oncelog.clock import Now
from oncelog.log import snapshots
from oncelog.log.aborted import Aborted, AbortedTransactions
from oncelog.log.batch_replay import aborted_within
from oncelog.log.beginning_swap import finish_beginning
from oncelog.log.compaction_swap import finish_swaps
from oncelog.log.disk import Disk
from oncelog.log.epochs import LeaderEpochs
from oncelog.log.errors import Damaged, LogStorageError
from oncelog.log.handles import Handles
from oncelog.log.index import ENTRY_BYTES
from oncelog.log.knowledge import NO_LIMIT, gaps_below, known_of, lost_log, noted_beginning, opened_of
from oncelog.log.names import (
    CLEANED,
    INDEX,
    LOG,
    START_FILE,
    TEMPORARY,
    WRITTEN_FILE,
    log_path,
    offsets_of,
    snapshot_path,
)
from oncelog.log.notes import Opened, read_start, what_is_wrong_with_owner, write_start
from oncelog.log.scan import Scan
from oncelog.log.search import whole_behind
from oncelog.log.segment import Segment
from oncelog.log.snapshots import RecoveryPoint, Snapshot
from oncelog.log.verdict import NO_CRC, Ending, Known, Written, are_two, damage_of, not_as_written, what_to_do
from oncelog.producers import CorruptSnapshot, ProducerMap
from oncelog.records.header import HEADER_BYTES, body_crc, read_header

logger = logging.getLogger(__name__)

EMPTY_IT = "Restore the files from a backup, or empty the folder to go on without these records"


@dataclass(slots=True)
class Recovered:
    segments: list[Segment] = field(default_factory=list)
    log_start_offset: int = 0
    high_watermark: int = 0  # as it was at the recovery point
    epochs: LeaderEpochs = field(default_factory=LeaderEpochs)
    point_offset: int = -1  # the recovery point, -1 without one
    flushed_offset: int = -1  # noted by flushes that answers waited for
    latest_epoch: int = -1  # also of epochs that hold no record
    cut_bytes: int = 0
    read_only: str | None = None  # why what had to be cut off is still there
    scanned_bytes: int = 0
    started_over: bool = False  # nothing is left, but the producers are known
    is_bare: bool = False  # there was no file at all
    is_partly_removed: bool = False  # retention was cut short, and its snapshot alone says so
    aborted: AbortedTransactions | None = None
    unflushed_segments: int = 0  # closed ones that lie behind the recovery point, wholly or in part


class Recovery:
    def __init__(
        self,
        disk: Disk,
        folder: str,
        handles: Handles,
        producers: ProducerMap,
        interval_bytes: int,
        now: Now,
        replicated: bool,
        stayed_up: bool,
        owner: str,
    ) -> None:
        self._disk = disk
        self._owner = owner
        self._opened = Opened()
        self._replicated = replicated
        self._stayed_up = stayed_up
        self._folder = folder
        self._handles = handles
        self._producers = producers
        self._interval_bytes = interval_bytes
        self._now = now
        self._names: list[str] = []
        self._known = Known(0, Written(), stayed_up)
        self._gaps_below = 0
        self._aborted: list[Aborted] = []  # by what lies behind the recovery point

    def run(self) -> Recovered:
        self._tidy()
        found = Recovered(log_start_offset=self._stored_start(), is_bare=not self._names)
        bases = offsets_of(self._names, LOG)
        self._gaps_below = NO_LIMIT
        if not self._replicated:
            self._gaps_below = gaps_below(self._disk, self._folder, self._names, self._known)
        found.flushed_offset = self._known.flushed.offset
        if not bases:
            if self._known.durable_offset > found.log_start_offset:
                raise LogStorageError(
                    f"{self._folder} holds no segment, but records up to offset {self._known.durable_offset} were on "
                    f"the disk. {EMPTY_IT}"
                )
            # A kill while the log started over: its producers are still those of the snapshot.
            last = self._newest_snapshot()
            if last is not None:
                found.started_over = True
                found.epochs = last.epochs
                found.epochs.cut_end(found.log_start_offset)
            found.latest_epoch = max(self._opened.epoch, found.epochs.latest)
            return found
        snapshot = self._newest_snapshot()
        point = None if snapshot is None else snapshot.point
        if snapshot is not None:
            found.point_offset = snapshot.point.offset
            found.epochs = snapshot.epochs
            found.high_watermark = snapshot.high_watermark
        found.is_partly_removed = self._noted_beginning(bases[0], found.log_start_offset) > bases[0]
        found.log_start_offset = max(found.log_start_offset, bases[0])
        if point is not None and point.base_offset < bases[0]:
            point = None  # retention has taken away all that was below it
        if point is not None and point.base_offset not in bases:
            raise LogStorageError(
                f"{self._folder} lacks the segment {point.base_offset} that held offset {point.offset}. "
                + what_to_do(self._folder, point.base_offset)
            )
        found.latest_epoch = max(found.epochs.latest, self._opened.epoch)
        # Later epochs come out of the batches; an epoch that was opened last may hold none at all.
        found.epochs.cut_end(point.offset if point is not None else bases[0])
        known = bases.index(point.base_offset) if point is not None else 0
        found.segments = [self._closed(base, end) for base, end in pairwise(bases[: known + 1])]
        if point is not None:
            self._adopt_point(found, point, NO_CRC if snapshot is None else snapshot.last_crc)
        self._read_rest(found, bases[known:], point)
        self._note_aborted(found, 0 if snapshot is None else snapshot.aborted)
        self._check_durable(found.segments[-1], "the log stops there")
        self._check_place(found)
        if found.segments[-1].end_offset < found.log_start_offset:
            self._start_over(found)
            if found.started_over:
                return found
        found.unflushed_segments = len(found.segments) - 1 - known
        if self._replicated:
            found.epochs.forget_below(bases[0])
        else:
            found.epochs.cut_start(found.log_start_offset)
        found.latest_epoch = max(found.latest_epoch, found.epochs.latest)
        return found

    def _note_aborted(self, found: Recovered, known_total: int) -> None:
        """Note the aborted transactions, also those behind the recovery point. A file that is not as that knew it is
        made anew."""
        up_to_offset = max(found.point_offset, 0)
        aborted = found.aborted = AbortedTransactions(self._disk, self._folder, self._handles)
        if aborted.load(up_to_offset) != known_total:
            logger.warning("%s is missing or wrong: made anew from the log", aborted.path)
            aborted.begin_with(aborted_within(found.segments, up_to_offset), known_total)
        aborted.add(each for each in self._aborted if each.marker_offset >= up_to_offset)

    def _noted_beginning(self, first_base: int, stored_start: int) -> int:
        noted = noted_beginning(self._disk, self._folder, self._names, first_base, stored_start)
        if noted < 0 and not self._replicated:
            raise LogStorageError(
                f"{self._folder} lacks the segments before {first_base}, and nothing says that they were removed. "
                f"Restore them from a copy, or put the line {first_base} into {self._folder}/{START_FILE} to go on "
                "without them"
            )
        return noted

    def _tidy(self) -> None:
        names = self._disk.listdir(self._folder)
        self._opened = opened_of(self._disk, self._folder, names)
        wrong = what_is_wrong_with_owner(self._folder, self._opened, self._owner)
        if wrong:
            raise LogStorageError(wrong)
        if finish_beginning(self._disk, self._folder, names) or finish_swaps(self._disk, self._folder, names):
            names = self._disk.listdir(self._folder)
        self._known = known_of(self._disk, self._folder, names, self._opened, self._stayed_up)
        lost = lost_log(names, self._known.stayed_up)
        if lost >= 0:
            raise LogStorageError(
                f"{log_path(self._folder, lost)} is missing, its index is there, and this machine has lost nothing "
                f"since. {what_to_do(self._folder, lost) if offsets_of(names, LOG) else EMPTY_IT}"
            )
        logs = set(offsets_of(names, LOG))
        remains = [name for name in names if name.endswith((TEMPORARY, CLEANED))]
        if WRITTEN_FILE in names and not self._known.stayed_up:
            remains.append(WRITTEN_FILE)  # it counts no more: it is of an earlier boot
        remains += [f"{base:020d}{INDEX}" for base in offsets_of(names, INDEX) if base not in logs]
        for name in remains:
            try:
                self._disk.unlink(f"{self._folder}/{name}")
            except OSError as error:
                logger.warning("%s/%s is of no use but cannot be removed: %s", self._folder, name, error)
        self._names = names

    def _stored_start(self) -> int:
        if START_FILE not in self._names:
            return 0
        return read_start(self._disk, self._folder)

    def _segment(self, base_offset: int) -> Segment:
        segment = Segment(self._handles, self._folder, base_offset)
        segment.has_gaps = base_offset < self._gaps_below
        return segment

    def _closed(self, base_offset: int, following: int) -> Segment:
        """A segment below the recovery point, by its index's last entry alone."""
        segment = self._segment(base_offset)
        size_bytes = self._disk.size(segment.log_path)
        entries = self._index_entries(segment)
        last = None
        if entries:
            segment.index.cut_to_entries(entries)
            last = segment.index.last() if segment.index.is_known else None
        is_short = last is not None and last.position > size_bytes and last.offset <= following
        if last is not None and is_short and not self._ends_at(segment, size_bytes, following):
            raise self._too_short(segment, size_bytes, last.position)
        if last is not None and (last.position, last.offset) == (size_bytes, following):
            segment.adopt_end(last)
        else:
            logger.warning("%s is missing or torn: made anew from the headers", segment.index.path)
            segment.rebuild_index(self._interval_bytes, end=size_bytes)
            if segment.end_offset != following:
                raise LogStorageError(
                    f"{segment.log_path} ends at {segment.end_offset}, the next segment is {following}. "
                    + what_to_do(self._folder, min(segment.end_offset, following))
                )
            segment.close_index()
        return segment

    def _too_short(self, segment: Segment, size_bytes: int, written_bytes: int) -> LogStorageError:
        return LogStorageError(
            f"{segment.log_path} has {size_bytes} bytes where {written_bytes} were written. {what_to_do(self._folder)}"
        )

    def _ends_at(self, segment: Segment, size_bytes: int, end_offset: int) -> bool:
        """Whether the headers say so: then it is the index that is wrong, and can be made anew."""
        found = segment.base_offset
        try:
            for _, header in segment.walk(0, size_bytes):
                found = header.last_offset + 1
        except LogStorageError:
            return False
        return found == end_offset

    def _index_entries(self, segment: Segment) -> int:
        return self._disk.size(segment.index.path) // ENTRY_BYTES if self._disk.exists(segment.index.path) else 0

    def _newest_snapshot(self) -> Snapshot | None:
        """The newest good one, whose producers are in the map then."""
        self._producers.clear()
        found: Snapshot | None = None
        for snapshot in snapshots.newest_first(self._disk, self._folder):
            try:
                self._producers.decode(snapshot.producers, self._now)
            except CorruptSnapshot:
                continue
            found = snapshot
            break
        newest = self._known.point_offset
        if newest > (0 if found is None else found.point.offset):
            logger.warning("%s cannot be read: the log tells the same", snapshot_path(self._folder, newest))
        return found

    def _adopt_point(self, found: Recovered, point: RecoveryPoint, last_crc: int) -> None:
        """The segment that holds the recovery point, up to there."""
        segment = self._segment(point.base_offset)
        size_bytes = self._disk.size(segment.log_path)
        if size_bytes < point.position:
            raise self._too_short(segment, size_bytes, point.position)
        is_usable = self._index_entries(segment) >= point.index_entries
        last = None
        if is_usable:
            segment.index.cut_to_entries(point.index_entries)
            last = segment.index.last() if segment.index.is_known else None
            is_within = last is None or (last.position <= point.position and last.offset <= point.offset)
            is_usable = segment.index.is_known and is_within
        if is_usable:
            next_index_at = 0 if last is None else last.position + self._interval_bytes
        else:
            logger.warning("%s is missing or torn: made anew from the headers", segment.index.path)
            segment.rebuild_index(self._interval_bytes, end=point.position)
            next_index_at = segment.next_index_at
        segment.found(point.position, point.offset, point.max_timestamp_ms, next_index_at)
        segment.last_crc = last_crc
        if point.position and not _ends_with(segment, point.offset, point.position, last_crc):
            raise LogStorageError(
                f"{snapshot_path(self._folder, point.offset)} is of another log: before byte {point.position} of "
                f"{segment.log_path} no batch ends with offset {point.offset - 1}, or another one than then. "
                + what_to_do(self._folder)
            )
        found.segments.append(segment)

    def _read_rest(self, found: Recovered, bases: list[int], point: RecoveryPoint | None) -> None:
        """Everything behind the recovery point, batch by batch."""
        for number, base in enumerate(bases):
            if number == 0 and point is not None:
                segment = found.segments[-1]
            else:
                if found.segments and found.segments[-1].end_offset != base:
                    reason = f"offsets from {found.segments[-1].end_offset} to {base} are missing"
                    self._cut(found, bases[number:], reason)
                    return
                segment = self._segment(base)
                found.segments.append(segment)
            following = bases[number + 1] if number + 1 < len(bases) else None
            reason = self._read_segment(found, segment, following)
            if reason:
                self._cut(found, bases[number + 1 :], reason)
                return

    def _read_segment(self, found: Recovered, segment: Segment, following: int | None) -> str:
        """The reason why it ends before its file does; empty when it does not."""
        start, size_bytes = segment.size_bytes, self._disk.size(segment.log_path)
        if start == 0:
            segment.index.cut_to_entries(0)
        scan = Scan(
            segment, found.epochs, self._producers, self._interval_bytes, self._now, self._gaps_below, self._aborted
        )
        reason = scan.run(size_bytes, found.point_offset)
        found.scanned_bytes += segment.size_bytes - start
        if not reason and following is not None:
            segment.close_index()
        return reason

    def _cut(self, found: Recovered, following: list[int], reason: str) -> None:
        segment = found.segments[-1]
        lost = [self._segment(base) for base in following]
        paths = [segment.log_path, *(one.log_path for one in lost)]
        self._check_durable(segment, reason, whole_behind(self._disk, paths, segment.size_bytes, segment.end_offset))
        self._check_place(found)
        found.cut_bytes = self._disk.size(segment.log_path) - segment.size_bytes
        found.cut_bytes += sum(self._disk.size(one.log_path) for one in lost)
        try:
            for one in reversed(lost):
                self._remove(one)
            file = self._handles.get(segment.log_path)
            file.truncate(segment.size_bytes)
            file.fdatasync()
        except OSError as error:
            self._handles.forget(segment.log_path)
            found.read_only = f"{segment.log_path} ends in a torn write that cannot be cut off: {error}"
        logger.warning(
            "%s ends at offset %d: %s; %d bytes behind the last recovery point, at offset %d, are cut off",
            segment.log_path,
            segment.end_offset,
            reason,
            found.cut_bytes,
            self._known.point_offset,
        )

    def _check_durable(self, last: Segment, reason: str, behind: str = "") -> None:
        ending = Ending(last.log_path, last.size_bytes, last.end_offset, reason, behind)
        damage = damage_of(ending, self._known)
        if damage:
            raise LogStorageError(damage)

    def _check_place(self, found: Recovered) -> None:
        """Raises where the log is not as it was noted: then its file is another's."""
        written = self._known.last_place
        if written.offset < 0:
            return
        segment = next((each for each in found.segments if each.base_offset == written.base_offset), None)
        if segment is None or not _ends_with(segment, written.offset, written.position, written.crc):
            path = log_path(self._folder, written.base_offset)
            raise LogStorageError(f"{not_as_written(path, written)}. {what_to_do(self._folder)}")

    def _start_over(self, found: Recovered) -> None:
        """A power failure took records that were deleted already: earlier versions did not flush them before.
        Offsets do not go back for that."""
        if self._known.stayed_up:
            raise LogStorageError(
                f"{self._folder}/{START_FILE} says that the log begins at {found.log_start_offset}, but it ends at "
                f"{found.segments[-1].end_offset}, and this machine has lost nothing since. Nothing is removed. "
                "Restore the file from a backup, or put one line into it, with the first offset that shall be seen"
            )
        if self._replicated:  # its leader has them, and who wrote them, and will tell where the log starts
            found.log_start_offset = found.segments[-1].end_offset
            write_start(self._disk, self._folder, found.log_start_offset)
            return
        for segment in reversed(found.segments):
            self._remove(segment)
        found.segments = []
        found.started_over = True
        found.epochs.cut_end(found.log_start_offset)
        found.latest_epoch = max(found.latest_epoch, found.epochs.latest)

    def _remove(self, segment: Segment) -> None:
        segment.forget_handles()
        if self._disk.exists(segment.index.path):
            self._disk.unlink(segment.index.path)
        self._disk.unlink(segment.log_path)


def _ends_with(segment: Segment, offset: int, position: int, crc: int) -> bool:
    """Whether the batch before the offset ends at that byte, and is the one with that CRC. After a cut a gap may be
    there."""
    try:
        last = segment.find(offset - 1)
    except Damaged:
        return False
    if last is None:
        return segment.has_gaps
    at, size_bytes, *_ = last
    return at + size_bytes == position and _is_it(segment, at, size_bytes, crc)


def _is_it(segment: Segment, position: int, size_bytes: int, crc: int) -> bool:
    """Whether the batch there may be the one with that CRC. One that has rotted may be: who reads it is told."""
    found = read_header(segment.batch(position, HEADER_BYTES)).crc
    return not are_two(found, crc) or body_crc(segment.batch(position, size_bytes), 0, size_bytes) != found
