"""Messages of members of the classic protocol to each other, where they are consumers: what one reads
and has (ConsumerProtocolSubscription) and what it is to have (ConsumerProtocolAssignment).

    subscription  version int16, topics, user data; 1: topics and partitions that it has; 2: generation int32; 3: rack
    assignment    version int16, topics and partitions that it is to have, user data

A newer version begins like the newest known one. Of one member no more is looked at than takes some milliseconds.
"""

import struct
from collections.abc import Mapping
from typing import NamedTuple

MOST_LISTED = 10_000
MOST_PARTITIONS = 10_000

_int16 = struct.Struct(">h")
_int32 = struct.Struct(">i")
NULL = _int32.pack(-1)
NEWEST = 3  # version

Partitions = Mapping[str, tuple[int, ...]]  # by topic


class Malformed(Exception):
    """Bytes that no consumer would have sent, or too many."""


class Subscription(NamedTuple):
    topics: tuple[str, ...]
    has: Partitions
    rack_id: str | None


class Share(NamedTuple):
    partitions: Partitions
    has_user_data: bool


def read_subscription(data: bytes) -> Subscription:
    try:
        return _subscription(_Reader(data))
    except (struct.error, UnicodeDecodeError) as error:
        raise Malformed(str(error)) from None


def read_share(data: bytes) -> Share:
    """Nothing at all where a member has not been told yet."""
    if not data:
        return Share({}, has_user_data=False)
    try:
        reader = _Reader(data)
        reader.int16()
        return Share(reader.partitions(), reader.skip_bytes() > 0)
    except (struct.error, UnicodeDecodeError) as error:
        raise Malformed(str(error)) from None


def share_bytes(metadata: bytes, partitions: Partitions) -> bytes:
    """The share as bytes, for a member with such a subscription: it knows the version of that."""
    (version,) = _int16.unpack_from(metadata)
    parts = [_int16.pack(min(version, NEWEST)), _int32.pack(len(partitions))]
    for topic, indexes in partitions.items():
        name, size = topic.encode(), len(indexes)
        parts += (_int16.pack(len(name)), name, struct.pack(f">i{size}i", size, *indexes))
    return b"".join((*parts, NULL))


def _subscription(reader: "_Reader") -> Subscription:
    version = reader.int16()
    if version < 0:
        raise Malformed(f"version {version}")
    topics = tuple(reader.text() for _ in range(reader.count(MOST_LISTED)))
    reader.skip_bytes()
    has = reader.partitions() if version >= 1 else {}
    if version >= 2:
        reader.int32()
    rack_id = reader.string() if version >= 3 else None
    return Subscription(topics, has, rack_id or None)


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def int16(self) -> int:
        (number,) = _int16.unpack_from(self._data, self._at)
        self._at += _int16.size
        return int(number)

    def int32(self) -> int:
        (number,) = _int32.unpack_from(self._data, self._at)
        self._at += _int32.size
        return int(number)

    def count(self, most: int) -> int:
        count = self.int32()
        if not 0 <= count <= most:
            raise Malformed(f"{count} entries, where {most} are the most")
        return count

    def string(self) -> str | None:
        size = self.int16()
        return None if size < 0 else self._take(size).decode()

    def text(self) -> str:
        found = self.string()
        if found is None:
            raise Malformed("a topic without a name")
        return found

    def skip_bytes(self) -> int:
        size = max(self.int32(), 0)
        self._take(size)
        return size

    def partitions(self) -> Partitions:
        found: dict[str, tuple[int, ...]] = {}
        left = MOST_PARTITIONS
        for _ in range(self.count(MOST_LISTED)):
            topic, size = self.text(), self.count(left)
            left -= size
            found[topic] = struct.unpack(f">{size}i", self._take(size * _int32.size))
        return found

    def _take(self, size: int) -> bytes:
        end = self._at + size
        if end > len(self._data):
            raise Malformed("a field is longer than what holds it")
        taken = self._data[self._at : end]
        self._at = end
        return taken
