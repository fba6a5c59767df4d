"""Reading an internal topic back at the start."""

from collections.abc import Iterator

from oncelog.log.partition import PartitionLog
from oncelog.records.header import headers
from oncelog.records.read import Record, records_of

READ_BYTES = 1 << 20


def records_in(log: PartitionLog) -> Iterator[Record]:
    """Every record that clients would see, oldest first. Raises LogStorageError and InvalidRecord for damage."""
    at = log.log_start_offset
    while at < log.next_offset:
        chunk = log.read(at, READ_BYTES, limit_offset=log.next_offset)
        went_on = False
        for position, header in headers(chunk):
            if header.last_offset >= at:
                if not header.is_control:
                    yield from records_of(chunk, position)
                at = header.last_offset + 1
                went_on = True
        if not went_on:  # compaction took the last records, too
            return
