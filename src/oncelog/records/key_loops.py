"""The compiled loops over columns of keys: a number for each key, rows by their places, numbers as text.

Columns come from `decode` or were made by `BytesColumn.of`, so their ends are sound. Each loop is compiled for one kind
of arrays: ends of 32 bits, and what is only read is read-only.
"""

import numpy as np

from oncelog.records.block_loops import compiled, copy, inlined, kept

MOST_PROBES = 1_000  # for one key: somebody who chooses keys that meet in one place gets no more of the processor
MOST_DIGITS = 20  # of a number of 64 bits, its sign included

_MIX = np.uint64(0x9E3779B97F4A7C15)
_MIX_AGAIN = np.uint64(0xC2B2AE3D27D4EB4F)
_NONE = np.uint64(0)


@inlined
def _word(data, at, size):  # type: ignore[no-untyped-def]
    """Up to eight bytes as a number."""
    found = np.uint64(0)
    for index in range(size):
        found |= np.uint64(data[np.uint64(at + index)]) << np.uint64(8 * index)
    return found


@inlined
def _hash(data, start, size, seed):  # type: ignore[no-untyped-def]
    found = seed ^ (np.uint64(size) * _MIX)
    at = start
    end = start + size
    while end - at >= 8:
        found = (found ^ _word(data, at, 8)) * _MIX
        found ^= found >> np.uint64(32)
        at += 8
    found = (found ^ _word(data, at, end - at)) * _MIX
    found = (found ^ (found >> np.uint64(29))) * _MIX_AGAIN
    return found ^ (found >> np.uint64(32))


@inlined
def _is_same(data, at, other, other_at, size):  # type: ignore[no-untyped-def]
    index = np.int64(0)
    while index < size and data[np.uint64(at + index)] == other[np.uint64(other_at + index)]:
        index += 1
    return index == size


@kept(
    "i4[]", "u1[]", "u8", "u8[!]", "i4[!]", "u1[!]", "i8", "i8[!]", "i8", "i4[!]", "i4[!]", "i4[!]", results=3
)  # fmt: skip
def number_keys(ends, data, seed, slots, key_ends, key_data, count, seen, turn, numbers, distinct, hits):  # type: ignore[no-untyped-def]
    """The number of each key: the one that it has, or the next.

    A slot has half of a key's hash and its number, that many and one; there are at least twice as many slots as keys,
    a power of two. `distinct` gets the numbers of these rows in their order, each once, and `hits` how often it came:
    `seen` says of a number in which turn it came last.
    Returns how many keys there are now, how many distinct ones were here, and how many rows were done.
    """
    mask = np.uint64(len(slots) - 1)
    low = np.uint64(0xFFFFFFFF)
    found = np.int64(0)
    for row in range(len(numbers)):
        start = np.int64(ends[row])
        size = np.int64(ends[row + 1]) - start
        hashed = _hash(data, start, size, seed)
        half = hashed & ~low
        at = hashed & mask
        number = np.int64(-1)
        for _ in range(MOST_PROBES):
            slot = slots[at]
            if slot == _NONE:
                number = count
                count += 1
                slots[at] = half | np.uint64(count)
                first = key_ends[number]
                if size:
                    copy(data, start, size, key_data, first)
                key_ends[count] = first + size
                seen[number] = turn - 1
                break
            if slot & ~low == half:
                known = np.int64(slot & low) - 1
                first = np.int64(key_ends[known])
                if np.int64(key_ends[known + 1]) - first == size and _is_same(data, start, key_data, first, size):
                    number = known
                    break
            at = (at + np.uint64(1)) & mask
        if number < 0:
            return count, found, np.int64(row)
        numbers[row] = number
        if seen[number] != turn:
            seen[number] = turn
            hits[number] = 0
            distinct[found] = number
            found += 1
        hits[number] += 1
    return count, found, np.int64(len(numbers))


