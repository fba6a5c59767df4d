"""Reading an internal topic back at the start."""

from collections.abc import Iterator
from itertools import repeat
from typing import NamedTuple

from oncelog.log.errors import LogStorageError
from oncelog.log.markers import marker_of
from oncelog.log.partition import PartitionLog
from oncelog.records.errors import InvalidRecord
from oncelog.records.header import headers
from oncelog.records.read import Record, records_of

READ_BYTES = 1 << 20
NOBODY = -1


class EndOfTransaction(NamedTuple):
    is_commit: bool


def records_in(log: PartitionLog) -> Iterator[Record]:
    """Every record, oldest first, of a log that knows no transactions. Raises LogStorageError for damage."""
    return (each for _, each in kept_in(log) if isinstance(each, Record))


def kept_in(log: PartitionLog) -> Iterator[tuple[int, Record | EndOfTransaction]]:
    """Every record with the pid of the transaction that it belongs to, or NOBODY, and the ends of transactions; oldest
    first. Raises LogStorageError for damage.

    Nothing is left out in silence: no CRC covers a batch's offset, so the order of the batches is checked as well, and
    that the last one ends where the log does.
    """
    at = log.log_start_offset
    while at < log.next_offset:
        chunk = log.read(at, READ_BYTES, limit_offset=log.next_offset)
        begins_at = at
        for position, header in headers(chunk):
            is_first = at == begins_at and position == 0
            if header.last_offset < at or header.last_offset >= log.next_offset:
                raise _damaged(log, at, f"a batch names the offsets {header.base_offset} to {header.last_offset}")
            if header.base_offset < at and not is_first:
                raise _damaged(log, at, f"a batch begins at {header.base_offset}")
            pid = header.producer_id if header.is_transactional else NOBODY
            try:
                if not header.is_control:
                    yield from zip(repeat(pid), records_of(chunk, position))
                elif pid >= 0:
                    marker = marker_of(chunk[position : position + header.size_bytes])
                    if marker is not None:
                        yield pid, EndOfTransaction(marker.is_commit)
            except InvalidRecord as damage:
                raise _damaged(log, header.base_offset, str(damage)) from damage
            at = header.last_offset + 1
        if at == begins_at:
            raise _damaged(log, at, "no batch is found there")


def _damaged(log: PartitionLog, offset: int, what: str) -> LogStorageError:
    path = log.segments[log.segments.number_of(offset)].log_path
    return LogStorageError(f"{path} is damaged at offset {offset} of {log.next_offset}: {what}")
