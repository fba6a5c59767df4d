"""Finding records by their timestamps.

Headers alone tell which batch to look into, and one body tells which record it is. Bodies are stored as clients sent
them, so a header may promise a time that no record of its batch has: then its word is taken. To go on to the next body
instead would let a client make one question cost as much as it cares to store.

It is done in `steps`: a pause after some headers, and a body that is much is looked into aside. Where segments went
meanwhile, it begins anew.
"""

from collections.abc import Callable, Iterator
from itertools import islice
from typing import NamedTuple, TypeVar

from oncelog.log.errors import LogStorageError
from oncelog.log.index import Entry
from oncelog.log.segment import DEFAULT_INTERVAL_BYTES, Segment
from oncelog.log.segments import Segments
from oncelog.log.work_steps import Steps
from oncelog.records.errors import InvalidRecord
from oncelog.records.header import NO_TIMESTAMP, BatchHeader
from oncelog.records.read import batch_header, body_of, times_in

HEADERS_IN_A_STEP = 1000
LIGHT_BYTES = 4096  # of a batch that is not compressed: some hundred records at most

T = TypeVar("T")


class TimestampOffset(NamedTuple):
    timestamp_ms: int
    offset: int
    leader_epoch: int


class Candidate(NamedTuple):
    """A batch that may hold the latest record."""

    timestamp_ms: int
    position: int
    header: BatchHeader


def while_unchanged(segments: Segments, begin: Callable[[], Steps[T]]) -> Steps[T]:
    """The result of the steps, which begin again when a segment went in between."""
    while True:
        changes, steps = segments.changes, begin()
        while changes == segments.changes:
            try:
                step = next(steps)
            except StopIteration as end:
                found: T = end.value
                return found
            yield step


def first_at_or_after(segments: Segments, timestamp_ms: int, start: int, limit: int) -> Steps[TimestampOffset | None]:
    """The first record within `start` to `limit` that is not older."""
    seen = 0
    for number in range(segments.number_of(start), len(segments)):
        segment = segments[number]
        if segment.base_offset >= limit:
            return None
        if segment.is_older(timestamp_ms):
            yield None
            continue
        begin = max(segment.position_at_time(timestamp_ms), segment.position_at_offset(start))
        for position, header in segment.walk(begin):
            seen += 1
            if seen % HEADERS_IN_A_STEP == 0:
                yield None
            if header.base_offset >= limit:
                return None
            if header.max_timestamp < timestamp_ms or not _may_be_seen(header, start):
                continue
            times = yield from _times(
                segment, position, header, lambda time_ms, offset: time_ms >= timestamp_ms and offset >= start
            )
            if times is not None:
                return TimestampOffset(*times, header.leader_epoch)
            if header.base_offset >= start:
                return _by_its_header(header)
    return None


def latest_timestamp(segments: Segments, start: int, limit: int) -> Steps[TimestampOffset | None]:
    """The record with the greatest timestamp, the first of them where there are several."""
    best: Candidate | None = None
    home: Segment | None = None
    candidates = [segments[number] for number in range(segments.number_of(start), len(segments))]
    for segment in sorted(candidates, key=lambda one: (-one.max_timestamp_ms, one.base_offset)):
        if best is not None and segment.max_timestamp_ms < best.timestamp_ms:
            break
        found = yield from _latest_batch(segment, start, limit)
        if found is not None and (best is None or _is_better(found, best)):
            best, home = found, segment
    if best is None or home is None:
        return None
    wanted = best
    times = yield from _times(
        home, best.position, best.header, lambda time_ms, offset: offset >= start and time_ms == wanted.timestamp_ms
    )
    return _by_its_header(best.header) if times is None else TimestampOffset(*times, best.header.leader_epoch)


def _is_better(one: Candidate, other: Candidate) -> bool:
    return (one.timestamp_ms, -one.header.base_offset) > (other.timestamp_ms, -other.header.base_offset)


