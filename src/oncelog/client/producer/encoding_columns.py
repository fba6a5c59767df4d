"""Rows to batches by the compiled loops (extra `[columns]`)."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from oncelog.records.column_types import BytesColumn
from oncelog.records.encode_columns import encode


def encode_columns(
    keys: Sequence[bytes | None] | None,
    values: Sequence[bytes | None] | None,
    times: Sequence[float],
    wall_offset_s: float,
    codec: int,
    level: int,
    target_bytes: int,
    is_stamped_later: bool = False,
) -> list[tuple[Any, int]]:
    """(batch, number of records) of rows without headers; times as the accumulator has them."""
    batches = encode(
        key=_column(keys),
        value=_column(values),
        timestamp_ms=_times_ms(times, wall_offset_s),
        codec=codec,
        level=level,
        target_bytes=target_bytes,
        is_stamped_later=is_stamped_later,
    )
    return [(each.data, each.record_count) for each in batches]


def _times_ms(times: Sequence[float], wall_offset_s: float) -> Any:
    found = np.array(times)
    wall_ms = (found + wall_offset_s) * 1000
    return np.where(found < 0, -found, wall_ms).astype(np.int64)


def _column(cells: Sequence[bytes | None] | None) -> BytesColumn | None:
    if cells is None:
        return None
    count = len(cells)
    valid = None
    if None in cells:
        valid = np.fromiter((cell is not None for cell in cells), np.bool_, count)
        cells = [cell or b"" for cell in cells]
    data = b"".join(cells)  # type: ignore[arg-type]
    ends = np.zeros(count + 1, np.int64)
    np.cumsum(np.fromiter(map(len, cells), np.int64, count), out=ends[1:])  # type: ignore[arg-type]
    if len(data) < 1 << 31:
        ends = ends.astype(np.int32)
    return BytesColumn(ends, np.frombuffer(data, np.uint8), valid)
