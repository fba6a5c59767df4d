"""An ordered hash of rows, the same however the rows were cut into batches.

Of each column two streams are hashed: the cells' lengths (a null is -1) and their bytes, one cell behind the other.
Each stream is a CRC-32C, which goes on where it stopped, so that only the rows and their order count. It costs some 9
ns for a row of 100 bytes. What it is to notice are accidents, replays that came out otherwise; it keeps out no forger.
"""

from typing import Any, Final

import numpy as np
import pyarrow as pa
from crc32c import crc32c

from oncelog.records.arrow import bytes_column, headers_column
from oncelog.records.column_types import BytesColumn

NULL: Final = -1
NO_NUMBER: Final = -(1 << 63)
EMPTY: Final = ""


class RowHash:
    def __init__(self) -> None:
        self.rows = 0
        self._streams: dict[str, int] = {}

    def add(self, batch: pa.RecordBatch) -> None:
        """Add the next rows. Columns are told apart by their names; each batch has the same ones."""
        self.rows += batch.num_rows
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            if pa.types.is_list(column.type) or pa.types.is_large_list(column.type) or pa.types.is_map(column.type):
                self._add_headers(name, column)
            elif pa.types.is_integer(column.type) or pa.types.is_timestamp(column.type):
                self._add_numbers(name, column)
            else:
                self._add_cells(name, bytes_column(column))

    def digest(self) -> str:
        """Hexadecimal; empty where there were no rows, whatever their columns."""
        if not self.rows:
            return EMPTY
        return "-".join(f"{name}:{crc:08x}" for name, crc in sorted(self._streams.items()))

    def _go_on(self, stream: str, data: Any) -> None:
        self._streams[stream] = crc32c(data, self._streams.get(stream, 0))

    def _add_cells(self, name: str, column: BytesColumn) -> None:
        lengths = np.diff(column.ends).astype(np.int32, copy=False)
        data: Any = column.data[column.ends[0] : column.ends[-1]]
        if column.valid is not None:
            empty = ~column.valid
            if np.any(lengths[empty]):  # Arrow lets a null have bytes, which nobody sees
                data = b"".join(cell or b"" for cell in column.to_list())
            lengths = np.where(column.valid, lengths, np.int32(NULL))
        self._go_on(f"{name}.n", np.ascontiguousarray(lengths))
        self._go_on(name, data)

    def _add_numbers(self, name: str, column: pa.Array) -> None:
        if pa.types.is_timestamp(column.type):
            column = column.view(pa.int64())
        numbers = column.cast(pa.int64()).fill_null(NO_NUMBER)
        self._go_on(name, numbers.to_numpy(zero_copy_only=False))

    def _add_headers(self, name: str, column: pa.Array) -> None:
        headers = headers_column(column)
        self._go_on(f"{name}.n", np.diff(headers.ends).astype(np.int32))
        first, last = int(headers.ends[0]), int(headers.ends[-1])
        for part, cells in ((f"{name}.k", headers.names), (f"{name}.v", headers.values)):
            self._add_cells(part, cells[first:last])
