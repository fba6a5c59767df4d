"""What the tests of transactions share: producers of a log, and a reader of committed records, as clients are."""

from collections.abc import Iterator
from heapq import heapify, heappop

from oncelog.clock import Now
from oncelog.log.markers import marker_of
from oncelog.log.partition import PartitionLog
from oncelog.log.staged import Marked, Staged
from oncelog.producers import Decision
from oncelog.records.header import BatchHeader, check_in_transaction, headers, read_header
from oncelog.records.read import Record, records_of
from tests.log.support import KAFKA_PID, NOW, batch


def put_in_transaction(
    log: PartitionLog,
    *values: bytes,
    pid: int = KAFKA_PID,
    epoch: int = 0,
    sequence: int | None = None,
    key: bytes | None = None,
    now: Now = NOW,
    begins_at_zero: bool = False,
) -> Staged:
    """`sequence`: the one that comes next, unless it is given."""
    if sequence is None:
        known = log.producers.highwater(pid)
        sequence = known[1] + 1 if known is not None and known[0] == epoch else 0
    made = batch(*values, pid=pid, generation=epoch, sequence=sequence, key=key, is_transactional=True)
    header = check_in_transaction(made) if sequence >= 0 else read_header(made)
    staged = log.stage_in_transaction(made, header, now, begins_at_zero=begins_at_zero)
    log.commit()
    return staged


def end(
    log: PartitionLog,
    *,
    commit: bool,
    pid: int = KAFKA_PID,
    epoch: int = 0,
    coordinator: int = 0,
    raises_epoch: bool = False,
    now: Now = NOW,
) -> Marked:
    return log.end_transaction(pid, epoch, coordinator, now, is_commit=commit, raises_epoch=raises_epoch)


def end_well(log: PartitionLog, *, commit: bool, pid: int = KAFKA_PID, epoch: int = 0, now: Now = NOW) -> int:
    """The offset of the marker."""
    marked = end(log, commit=commit, pid=pid, epoch=epoch, now=now)
    assert marked.decision is Decision.APPEND
    return marked.end_offset - 1


def committed_batches(log: PartitionLog, max_bytes: int = 300) -> Iterator[tuple[BatchHeader, bytes]]:
    """As Java's consumer finds them: from the list of aborted transactions, and the markers it meets."""
    offset = log.log_start_offset
    while (found := log.find(offset, max_bytes, stable_only=True)) is not None:
        pending = [(first_offset, pid) for pid, first_offset in log.aborted_within(offset, found)]
        heapify(pending)
        aborted: set[int] = set()
        data, before = found.read(), offset
        for position, header in headers(data):
            while pending and pending[0][0] <= header.last_offset:
                aborted.add(heappop(pending)[1])
            whole = data[position : position + header.size_bytes]
            offset = header.last_offset + 1
            if header.is_control:
                marker = marker_of(whole)
                if marker is not None and not marker.is_commit:
                    aborted.discard(header.producer_id)
            elif not (header.is_transactional and header.producer_id in aborted):
                yield header, whole
        assert offset > before


def committed(log: PartitionLog, max_bytes: int = 300) -> list[Record]:
    return [
        record
        for _, whole in committed_batches(log, max_bytes)
        for record in records_of(whole)
        if record.offset >= log.log_start_offset
    ]


def committed_values(log: PartitionLog, max_bytes: int = 300) -> list[bytes | None]:
    return [record.value for record in committed(log, max_bytes)]
