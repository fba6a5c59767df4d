"""Finding records by their timestamps.

Headers alone tell which batch to look into, and one body tells which record it is. Bodies are stored as clients sent
them, so a header may promise a time that no record of its batch has: then its word is taken. To go on to the next body
instead would let a client make one question cost as much as it cares to store.
"""

from collections.abc import Iterator
from typing import NamedTuple

from oncelog.log.errors import LogStorageError
from oncelog.log.index import Entry
from oncelog.log.segment import DEFAULT_INTERVAL_BYTES, Segment
from oncelog.log.segments import Segments
from oncelog.records.errors import InvalidRecord
from oncelog.records.header import NO_TIMESTAMP, BatchHeader
from oncelog.records.read import Record, records_of


class TimestampOffset(NamedTuple):
    timestamp_ms: int
    offset: int
    leader_epoch: int


class Candidate(NamedTuple):
    """A batch that may hold the latest record."""

    timestamp_ms: int
    position: int
    header: BatchHeader


def first_at_or_after(segments: Segments, timestamp_ms: int, start: int, limit: int) -> TimestampOffset | None:
    """The first record within `start` to `limit` that is not older."""
    for number in range(segments.number_of(start), len(segments)):
        segment = segments[number]
        if segment.base_offset >= limit:
            return None
        if segment.max_timestamp_ms < timestamp_ms:
            continue
        for position, header in segment.walk(segment.position_at_time(timestamp_ms)):
            if header.base_offset >= limit:
                return None
            if header.max_timestamp < timestamp_ms or not _may_be_seen(header, start):
                continue
            for record in _records(segment, position, header):
                if record.timestamp_ms >= timestamp_ms and record.offset >= start:
                    return TimestampOffset(record.timestamp_ms, record.offset, header.leader_epoch)
            if header.base_offset >= start:
                return _by_its_header(header)
    return None


def latest_timestamp(segments: Segments, start: int, limit: int) -> TimestampOffset | None:
    """The record with the greatest timestamp, the first of them where there are several."""
    best: Candidate | None = None
    home: Segment | None = None
    candidates = [segments[number] for number in range(segments.number_of(start), len(segments))]
    for segment in sorted(candidates, key=lambda one: (-one.max_timestamp_ms, one.base_offset)):
        if best is not None and segment.max_timestamp_ms < best.timestamp_ms:
            break
        found = _latest_batch(segment, start, limit)
        if found is not None and (best is None or _is_better(found, best)):
            best, home = found, segment
    if best is None or home is None:
        return None
    for record in _records(home, best.position, best.header):
        if record.offset >= start and record.timestamp_ms == best.timestamp_ms:
            return TimestampOffset(record.timestamp_ms, record.offset, best.header.leader_epoch)
    return _by_its_header(best.header)


def _is_better(one: Candidate, other: Candidate) -> bool:
    return (one.timestamp_ms, -one.header.base_offset) > (other.timestamp_ms, -other.header.base_offset)


def _latest_batch(segment: Segment, start: int, limit: int) -> Candidate | None:
    try:
        return _latest_before(segment, start, limit)
    except LogStorageError:
        # Either the index names places where no batch begins, or the log is damaged: then this fails, too.
        segment.rebuild_index(DEFAULT_INTERVAL_BYTES)
        return _latest_before(segment, start, limit)


def _latest_before(segment: Segment, start: int, limit: int) -> Candidate | None:
    """From the segment's end back to where nothing greater can come before: there is mostly one step to do."""
    best: Candidate | None = None
    end = segment.size_bytes
    for entry in _entries_backwards(segment):
        found = _latest_within(segment, entry, end, start, limit)
        if found is not None and (best is None or _is_better(found, best)):
            best = found
        if (best is not None and best.timestamp_ms > entry.max_timestamp_ms) or 0 <= entry.offset <= start:
            return best
        end = entry.position
    return best


def _entries_backwards(segment: Segment) -> Iterator[Entry]:
    """Those that name a batch; at last the segment's beginning, which stands in the index or not."""
    for number in range(segment.index.entries - 1, -1, -1):
        entry = segment.index.entry(number)
        if 0 < entry.position < segment.size_bytes:
            yield entry
    yield Entry(segment.base_offset, 0, NO_TIMESTAMP)


def _latest_within(segment: Segment, entry: Entry, end: int, start: int, limit: int) -> Candidate | None:
    best: Candidate | None = None
    for position, header in segment.walk(entry.position, end):
        if position == entry.position and position > 0 and header.base_offset != entry.offset:
            raise segment.damaged(position, f"{segment.index.path} promises offset {entry.offset} there")
        if header.base_offset >= limit:
            break
        if header.max_timestamp == NO_TIMESTAMP or not _may_be_seen(header, start):
            continue
        timestamp_ms = header.max_timestamp
        if header.base_offset < start:  # its latest record may be one that was deleted
            seen = [one.timestamp_ms for one in _records(segment, position, header) if one.offset >= start]
            timestamp_ms = max(seen, default=NO_TIMESTAMP)
        if timestamp_ms != NO_TIMESTAMP and (best is None or timestamp_ms > best.timestamp_ms):
            best = Candidate(timestamp_ms, position, header)
    return best


def _may_be_seen(header: BatchHeader, start: int) -> bool:
    return header.last_offset >= start and header.record_count > 0 and not header.is_control


def _by_its_header(header: BatchHeader) -> TimestampOffset:
    return TimestampOffset(header.max_timestamp, header.base_offset, header.leader_epoch)


def _records(segment: Segment, position: int, header: BatchHeader) -> list[Record]:
    """Of a batch whose body is not what its header says, the header's word is taken: it was accepted as it is."""
    try:
        return records_of(segment.batch(position, header.size_bytes))
    except InvalidRecord:
        return [Record(None, None, (), header.max_timestamp, header.base_offset)]