@kept("u8[!]", "i4[]", "u1[]", "i8", "u8")
def place_again(slots, key_ends, key_data, count, seed):  # type: ignore[no-untyped-def]
    """All keys, into empty slots."""
    mask = np.uint64(len(slots) - 1)
    low = np.uint64(0xFFFFFFFF)
    for number in range(count):
        start = np.int64(key_ends[number])
        hashed = _hash(key_data, start, np.int64(key_ends[number + 1]) - start, seed)
        at = hashed & mask
        while slots[at] != _NONE:
            at = (at + np.uint64(1)) & mask
        slots[at] = (hashed & ~low) | np.uint64(number + 1)


@kept("i4[]", "u1[]", "i8[]", "i4[]", "u1[!]")
def gather(ends, data, rows, to_ends, to_data):  # type: ignore[no-untyped-def]
    """These rows, one behind the other; `to_ends` is known."""
    for index in range(len(rows)):
        start = np.int64(ends[rows[index]])
        size = np.int64(to_ends[index + 1]) - np.int64(to_ends[index])
        if size:
            copy(data, start, size, to_data, np.int64(to_ends[index]))


@kept("u1[]", "i4[]", "u1[]", "i8[]", "i4[]", "u1[!]")
def gather_behind(prefix, ends, data, rows, to_ends, to_data):  # type: ignore[no-untyped-def]
    """The same with some bytes before each, at least one."""
    for index in range(len(rows)):
        start = np.int64(ends[rows[index]])
        at = np.int64(to_ends[index])
        size = np.int64(to_ends[index + 1]) - at - len(prefix)
        copy(prefix, 0, len(prefix), to_data, at)
        if size:
            copy(data, start, size, to_data, at + len(prefix))


@kept("i8[]", "i4[!]", "u1[!]", results=1)
def write_numbers(numbers, to_ends, to_data):  # type: ignore[no-untyped-def]
    """Write numbers in decimal, MOST_DIGITS bytes of room for each. Returns how many bytes were written."""
    at = np.int64(0)
    for index in range(len(numbers)):
        number = numbers[index]
        rest = np.uint64(number)
        if number < 0:
            to_data[at] = np.uint8(45)
            at += 1
            rest = np.uint64(0) - rest
        size = np.int64(1)
        power = np.uint64(10)
        while size < 19 and rest >= power:
            size += 1
            power *= np.uint64(10)
        for place in range(size - 1, -1, -1):
            to_data[at + place] = np.uint8(48) + np.uint8(rest % np.uint64(10))
            rest //= np.uint64(10)
        at += size
        to_ends[index + 1] = at
    return at


@compiled
def murmur2(data, start, end):  # type: ignore[no-untyped-def]
    """The same hash as in `murmur2.py`."""
    multiplier = np.uint32(0x5BD1E995)
    found = np.uint32(0x9747B28C) ^ np.uint32(end - start)
    at = start
    while end - at >= 4:
        word = np.uint32(
            np.uint32(data[at])
            | (np.uint32(data[at + 1]) << np.uint32(8))
            | (np.uint32(data[at + 2]) << np.uint32(16))
            | (np.uint32(data[at + 3]) << np.uint32(24))
        )
        word = np.uint32(word * multiplier)
        word = np.uint32((word ^ (word >> np.uint32(24))) * multiplier)
        found = np.uint32(np.uint32(found * multiplier) ^ word)
        at += 4
    if at < end:
        shift = np.uint32(0)
        while at < end:
            found = np.uint32(found ^ (np.uint32(data[at]) << shift))
            shift = np.uint32(shift + np.uint32(8))
            at += 1
        found = np.uint32(found * multiplier)
    found = np.uint32((found ^ (found >> np.uint32(13))) * multiplier)
    return np.uint32((found ^ (found >> np.uint32(15))) & np.uint32(0x7FFFFFFF))


@kept("i4[]", "u1[]", "i8", "i4[!]")
def place_keys(ends, data, partitions, out):  # type: ignore[no-untyped-def]
    for row in range(len(out)):
        out[row] = murmur2(data, np.int64(ends[row]), np.int64(ends[row + 1])) % np.uint32(partitions)
