"""Rows as columns: arrays of numbers, and of bytes with the places where each row's end."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
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


def _narrow(ends: Int64s) -> Int32s | Int64s:
    return ends.astype(np.int32) if ends[-1] <= MOST_BYTES else ends


@dataclass(frozen=True, slots=True)
class BytesColumn(Sequence[bytes | None]):
    """Row i is `data[ends[i] : ends[i + 1]]`, or null where `valid` says so; no `valid` means no nulls."""

    ends: Int32s | Int64s
    data: Bytes
    valid: Bools | None = None

    @classmethod
    def of(cls, cells: Sequence[bytes | None], nulls: int | None = None) -> "BytesColumn":
        """`nulls` of them are null, where that is known."""
        if isinstance(cells, BytesColumn):
            return cells
        count, valid = len(cells), None
        if nulls or (nulls is None and None in cells):
            valid = np.fromiter((cell is not None for cell in cells), np.bool_, count)
            cells = [cell or b"" for cell in cells]
        data = b"".join(cells)  # type: ignore[arg-type]
        ends = np.zeros(count + 1, np.int64)
        np.cumsum(np.fromiter(map(len, cells), np.int64, count), out=ends[1:])  # type: ignore[arg-type]
        return cls(_narrow(ends), np.frombuffer(data, np.uint8), valid)

    @classmethod
    def joined(cls, columns: Sequence["BytesColumn"]) -> "BytesColumn":
        """One behind the other."""
        sizes = [np.zeros(1, np.int64), *(np.diff(each.ends) for each in columns)]
        data = [each.data[int(each.ends[0]) : int(each.ends[-1])] for each in columns]
        valid = None
        if any(each.valid is not None for each in columns):
            every = [np.ones(len(each), np.bool_) if each.valid is None else each.valid for each in columns]
            valid = np.concatenate(every)
        return cls(_narrow(np.cumsum(np.concatenate(sizes), dtype=np.int64)), np.concatenate(data), valid)

    def __len__(self) -> int:
        return len(self.ends) - 1

    @overload
    def __getitem__(self, row: int) -> bytes | None: ...
    @overload
    def __getitem__(self, row: slice) -> "BytesColumn": ...
    def __getitem__(self, row: int | slice) -> "bytes | BytesColumn | None":
        if isinstance(row, slice):
            first, end, _ = row.indices(len(self))
            valid = None if self.valid is None else self.valid[first:end]
            return BytesColumn(self.ends[first : max(first, end) + 1], self.data, valid)
        if self.valid is not None and not self.valid[row]:
            return None
        return bytes(self.data[self.ends[row] : self.ends[row + 1]])

    def __iter__(self) -> Iterator[bytes | None]:
        return iter(self.to_list())

    def __contains__(self, cell: object) -> bool:
        return self.nulls > 0 if cell is None else cell in self.to_list()

    def count(self, cell: object) -> int:
        return self.nulls if cell is None else self.to_list().count(cell)  # type: ignore[arg-type]

    @property
    def nulls(self) -> int:
        return 0 if self.valid is None else len(self) - int(np.count_nonzero(self.valid[: len(self)]))

    @property
    def size_bytes(self) -> int:
        return int(self.ends[-1]) - int(self.ends[0])

    def to_list(self) -> list[bytes | None]:
        """Slices of one bytes object, which is the fastest way to many."""
        begin = int(self.ends[0])
        data = self.data[begin : int(self.ends[-1])].tobytes()
        places = (self.ends - begin).tolist()
        cells: list[bytes | None] = [data[at:end] for at, end in zip(places, islice(places, 1, None), strict=False)]
        if self.valid is not None:
            for row, is_there in enumerate(self.valid[: len(cells)].tolist()):
                if not is_there:
                    cells[row] = None
        return cells


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
    """The fields of batch headers, one entry for each data batch; its rows begin at `first_row`."""

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
        """The number of the `row_count` decoded rows that each batch has, to repeat its fields for each of them."""
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
        """The timestamp type of each row: 0 is the time its producer gave it, 1 the time the log appended it."""
        is_append_time = ((self.batches.attributes & LOG_APPEND_TIME) != 0).astype(np.int32)
        return np.repeat(is_append_time, self.batches.row_counts(self.row_count))
