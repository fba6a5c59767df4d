"""A stretch of one segment, read to see whether it still is what was written. For a thread beside the loop.

A start reads no old segment, and answers to readers leave without a look at their CRCs. So this is what finds rot
before a reader does; `server/scrubber.py` says when which stretch is due.
"""

from collections.abc import Callable
from typing import NamedTuple

from oncelog.log.disk import Disk
from oncelog.log.partition_checking import Unreadable, batches
from oncelog.log.search import first_whole
from oncelog.records.header import body_crc

STRETCH_BYTES = 256 * 1024
BATCHES_A_TURN = 32  # between two times that the interpreter is offered to the loop


class Reached(NamedTuple):
    """The place up to which a segment was looked at."""

    position: int
    expected: int  # the offset that follows


class Rotten(NamedTuple):
    position: int
    end: int
    reason: str


class Stretch(NamedTuple):
    reached: Reached  # where to go on
    rotten: list[Rotten]
    read_bytes: int


def read_stretch(
    disk: Disk, path: str, reached: Reached, size_bytes: int, has_gaps: bool, give_way: Callable[[], None]
) -> Stretch:
    """Look at about STRETCH_BYTES from there on, at least a batch; less only before `size_bytes`, where the segment
    ends."""
    position, expected = reached
    rotten: list[Rotten] = []
    file = disk.open(path)
    try:
        for number, found in enumerate(batches(file, position, size_bytes, STRETCH_BYTES)):
            if number % BATCHES_A_TURN == 0:
                give_way()
            if isinstance(found, Unreadable):
                behind = first_whole(file, found.position + 1, size_bytes, expected)
                position = size_bytes if behind is None else behind
                rotten.append(Rotten(found.position, position, found.reason))
                expected = -1
                break
            position, header, batch = found
            end = position + len(batch)
            reason = ""
            if expected >= 0 and (header.base_offset < expected or (header.base_offset > expected and not has_gaps)):
                reason = f"offset {header.base_offset} stands where {expected} should"
            elif body_crc(batch, 0, len(batch)) != header.crc and not _is_whole(file.pread(len(batch), position)):
                reason = f"the CRC of the batch of offset {header.base_offset} is wrong"
            if reason:
                rotten.append(Rotten(position, end, reason))
            # After a wrong offset any may follow: it is not known which of the two is wrong.
            position, expected = end, -1 if reason and header.base_offset != expected else header.last_offset + 1
            if position - reached.position >= STRETCH_BYTES:
                break
    finally:
        file.close()
    return Stretch(Reached(position, expected), rotten, position - reached.position)


def _is_whole(batch: bytes) -> bool:
    """Read again: one wrong answer of a disk is no rot."""
    return body_crc(batch, 0, len(batch)) == int.from_bytes(batch[17:21], "big")
