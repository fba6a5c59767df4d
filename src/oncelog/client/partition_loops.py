"""Partitions of a whole column of keys by one compiled loop. Needs the extra `[columns]`; partitioners.py does not.

The loop knows the same three hashes as partitioners.py; a test holds them equal row by row.
"""

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from oncelog.client.partitioners import Hash, Partitioner, crc32, fnv1a
from oncelog.records.block_loops import compiled, kept
from oncelog.records.key_loops import murmur2 as murmur2_loop
from oncelog.records.murmur2 import murmur2

KEYLESS: Final = -1
_HASHES: Final[dict[Hash, int]] = {crc32: 0, murmur2: 1, fnv1a: 2}
_NO_NULLS: Final = np.empty(0, np.bool_)


def partitions_of(
    partitioner: Partitioner,
    data: NDArray[np.uint8],
    ends: NDArray[Any],
    count: int,
    valid: NDArray[np.bool_] | None = None,
) -> NDArray[np.int32]:
    """Row i's key is `data[ends[i] : ends[i + 1]]`, or null where `valid` says so.

    The answer is KEYLESS where the key leaves the choice. Ends that do not grow, or lie outside the data, are a
    ValueError: nothing is read by them.
    """
    out = np.empty(max(len(ends) - 1, 0), np.int32)
    if partitioner.hash is None:
        out.fill(KEYLESS)
        return out
    bytes_ends = np.ascontiguousarray(ends, np.int64)
    is_sound = _place(
        _HASHES[partitioner.hash],
        partitioner.places_null,
        partitioner.places_empty,
        np.ascontiguousarray(data),
        bytes_ends,
        _NO_NULLS if valid is None else np.ascontiguousarray(valid, np.bool_),
        np.uint32(count),
        out,
    )
    if not is_sound:
        raise ValueError("the ends of the keys do not grow or exceed their data")
    return out


def _crc_table() -> NDArray[np.uint32]:
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, np.uint32(0xEDB88320) ^ (table >> np.uint32(1)), table >> np.uint32(1))
    return table.astype(np.uint32)


_CRC_TABLE: Final = _crc_table()


def _place_rows(which, places_null, places_empty, data, ends, valid, count, out):  # type: ignore[no-untyped-def]
    at_most = len(data)
    for row in range(len(out)):
        start, end = ends[row], ends[row + 1]
        if start < 0 or end < start or end > at_most or (len(valid) and row >= len(valid)):
            return False
        is_null = len(valid) > 0 and not valid[row]
        if is_null:
            end = start
        if (is_null and not places_null) or (not is_null and end == start and not places_empty):
            out[row] = -1
        elif which == 0:
            out[row] = _crc32(data, start, end) % count
        elif which == 1:
            out[row] = murmur2_loop(data, start, end) % count
        else:
            out[row] = _fnv1a(data, start, end) % count
    return True


def _crc32_row(data, start, end):  # type: ignore[no-untyped-def]
    found = np.uint32(0xFFFFFFFF)
    for at in range(start, end):
        found = _CRC_TABLE[(found ^ data[at]) & np.uint32(0xFF)] ^ (found >> np.uint32(8))
    return found ^ np.uint32(0xFFFFFFFF)


def _fnv1a_row(data, start, end):  # type: ignore[no-untyped-def]
    found = np.uint32(0x811C9DC5)
    for at in range(start, end):
        found = np.uint32((found ^ np.uint32(data[at])) * np.uint32(0x01000193))
    if found > np.uint32(0x7FFFFFFF):
        found = np.uint32(np.uint32(0xFFFFFFFF) - found + np.uint32(1))
    return found


_crc32: Final = compiled(_crc32_row)
_fnv1a: Final = compiled(_fnv1a_row)
_place: Final = kept("i8", "?", "?", "u1[]", "i8[]", "?[]", "u4", "i4[!]", results=1)(_place_rows)
