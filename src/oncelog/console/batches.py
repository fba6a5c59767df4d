"""The batches of a log that a request needs, found by their headers, and their bytes. On the loop, which owns the
logs."""

from itertools import islice
from typing import NamedTuple

from oncelog.console.limits import LARGEST_BATCH_BYTES, MOST_BATCHES, READ_BYTES
from oncelog.log.errors import LogStorageError
from oncelog.log.partition import PartitionLog
from oncelog.log.segment import Segment
from oncelog.records.header import BatchHeader


class BatchAt(NamedTuple):
    segment: Segment
    position: int
    header: BatchHeader


class Found(NamedTuple):
    header: BatchHeader
    data: bytes | None  # None where it was too much to read


def batches_from(
    log: PartitionLog, offset: int, *, newest: bool, most_bytes: int = READ_BYTES, most: int = MOST_BATCHES
) -> list[Found]:
    """Batches from the one that holds the offset on, in their order. The first ones are read, or with `newest` the last
    ones, as long as there is room for them; of the others there is the header alone."""
    try:
        places = _places(log, offset, most)
        read: dict[int, bytes] = {}
        left_bytes = most_bytes
        for place in reversed(places) if newest else places:
            size_bytes = place.header.size_bytes
            if size_bytes <= left_bytes or (not read and size_bytes <= LARGEST_BATCH_BYTES):
                read[place.header.base_offset] = place.segment.batch(place.position, size_bytes)
                left_bytes -= size_bytes
    except OSError as error:
        raise LogStorageError(f"{log.folder}: {error}") from error
    return [Found(place.header, read.get(place.header.base_offset)) for place in places]


def _places(log: PartitionLog, offset: int, most: int) -> list[BatchAt]:
    if not log.readable:
        raise LogStorageError(log.offline or log.folder)
    found: list[BatchAt] = []
    for index in range(log.segments.number_of(offset), len(log.segments)):
        segment = log.segments[index]
        first = segment.find(max(offset, log.log_start_offset)) if segment.size_bytes else None
        if first is None:
            continue  # nothing from there on in this one
        for position, header in islice(segment.walk(first[0]), most - len(found)):
            if header.base_offset >= log.high_watermark:
                return found
            found.append(BatchAt(segment, position, header))
        if len(found) >= most:
            break
    return found
