"""Rows as columns: arrays of numbers, and of bytes with the places where each row's end."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from oncelog.records.header import LOG_APPEND_TIME

Int64s = NDArray[np.int64]
Int32s = NDArray[np.int32]
Bools = NDArray[np.bool_]
Bytes = NDArray[np.uint8]

ALL = frozenset({"key", "value", "headers", "offset", "timestamp"})
# Ends are 32 bits wide where this package makes them, as Arrow's `binary` has them: 2 GiB is the most in one column.
MOST_BYTES = (1 << 31) - 1


def read_only(array: NDArray[Any]) -> NDArray[Any]:
    """Loops are compiled for each type of array, and a read-only one is a type of its own: let there be one."""
    array = array.view()
    array.flags.writeable = False
    return array


@dataclass(frozen=True, slots=True)
class BytesColumn(Sequence[bytes | None]):
    """Row i is `data[ends[i] : ends[i + 1]]`, or null where `valid` says so; no `valid` means no nulls."""

    ends: Int32s | Int64s
    data: Bytes
    valid: Bools | None = None

    def __len__(self) -> int:
        return len(self.ends) - 1

    @overload
    def __getitem__(self, row: int) -> bytes | None: ...
    @overload
    def __getitem__(self, row: slice) -> "BytesColumn": ...
    def __getitem__(self, row: int | slice) -> "bytes | BytesColumn | None":
        if isinstance(row, slice):  # over the same memory
            first, end, _ = row.indices(len(self))
            end = max(first, end)
            valid = None if self.valid is None else self.valid[first:end]
            return BytesColumn(self.ends[first : end + 1], self.data, valid)
        if self.valid is not None and not self.valid[row]:
            return None
        return bytes(self.data[self.ends[row] : self.ends[row + 1]])

    def to_list(self) -> list[bytes | None]:
        return [self[row] for row in range(len(self))]


@dataclass(frozen=True, slots=True)
class HeadersColumn:
    """The headers of row i are those from `ends[i]` to `ends[i + 1]` in `names` and `values`."""

    ends: Int32s | Int64s
    names: BytesColumn
    values: BytesColumn

    def __len__(self) -> int:
        return len(self.ends) - 1

    def __getitem__(self, row: int) -> list[tuple[bytes, bytes | None]]:
        places = range(self.ends[row], self.ends[row + 1])
        return [(self.names[place] or b"", self.values[place]) for place in places]

    def to_list(self) -> list[list[tuple[bytes, bytes | None]]]:
        return [self[row] for row in range(len(self))]


@dataclass(frozen=True, slots=True)
class Batches:
    """What the batch headers say, one entry for each data batch; its rows begin at `first_row`."""

    first_row: Int64s
    base_offset: Int64s
    last_offset: Int64s
    leader_epoch: Int64s
    attributes: Int64s
    producer_id: Int64s
    producer_epoch: Int64s
    base_sequence: Int64s
    record_count: Int64s

    def __len__(self) -> int:
        return len(self.first_row)

    def row_counts(self, row_count: int) -> Int64s:
        """How many of the `row_count` decoded rows each batch has, to repeat what it says for each of them."""
        return np.diff(self.first_row, append=row_count)


@dataclass(frozen=True, slots=True)
class Columns:
    """Decoded rows. A column that was not asked for is None."""

    row_count: int
    offset: Int64s | None
    timestamp_ms: Int64s | None
    key: BytesColumn | None
    value: BytesColumn | None
    headers: HeadersColumn | None
    batches: Batches
    next_offset: int  # where to go on reading
    consumed_bytes: int  # up to here the buffer holds whole batches that were decoded or skipped

    def timestamp_type(self) -> Int32s:
        """For each row 0, the time its producer gave it, or 1, the time the log appended it."""
        is_append_time = ((self.batches.attributes & LOG_APPEND_TIME) != 0).astype(np.int32)
        return np.repeat(is_append_time, self.batches.row_counts(self.row_count))
