"""Topics as users name them, and records that are sent to them."""

from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

from oncelog.flow.codecs import Codec, optional, raw
from oncelog.records.murmur2 import murmur2
from oncelog.slots.comparing import Headers

K = TypeVar("K")
V = TypeVar("V")


class Sent(NamedTuple):
    """A record for `simulate`."""

    topic: "Topic[Any, Any]"
    key: bytes | None
    value: bytes | None
    at_ms: int
    headers: Headers = ()


@dataclass(frozen=True)
class Topic(Generic[K, V]):
    name: str
    key: Codec[K]
    value: Codec[V]
    partitions: int = 1

    def sent(self, key: K, value: V, at_ms: int = 0, headers: Headers = ()) -> Sent:
        data = None if value is None and self.value.takes_null else self.value.encode(value)
        raw = None if key is None and self.key.takes_null else self.key.encode(key)
        return Sent(self, raw, data, at_ms, headers)

    def tombstone(self, key: K, at_ms: int = 0) -> Sent:
        """Deletes the row of this key, in a table."""
        return Sent(self, self.key.encode(key), None, at_ms)

    def partition_of(self, key: bytes) -> int:
        """As Java's producer places it."""
        return murmur2(key) % self.partitions


@dataclass(frozen=True)
class Dead:
    """Where records go that cannot be worked on: they do not decode, have no key or no value, or a function raises. Key
    and value stay as they were, and headers say which record it was, which stage gave it up, and why."""

    name: str
    partitions: int = 1

    @property
    def topic(self) -> Topic[bytes, bytes | None]:
        return Topic(self.name, raw, optional(raw), self.partitions)
