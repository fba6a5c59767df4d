"""The walk over a batch's records in compiled code: what `walking.py` does, at some five nanoseconds a record.

Where a record ends is known from its first number. The loop goes on from there, and only compares it with where the
fields end: so the next record is begun while the checks of this one are still under way. A record of the usual shape
is read with few comparisons; one that is unlike goes the general way, which alone refuses.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from oncelog.records.block_loops import compiled, inlined, kept
from oncelog.records.decode_loops import varint
from oncelog.records.header import BatchHeader, Buffer
from oncelog.records.read import INT64_MAX

LENGTH_BYTES = 5  # the most that a length, a count or an offset delta takes
TIME_BYTES = 10
_INT64_MAX = np.int64(INT64_MAX)
_NO_PLACE = -1  # goes through every further step unchanged
_NULL = 1  # the length -1
_LONGER = 0x4000
_PLAIN_HEAD_BYTES = 160  # as far as a plain record is read before it is known where it ends


@inlined
def _number(body, at, end, most_bytes):  # type: ignore[no-untyped-def]
    """A zigzag number and the place behind it."""
    if at >= 0 and at + 1 < end:
        first = np.int64(body[at])
        if first < 0x80:
            return (first >> 1) ^ -(first & 1), at + 1
        second = np.int64(body[at + 1])
        if second < 0x80:
            raw = (first & 0x7F) | (second << 7)
            return (raw >> 1) ^ -(raw & 1), at + 2
    value, behind = varint(body, at, end)
    if behind < 0 or behind - at > most_bytes:
        return value, np.int64(_NO_PLACE)
    return value, behind


@inlined
def _behind_field(body, at, end, least_size):  # type: ignore[no-untyped-def]
    """The size of a field with its length in front, and the place behind it."""
    size, at = _number(body, at, end, LENGTH_BYTES)
    if at < 0 or size < least_size or size > end - at:
        return size, np.int64(_NO_PLACE)
    return size, at + max(size, np.int64(0))


@compiled
def _behind_headers(body, at, end, count):  # type: ignore[no-untyped-def]
    if count < 0 or count > (end - at) // 2:
        return np.int64(_NO_PLACE)
    for _ in range(count):
        _, at = _behind_field(body, at, end, np.int64(0))
        _, at = _behind_field(body, at, end, np.int64(-1))
        if at < 0:
            break
    return at


@inlined
def _byte(body, at):  # type: ignore[no-untyped-def]
    return np.int64(body[np.uintp(at)])  # unsigned: nobody need look whether it counts from the end


@inlined
def _short(body, at):  # type: ignore[no-untyped-def]
    """A number of one or two bytes, still zigzag, and the place behind it; LONGER or more where it has more bytes."""
    first = _byte(body, at)
    if first < 0x80:
        return first, at + 1
    return (first & 0x7F) | (_byte(body, at + 1) << 7), at + 2


@kept("u1[]", "i8", "i8", "i8", "i8", results=4)
def walk(body, at, end, count, base_ms):  # type: ignore[no-untyped-def]
    """Whether the bytes from `at` to `end` are `count` records; how many have no key; their least and greatest time."""
    keyless = np.int64(0)
    least_delta = _INT64_MAX
    most_delta = -_INT64_MAX
    plain_end = len(body) - _PLAIN_HEAD_BYTES
    index = np.int64(0)
    while index < count:
        while at <= plain_end and index < count:
            size, place = _short(body, at)
            stop = place + (size >> 1)
            time, place = _short(body, place + 1)
            offset, place = _short(body, place)
            if offset >= _LONGER:
                third = _byte(body, place)
                if third >= 0x80:
                    break
                offset = (offset & (_LONGER - 1)) | (third << 14)
                place += 1
            key = _byte(body, place)
            key_bytes = np.int64(0) if key == _NULL else key
            value, place = _short(body, place + 1 + (key_bytes >> 1))
            place += 0 if value == _NULL else value >> 1
            is_odd = (size | key_bytes) & 1 or (value & 1 and value != _NULL)
            if is_odd or (size | time) >= _LONGER or key >= 0x80 or offset != index + index:
                break
            if place + 1 != stop or stop > end or _byte(body, place) != 0:
                break
            delta = (time >> 1) ^ -(time & 1)
            least_delta = min(least_delta, delta)
            most_delta = max(most_delta, delta)
            keyless += key == _NULL
            at = stop
            index += 1
        if index < count:
            size, at = _number(body, at, end, LENGTH_BYTES)
            if at < 0 or size < 1 or size > end - at:
                return False, keyless, base_ms, base_ms
            stop = at + size
            delta, at = _number(body, at + 1, stop, TIME_BYTES)
            offset, at = _number(body, at, stop, LENGTH_BYTES)
            if at < 0 or offset != index:
                return False, keyless, base_ms, base_ms
            least_delta = min(least_delta, delta)
            most_delta = max(most_delta, delta)
            key_size, at = _behind_field(body, at, stop, np.int64(-1))
            keyless += key_size < 0
            _, at = _behind_field(body, at, stop, np.int64(-1))
            headers, at = _number(body, at, stop, LENGTH_BYTES)
            if at >= 0 and headers != 0:
                at = _behind_headers(body, at, stop, headers)
            if at != stop:
                return False, keyless, base_ms, base_ms
            index += 1
    fits = least_delta >= -_INT64_MAX - 1 - base_ms if base_ms < 0 else most_delta <= _INT64_MAX - base_ms
    return at == end and fits, keyless, base_ms + least_delta, base_ms + most_delta


def as_array(buffer: Buffer) -> Any:
    return np.frombuffer(buffer, np.uint8)


def passes_in(buffer: Buffer) -> Callable[[int, int, int, int], bool]:
    """`walk` within one buffer that never changes its size: whether it passes, and nothing else."""
    found: Callable[[int, int, int, int], bool] = walk.bound(as_array(buffer))
    return found


def walked(body: Buffer, header: BatchHeader) -> tuple[int, int, int] | None:
    """The number of records without a key, the least time and the greatest; None where the body is not the records that
    the header announces."""
    count, base_ms = header.record_count, header.base_timestamp
    passes, keyless, least_ms, most_ms = walk(as_array(body), 0, len(body), count, base_ms)
    return (keyless, least_ms, most_ms) if passes else None


def warm_up() -> None:
    """Compiled, or read from where that was kept: the first call with each kind of memory takes a while."""
    one_record = b"\x0e\0\0\0\1\0\0\0"
    for kind in (bytes, bytearray):
        walk(as_array(kind(one_record)), 0, len(one_record), 1, 0)
