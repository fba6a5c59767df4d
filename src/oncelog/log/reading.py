"""From an offset to bytes. However large the read, no batch of it is looked at but those up to the first one wanted."""

from oncelog.log.segments import Segments


def read_batches(segments: Segments, offset: int, max_bytes: int, at_least_one: bool, limit: int) -> bytes:
    """Batches of one segment from the one that holds `offset` on, none of them reaching `limit`.

    As in Kafka the last one may be cut by `max_bytes`; only the first is given whole if `at_least_one` says so.
    """
    for number in range(segments.number_of(offset), len(segments)):
        segment = segments[number]
        found = segment.find(offset)
        if found is None:
            continue  # the offset lies in a gap that compaction left at the segment's end
        position, first_bytes, base_offset = found
        if base_offset >= limit:
            return b""
        end = segment.size_bytes
        if limit < segment.end_offset:
            beyond = segment.find(limit)
            end = end if beyond is None else beyond[0]
        if max_bytes < first_bytes:
            if not at_least_one:
                return b""
            max_bytes = first_bytes
        if end <= position:
            return b""
        return segment.handles.get(segment.log_path).pread(min(max_bytes, end - position), position)
    return b""