def _latest_batch(segment: Segment, start: int, limit: int) -> Steps[Candidate | None]:
    try:
        return (yield from _latest_before(segment, start, limit))
    except LogStorageError:
        # Either the index names places where no batch begins, or the log is damaged: then this fails, too.
        segment.rebuild_index(DEFAULT_INTERVAL_BYTES)
        return (yield from _latest_before(segment, start, limit))


def _latest_before(segment: Segment, start: int, limit: int) -> Steps[Candidate | None]:
    """The search goes from the segment's end back to where nothing greater can come before: there is mostly one step to
    do."""
    best: Candidate | None = None
    end = segment.size_bytes
    for entry in _entries_backwards(segment):
        yield None
        found = yield from _latest_within(segment, entry, end, start, limit)
        if found is not None and (best is None or _is_better(found, best)):
            best = found
        if (best is not None and best.timestamp_ms > entry.max_timestamp_ms) or 0 <= entry.offset <= start:
            return best
        end = entry.position
    return best


def _entries_backwards(segment: Segment) -> Iterator[Entry]:
    """The entries that name a batch, backwards; at last the segment's beginning, which stands in the index or not."""
    for number in range(segment.index.entries - 1, -1, -1):
        entry = segment.index.entry(number)
        if 0 < entry.position < segment.size_bytes:
            yield entry
    yield Entry(segment.base_offset, 0, NO_TIMESTAMP)


def _latest_within(segment: Segment, entry: Entry, end: int, start: int, limit: int) -> Steps[Candidate | None]:
    best: Candidate | None = None
    for number, (position, header) in enumerate(segment.walk(entry.position, end), 1):
        if number % HEADERS_IN_A_STEP == 0:
            yield None
        if position == entry.position and position > 0 and header.base_offset != entry.offset:
            raise segment.damaged(position, f"{segment.index.path} promises offset {entry.offset} there")
        if header.base_offset >= limit:
            break
        if header.max_timestamp == NO_TIMESTAMP or not _may_be_seen(header, start):
            continue
        timestamp_ms = header.max_timestamp
        if header.base_offset < start:  # its latest record may be one that was deleted
            timestamp_ms = yield from _latest_seen(segment, position, header, start)
        if timestamp_ms != NO_TIMESTAMP and (best is None or timestamp_ms > best.timestamp_ms):
            best = Candidate(timestamp_ms, position, header)
    return best


def _may_be_seen(header: BatchHeader, start: int) -> bool:
    return header.last_offset >= start and header.record_count > 0 and not header.is_control


def _by_its_header(header: BatchHeader) -> TimestampOffset:
    return TimestampOffset(header.max_timestamp, header.base_offset, header.leader_epoch)


def _latest_seen(segment: Segment, position: int, header: BatchHeader, start: int) -> Steps[int]:
    """The greatest time in a batch of which some records were deleted."""
    latest_ms = NO_TIMESTAMP

    def note(time_ms: int, offset: int) -> bool:
        nonlocal latest_ms
        if offset >= start:
            latest_ms = max(latest_ms, time_ms)
        return False

    yield from _times(segment, position, header, note)
    return latest_ms


def _times(
    segment: Segment, position: int, header: BatchHeader, is_wanted: Callable[[int, int], bool]
) -> Steps[tuple[int, int] | None]:
    """The time and the offset of the first record that is wanted. Of a batch whose body is not what its header says,
    the header's word is taken: it was accepted as it is."""
    data = segment.batch(position, header.size_bytes)
    found: list[tuple[int, int]] = []

    def look() -> None:
        try:
            checked = batch_header(data, 0)
            body = bytes(body_of(data, 0, checked))
            found.extend(islice((each for each in times_in(body, checked) if is_wanted(*each)), 1))
        except InvalidRecord:
            if is_wanted(header.max_timestamp, header.base_offset):
                found.append((header.max_timestamp, header.base_offset))

    if header.codec or header.size_bytes > LIGHT_BYTES:
        yield look
    else:
        look()
    return found[0] if found else None
