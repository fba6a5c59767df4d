"""Messages of a group's members to each other through the coordinator, in Kafka's bytes: subscriptions, assignments.

The coordinator passes both on unread (but for the topics of a subscription). They are versioned by a number in front
and only ever grow at the end, so what a newer member added is skipped. Pure.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from struct import Struct
from struct import error as StructError
from typing import Final

from oncelog.slots import AnyPlace

NO_GENERATION: Final = -1
SUBSCRIPTION_VERSION: Final = 3
ASSIGNMENT_VERSION: Final = 1

_int16: Final = Struct(">h")
_int32: Final = Struct(">i")


class MalformedMessage(ValueError):
    """Bytes of another member that cannot be read."""


@dataclass(frozen=True, slots=True)
class Subscription:
    """The topics that a member wants, the partitions that it has, and since which generation."""

    topics: frozenset[str]
    userdata: bytes = b""
    owned: frozenset[AnyPlace] = frozenset()
    generation: int = NO_GENERATION
    rack: str | None = None


def encode_subscription(subscription: Subscription) -> bytes:
    topics = sorted(subscription.topics)
    return b"".join(
        (
            _int16.pack(SUBSCRIPTION_VERSION),
            _int32.pack(len(topics)),
            *(_text(topic) for topic in topics),
            _bytes(subscription.userdata),
            encode_partitions(subscription.owned),
            _int32.pack(subscription.generation),
            _text(subscription.rack),
        )
    )


def decode_subscription(data: bytes) -> Subscription:
    reader = Reader(data)
    version = reader.int16()
    topics = frozenset(reader.text() or "" for _ in range(reader.count(2)))
    userdata = reader.blob()
    owned = reader.partitions() if version >= 1 else frozenset()
    generation = reader.int32() if version >= 2 else NO_GENERATION
    rack = reader.text() if version >= 3 else None
    return Subscription(topics, userdata, owned, generation, rack)


def encode_assignment(partitions: Collection[AnyPlace], userdata: bytes = b"") -> bytes:
    return _int16.pack(ASSIGNMENT_VERSION) + encode_partitions(partitions) + _bytes(userdata)


def decode_assignment(data: bytes) -> frozenset[AnyPlace]:
    """No bytes are no partitions: a coordinator gives them to a member that the leader left out."""
    if not data:
        return frozenset()
    reader = Reader(data)
    reader.int16()
    return reader.partitions()


def encode_partitions(partitions: Iterable[AnyPlace]) -> bytes:
    by_topic: dict[str, list[int]] = defaultdict(list)
    for topic, partition in sorted(partitions):
        by_topic[topic].append(partition)
    parts = [_int32.pack(len(by_topic))]
    for topic, numbers in by_topic.items():
        parts += [_text(topic), _int32.pack(len(numbers)), *(_int32.pack(number) for number in numbers)]
    return b"".join(parts)


def _text(text: str | None) -> bytes:
    if text is None:
        return _int16.pack(-1)
    encoded = text.encode()
    return _int16.pack(len(encoded)) + encoded


def _bytes(data: bytes) -> bytes:
    return _int32.pack(len(data)) + data


class Reader:
    """Reads from the front. Whatever does not fit is a MalformedMessage; a count never reserves more than is there."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def int16(self) -> int:
        return self._number(_int16)

    def int32(self) -> int:
        return self._number(_int32)

    def text(self) -> str | None:
        size_bytes = self.int16()
        if size_bytes < 0:
            return None
        try:
            return self._take(size_bytes).decode()
        except UnicodeDecodeError as error:
            raise MalformedMessage(str(error)) from None

    def blob(self) -> bytes:
        return self._take(max(self.int32(), 0))

    def count(self, least_bytes: int) -> int:
        """The number of elements that follow, each of at least that many bytes."""
        found = self.int32()
        if found > (len(self._data) - self._at) // least_bytes:
            raise MalformedMessage("more elements than there are bytes")
        return max(found, 0)

    def partitions(self) -> frozenset[AnyPlace]:
        found: set[AnyPlace] = set()
        for _ in range(self.count(6)):
            topic = self.text() or ""
            found.update((topic, self.int32()) for _ in range(self.count(4)))
        return frozenset(found)

    def _number(self, number: Struct) -> int:
        try:
            (found,) = number.unpack_from(self._data, self._at)
        except StructError:
            raise MalformedMessage("cut short") from None
        self._at += number.size
        return int(found)

    def _take(self, size_bytes: int) -> bytes:
        taken = self._data[self._at : self._at + size_bytes]
        if len(taken) < size_bytes:
            raise MalformedMessage("cut short")
        self._at += size_bytes
        return taken
