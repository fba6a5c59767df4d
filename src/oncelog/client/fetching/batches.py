"""The content of fetched bytes, by the headers of the batches alone."""

from struct import Struct
from typing import NamedTuple

from oncelog.client.fetching.values import NO_EPOCH
from oncelog.records.header import CONTROL, HEADER_BYTES, LENGTH_PREFIX_BYTES, TRANSACTIONAL, Buffer, read_header
from oncelog.records.read import batch_header, records_of

_walked = Struct(">qii7xi30xi")  # base offset, batch length, leader epoch, last offset delta, record count
LAST_OFFSET = (1 << 63) - 1
_ABORT = b"\0\0\0\0"  # the key of an abort marker: version 0, type 0; a commit is type 1


class Survey(NamedTuple):
    whole_bytes: int  # what lies behind is a batch that was cut off, or one that strays
    next_offset: int  # behind the last whole batch
    record_count: int
    epochs: list[tuple[int, int]]  # the leaders that wrote it, each with the first offset of its own
    stray: int | None = None  # the offset that a batch claims where it cannot be


def survey(records: Buffer, least: int = 0, limit: int = LAST_OFFSET) -> Survey:
    """A survey of batches that begin at `least` or later, before `limit`, one behind the other: no CRC covers where
    they begin, so no later check would notice."""
    at, end = 0, len(records)
    next_offset, record_count, leader_epoch = -1, 0, NO_EPOCH
    epochs: list[tuple[int, int]] = []
    unpack_from = _walked.unpack_from
    while at + HEADER_BYTES <= end:
        base_offset, length, epoch, last_delta, count = unpack_from(records, at)
        behind = at + length + LENGTH_PREFIX_BYTES
        if behind > end:
            break
        if length < HEADER_BYTES - LENGTH_PREFIX_BYTES:
            # A length that cannot be: nothing behind it can be told apart. The decoder says so, with the offset.
            return Survey(end, next_offset, record_count, epochs)
        if not least <= base_offset < limit:
            return Survey(at, next_offset, record_count, epochs, base_offset)
        next_offset = least = base_offset + last_delta + 1
        if epoch != leader_epoch:
            leader_epoch = epoch
            epochs.append((epoch, base_offset))
        record_count += count
        at = behind
    return Survey(at, next_offset, record_count, epochs)


def without_aborted(records: Buffer, aborted: list[tuple[int, int]], *, check_crc: bool = True) -> Buffer:
    """The bytes without the batches of aborted transactions; the same bytes where there are none.

    `aborted` is what the broker says of exactly these bytes: producer id and first offset of each aborted transaction
    that reaches into them. One ends at its producer's abort marker, which is how a later transaction of that producer
    is told apart from it. A batch is dropped only if it is sound: damage could make any batch look like an aborted one.
    """
    if not aborted:
        return records
    view = memoryview(records)
    to_come = sorted(aborted, key=lambda transaction: transaction[1])
    open_pids: set[int] = set()
    kept: list[memoryview] = []
    at = kept_from = 0
    while at + HEADER_BYTES <= len(view):
        header = read_header(view, at)
        behind = at + header.size_bytes
        if header.size_bytes < HEADER_BYTES or behind > len(view):
            break
        while to_come and to_come[0][1] <= header.last_offset:
            open_pids.add(to_come.pop(0)[0])
        if header.attributes & TRANSACTIONAL and header.producer_id in open_pids:
            batch_header(view, at, check_crc)
            if not header.attributes & CONTROL:
                kept.append(view[kept_from:at])
                kept_from = behind
            elif _is_abort(view, at):
                open_pids.discard(header.producer_id)
        at = behind
    if not kept:
        return records
    kept.append(view[kept_from:])
    return b"".join(kept)


def _is_abort(view: memoryview, at: int) -> bool:
    markers = records_of(view, at, check_crc=False)
    return bool(markers) and (markers[0].key or b"")[:4] == _ABORT
