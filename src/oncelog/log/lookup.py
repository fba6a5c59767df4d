"""Finding records by their timestamps."""

from typing import NamedTuple

from oncelog.log.segment import Segment
from oncelog.log.segments import Segments
from oncelog.records.errors import InvalidRecord
from oncelog.records.header import NO_TIMESTAMP, BatchHeader
from oncelog.records.read import Record, records_of


class TimestampOffset(NamedTuple):
    timestamp_ms: int
    offset: int
    leader_epoch: int


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
            if header.max_timestamp < timestamp_ms or header.last_offset < start or header.is_control:
                continue
            for record in _records(segment, position, header):
                if record.timestamp_ms >= timestamp_ms and record.offset >= start:
                    return TimestampOffset(record.timestamp_ms, record.offset, header.leader_epoch)
    return None


def latest_timestamp(segments: Segments, start: int, limit: int) -> TimestampOffset | None:
    """The record with the greatest timestamp, the first of them where there are several."""
    best: TimestampOffset | None = None
    candidates = [segments[number] for number in range(segments.number_of(start), len(segments))]
    for segment in sorted(candidates, key=lambda one: (-one.max_timestamp_ms, one.base_offset)):
        if best is not None and segment.max_timestamp_ms <= best.timestamp_ms:
            continue
        found = _latest_in(segment, start, limit)
        if found is not None and (best is None or found[:2] > (best.timestamp_ms, -best.offset)):
            best = TimestampOffset(found[0], -found[1], found[2])
    return best


def _latest_in(segment: Segment, start: int, limit: int) -> tuple[int, int, int] | None:
    """(timestamp, minus its offset, leader epoch), so that the greatest is the one looked for."""
    position = segment.position_at_time(segment.max_timestamp_ms)
    if segment.base_offset >= start and segment.end_offset <= limit:
        best = _latest_from(segment, position, start, limit)
        if best is not None and best[0] == segment.max_timestamp_ms:
            return best
    # The segment's greatest lies outside of what may be seen, or belongs to a fence or to what compaction took out.
    return _latest_from(segment, 0, start, limit)


def _latest_from(segment: Segment, position: int, start: int, limit: int) -> tuple[int, int, int] | None:
    best: tuple[int, int, int] | None = None
    for at, header in segment.walk(position):
        if header.base_offset >= limit:
            break
        if header.is_control or header.last_offset < start or header.max_timestamp == NO_TIMESTAMP:
            continue
        if best is not None and header.max_timestamp <= best[0]:
            continue
        for record in _records(segment, at, header):
            if record.offset >= start and (best is None or (record.timestamp_ms, -record.offset) > best[:2]):
                best = (record.timestamp_ms, -record.offset, header.leader_epoch)
    return best


def _records(segment: Segment, position: int, header: BatchHeader) -> list[Record]:
    """Of a batch whose body is not what its header says, the header's word is taken: it was accepted as it is."""
    try:
        return records_of(segment.batch(position, header.size_bytes))
    except InvalidRecord:
        return [Record(None, None, (), header.max_timestamp, header.base_offset)]
