"""The records of `__transaction_state`, byte for byte as Kafka writes them since transaction.version 2.

    key    int16 version 0; transactional id
    value  int16 version 1, in the flexible encoding: pid int64, epoch int16, timeout int32, state int8, partitions by
           topic (null in state Empty), last update int64, start int64; tagged: 0 previous pid int64, 1 next pid int64,
           2 version of the client's transactions int16

A null value is a tombstone. Values of version 0, which is not flexible and has no tags, are read as well.
"""

import struct
from collections.abc import Callable, Iterable
from typing import Final

from oncelog.transactions.machine import NO_PID, TopicPartition, Transaction
from oncelog.transactions.states import State

KEY_VERSION, VERSION, PLAIN_VERSION = 0, 1, 0
MOST_GROWTH_BYTES = 32  # of a transaction's record from its last partition to its end: the tagged fields
_HEAD = struct.Struct(">hqhib")
_TIMES = struct.Struct(">qq")
_int16, _int32, _int64 = struct.Struct(">h"), struct.Struct(">i"), struct.Struct(">q")
_PREVIOUS_PID, _NEXT_PID, _VERSION_TAG = 0, 1, 2
_TAGS: Final = {_PREVIOUS_PID: _int64, _NEXT_PID: _int64, _VERSION_TAG: _int16}


class BadState(Exception):
    """Bytes in `__transaction_state` that are not what Kafka would have written."""


def encode_key(transactional_id: str) -> bytes:
    name = transactional_id.encode()
    return _int16.pack(KEY_VERSION) + _int16.pack(len(name)) + name


def decode_key(data: bytes) -> str | None:
    """None for a kind of record that is not kept here."""
    if len(data) < 2 or _int16.unpack_from(data)[0] != KEY_VERSION:
        return None
    (size,) = _int16.unpack_from(data, 2)
    if len(data) < 4 + size or size < 0:
        raise BadState("a transactional id is longer than its record")
    return data[4 : 4 + size].decode()


def encode(transaction: Transaction) -> bytes:
    head = _HEAD.pack(VERSION, transaction.pid, transaction.epoch, transaction.timeout_ms, transaction.state)
    is_empty = transaction.state is State.EMPTY
    partitions = b"\0" if is_empty else _encoded_partitions(transaction.partitions)
    times = _TIMES.pack(transaction.updated_wall_ms, transaction.started_wall_ms)
    tagged = {
        _PREVIOUS_PID: _int64.pack(transaction.previous_pid) if transaction.previous_pid != NO_PID else b"",
        _NEXT_PID: _int64.pack(transaction.next_pid) if transaction.next_pid != NO_PID else b"",
        _VERSION_TAG: _int16.pack(transaction.version) if transaction.version else b"",
    }
    tags = [(tag, data) for tag, data in tagged.items() if data]
    parts = [_uvarint(len(tags)), *(_uvarint(tag) + _uvarint(len(data)) + data for tag, data in tags)]
    return b"".join((head, partitions, times, *parts))


def _encoded_partitions(partitions: Iterable[TopicPartition]) -> bytes:
    by_topic: dict[str, list[int]] = {}
    for topic, index in sorted(partitions):
        by_topic.setdefault(topic, []).append(index)
    parts = [_uvarint(len(by_topic) + 1)]
    for topic, indexes in by_topic.items():
        name = topic.encode()
        parts += (_uvarint(len(name) + 1), name, _uvarint(len(indexes) + 1), *map(_int32.pack, indexes), b"\0")
    return b"".join(parts)


def decode(data: bytes) -> Transaction:
    try:
        return _decode(data)
    except (struct.error, IndexError, ValueError) as error:
        raise BadState(str(error)) from None


def _decode(data: bytes) -> Transaction:
    version, pid, epoch, timeout_ms, state = _HEAD.unpack_from(data)
    if version not in (PLAIN_VERSION, VERSION):
        raise BadState(f"a transaction's state of version {version}")
    count, text = (_compact_count, _compact_text) if version else (_plain_count, _plain_text)
    partitions, at = _partitions(data, _HEAD.size, count, text, is_flexible=version > 0)
    updated_wall_ms, started_wall_ms = _TIMES.unpack_from(data, at)
    tagged = _tagged(data, at + _TIMES.size) if version else {}
    return Transaction(
        pid=pid,
        epoch=epoch,
        previous_pid=tagged.get(_PREVIOUS_PID, NO_PID),
        next_pid=tagged.get(_NEXT_PID, NO_PID),
        timeout_ms=timeout_ms,
        state=State(state),
        partitions=partitions,
        started_wall_ms=started_wall_ms,
        updated_wall_ms=updated_wall_ms,
        version=tagged.get(_VERSION_TAG, 0),
    )


Reads = Callable[[bytes, int], tuple[int, int]]
ReadsText = Callable[[bytes, int], tuple[str, int]]


def _partitions(
    data: bytes, at: int, count: Reads, text: ReadsText, *, is_flexible: bool
) -> tuple[frozenset[TopicPartition], int]:
    found: set[TopicPartition] = set()
    topics, at = count(data, at)
    for _ in range(topics):
        topic, at = text(data, at)
        indexes, at = count(data, at)
        for _ in range(indexes):
            found.add((topic, _int32.unpack_from(data, at)[0]))
            at += _int32.size
        at += is_flexible  # no tags
    return frozenset(found), at


def _tagged(data: bytes, at: int) -> dict[int, int]:
    found: dict[int, int] = {}
    tags, at = _read_uvarint(data, at)
    for _ in range(tags):
        tag, at = _read_uvarint(data, at)
        size, at = _read_uvarint(data, at)
        kind = _TAGS.get(tag)
        if kind is not None:
            found[tag] = kind.unpack_from(data, at)[0]
        at += size
    return found


def _plain_count(data: bytes, at: int) -> tuple[int, int]:
    return max(0, _int32.unpack_from(data, at)[0]), at + _int32.size


def _compact_count(data: bytes, at: int) -> tuple[int, int]:
    count, at = _read_uvarint(data, at)
    return max(0, count - 1), at


def _plain_text(data: bytes, at: int) -> tuple[str, int]:
    (size,) = _int16.unpack_from(data, at)
    return _text(data, at + _int16.size, size)


def _compact_text(data: bytes, at: int) -> tuple[str, int]:
    size, at = _read_uvarint(data, at)
    return _text(data, at, size - 1)


def _text(data: bytes, at: int, size: int) -> tuple[str, int]:
    if size < 0 or at + size > len(data):
        raise BadState("a name is longer than its record")
    return data[at : at + size].decode(), at + size


def _uvarint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _read_uvarint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while shift < 35:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    raise BadState("a number takes more than five bytes")
