"""Batches as a log holds them made into batches that a client may produce, unfolding no more of them than must be.

Most pass as they are: their offsets and what only a log may say are cleared in the header. Records are unfolded where
the header alone cannot put it right:

- offsets with holes, because compaction took records out: what is produced is numbered without gaps;
- the log's own time: each record is given that time as its own;
- more bytes than the destination takes in one batch;
- a batch of which only some records are wanted;
- many small batches one after another: a request for each would take longer than putting them together.

Control batches and empty ones hold no records and are left out.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np

from oncelog.records.column_types import Bytes, Columns, Int64s
from oncelog.records.decode_columns import LAST_OFFSET, decode
from oncelog.records.encode_columns import encode
from oncelog.records.errors import InvalidRecord
from oncelog.records.header import (
    CODEC_MASK,
    HEADER,
    HEADER_BYTES,
    BatchHeader,
    Buffer,
    read_header,
    restamp_crc,
    stamp,
)
from oncelog.records.read import batch_header

# Below this, neighbours are put together. Compressed ones hold more records, and unfolding them costs more.
SMALL_BYTES: Final = 128 << 10
SMALL_COMPRESSED_BYTES: Final = 8 << 10
MOST_BATCH_BYTES: Final = 1_000_000
NO_EPOCH: Final = -1


class Passed(NamedTuple):
    """One batch at offset 0. Who wrote it first may still stand in it, so it is to be stamped before it is sent."""

    data: bytearray | memoryview
    record_count: int


class Run(NamedTuple):
    """Records that stand one after another without a gap."""

    first_offset: int
    record_count: int


@dataclass(slots=True)
class Passing:
    """The result of passing on some fetched bytes."""

    batches: list[Passed] = field(default_factory=list)
    runs: list[Run] = field(default_factory=list)  # where the records stood, in their order
    next_offset: int = -1  # behind the last batch that was looked at; -1 where there was none

    @property
    def record_count(self) -> int:
        return sum(run.record_count for run in self.runs)

    def add(self, data: bytearray | memoryview, record_count: int) -> None:
        self.batches.append(Passed(data, record_count))

    def stood(self, first_offset: int, record_count: int) -> None:
        last = self.runs[-1] if self.runs else None
        if last is not None and last.first_offset + last.record_count == first_offset:
            self.runs[-1] = Run(last.first_offset, last.record_count + record_count)
        else:
            self.runs.append(Run(first_offset, record_count))


def pass_on(
    buffer: Buffer,
    *,
    start_offset: int = 0,
    end_offset: int = LAST_OFFSET,
    most_bytes: int = MOST_BATCH_BYTES,
    made_bytes: int | None = None,
    allocate: Callable[[int], Bytes] | None = None,
) -> Passing:
    """The records from `start_offset` on and before `end_offset`. Where the buffer can be written to, what passes as it
    is stays in it and is changed there; the buffer then belongs to the owner of the batches. Raises InvalidRecord for
    damage.

    `most_bytes` is what the destination takes in a batch, `made_bytes` how large those are that are made anew.
    """
    view = memoryview(buffer).cast("B")
    passing = Passing()
    unfolding = _Unfolding(
        view, start_offset, end_offset, most_bytes, min(made_bytes or most_bytes, most_bytes), allocate, passing
    )
    at, end = 0, len(view)
    while at + HEADER_BYTES <= end:
        header = read_header(view, at)
        behind = at + header.size_bytes
        if header.size_bytes < HEADER_BYTES:
            raise InvalidRecord(f"a batch is shorter than its header (the batch at offset {header.base_offset})")
        if behind > end or header.base_offset >= end_offset:
            break
        passing.next_offset = min(header.last_offset + 1, end_offset)
        if header.last_offset >= start_offset:
            _one(view, at, header, unfolding)
        at = behind
    unfolding.flush()
    return passing


def _one(view: memoryview, at: int, header: BatchHeader, unfolding: "_Unfolding") -> None:
    if header.is_control or not header.record_count:
        batch_header(view, at)  # damage could make any batch look like one of these
        return
    if unfolding.must_unfold(header):
        unfolding.take(at, header, is_wanted=True)
    elif header.size_bytes < (SMALL_COMPRESSED_BYTES if header.codec else SMALL_BYTES):
        unfolding.take(at, header, is_wanted=False)
    else:
        unfolding.flush()
        _as_it_is(view, at, header, unfolding.passing)


def _as_it_is(view: memoryview, at: int, header: BatchHeader, passing: Passing) -> None:
    batch_header(view, at)
    passing.stood(header.base_offset, header.record_count)
    data: bytearray | memoryview = view[at : at + header.size_bytes]
    if view.readonly:
        data = bytearray(data)
    stamp(data, 0, 0, NO_EPOCH)
    if header.attributes & ~CODEC_MASK:
        HEADER.pack_into(data, 0, *read_header(data)._replace(attributes=header.codec))
        restamp_crc(data, 0, len(data))
    passing.add(data, header.record_count)


class _Unfolding:
    """Neighbours of one codec whose records are to be unfolded; small ones only if they are several."""

    def __init__(
        self,
        view: memoryview,
        start_offset: int,
        end_offset: int,
        most_bytes: int,
        made_bytes: int,
        allocate: Callable[[int], Bytes] | None,
        passing: Passing,
    ) -> None:
        self.passing = passing
        self._view = view
        self._start_offset = start_offset
        self._end_offset = end_offset
        self._most_bytes = most_bytes
        self._made_bytes = made_bytes
        self._allocate = allocate
        self._headers: list[tuple[int, BatchHeader]] = []
        self._is_wanted = False

    def must_unfold(self, header: BatchHeader) -> bool:
        return bool(
            header.last_offset_delta + 1 != header.record_count
            or header.has_log_append_time
            or header.size_bytes > self._most_bytes
            or header.base_offset < self._start_offset
            or header.last_offset >= self._end_offset
        )

    def take(self, at: int, header: BatchHeader, *, is_wanted: bool) -> None:
        if self._headers and self._headers[0][1].codec != header.codec:
            self.flush()
        self._headers.append((at, header))
        self._is_wanted = self._is_wanted or is_wanted

    def flush(self) -> None:
        headers, self._headers = self._headers, []
        is_wanted, self._is_wanted = self._is_wanted, False
        if not headers:
            return
        if len(headers) == 1 and not is_wanted:
            _as_it_is(self._view, *headers[0], self.passing)
            return
        (first_at, first), (last_at, last) = headers[0], headers[-1]
        at, end = first_at, last_at + last.size_bytes
        offset = max(self._start_offset, first.base_offset)
        while at < end:
            columns = decode(self._view[at:end], start_offset=offset, end_offset=self._end_offset)
            self._encode(columns, first.codec)
            offset = columns.next_offset
            at += columns.consumed_bytes

    def _encode(self, columns: Columns, codec: int) -> None:
        if not columns.row_count:
            return
        assert columns.offset is not None and columns.timestamp_ms is not None
        encoded = encode(
            key=columns.key,
            value=columns.value,
            headers=columns.headers,
            timestamp_ms=columns.timestamp_ms,
            codec=codec,
            target_bytes=self._made_bytes,
            allocate=self._allocate,
        )
        for data, _, record_count, *_ in encoded:
            self.passing.add(data, record_count)
        for first_offset, record_count in _runs(columns.offset):
            self.passing.stood(first_offset, record_count)


def _runs(offsets: Int64s) -> list[tuple[int, int]]:
    starts = np.flatnonzero(np.diff(offsets, prepend=offsets[0] - 2) != 1)
    counts = np.diff(starts, append=len(offsets))
    return list(zip(offsets[starts].tolist(), counts.tolist(), strict=True))
