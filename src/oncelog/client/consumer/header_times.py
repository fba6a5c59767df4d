"""Times that stand in a header, as decimal milliseconds, out of whole columns (extra `[columns]`)."""

import numpy as np

from oncelog.client.consumer.decoding import time_in
from oncelog.records.column_types import Bytes, BytesColumn, Columns, Int64s

ZERO = ord("0")
MOST_DIGITS = 18  # they fit 64 bits


def header_times(columns: Columns, first: int, last: int, name: bytes) -> Int64s:
    """The time that each row's header says; where there is none, the record's own."""
    heads = columns.headers
    assert heads is not None and columns.timestamp_ms is not None
    begin, end = int(heads.ends[first]), int(heads.ends[last])
    own = columns.timestamp_ms[first:last]
    if begin == end:
        return own
    each, rest = divmod(end - begin, last - first)
    if rest == 0 and np.all(np.diff(heads.ends[first : last + 1]) == each):
        for place in range(each):
            here = np.arange(begin + place, end, each)
            if _are_all(heads.names, here, name):
                found = _numbers(heads.values, here)
                if found is not None:
                    return found
    times = zip(range(first, last), own.tolist(), strict=True)
    return np.array([time_in(heads[row], name, time_ms) for row, time_ms in times], np.int64)


def _are_all(column: BytesColumn, rows: Int64s, name: bytes) -> bool:
    found = _same_width(column, rows)
    return found is not None and found.shape[1] == len(name) and bool(np.all(found == np.frombuffer(name, np.uint8)))


def _numbers(column: BytesColumn, rows: Int64s) -> Int64s | None:
    """None where they are not all numbers of the same length, which those of one time are."""
    if column.valid is not None and not np.all(column.valid[rows]):
        return None
    digits = _same_width(column, rows)
    if digits is None or not 0 < digits.shape[1] <= MOST_DIGITS:
        return None
    values = digits.astype(np.int64) - ZERO
    if values.min() < 0 or values.max() > 9:
        return None
    powers = 10 ** np.arange(digits.shape[1] - 1, -1, -1, dtype=np.int64)
    found: Int64s = values @ powers
    return found


def _same_width(column: BytesColumn, rows: Int64s) -> Bytes | None:
    """The column as a matrix, a row of it for each."""
    starts = column.ends[rows].astype(np.int64)
    widths = column.ends[rows + 1] - starts
    if np.any(widths != widths[0]):
        return None
    found: Bytes = column.data[starts[:, None] + np.arange(int(widths[0]))]
    return found
