"""Topics as users name them, and records that are sent to them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Generic, NamedTuple, TypeVar

from oncelog.arguments import as_whole, check_kind, check_text, number_within
from oncelog.flow.codecs import Codec, optional, raw
from oncelog.flow.functions import check_function
from oncelog.records.murmur2 import murmur2
from oncelog.slots.comparing import Headers

K = TypeVar("K")
V = TypeVar("V")

MOST_TIME_MS: Final = 253_402_300_799_999  # the end of the year 9999: what is beyond are microseconds


class Sent(NamedTuple):
    """A record for `simulate`, made by `topic.sent(key, value)`."""

    topic: "Topic[Any, Any]"
    key: bytes | None
    value: bytes | None
    at_ms: int
    headers: Headers = ()


@dataclass(frozen=True)
class Topic(Generic[K, V]):
    """A topic with a codec for its keys and one for its values. `time`: from a value to the time of its event, for
    values that have one; otherwise the record's time counts."""

    name: str
    key: Codec[K]
    value: Codec[V]
    partitions: int = 1
    time: Callable[[V], int] | None = None  # when it happened, where the value says it and not the record

    def __post_init__(self) -> None:
        object.__setattr__(self, "partitions", _checked(self.name, self.partitions))
        for what, codec in (("keys", self.key), ("values", self.value)):
            takes = "a codec, such as text, raw or json_of(Order)"
            check_kind(f"Topic {self.name}: what its {what} are", codec, Codec, takes)
        if self.time is not None:
            check_function(f"Topic {self.name}: time", self.time, "value")

    def sent(self, key: K, value: V, at_ms: int = 0, headers: Headers = ()) -> Sent:
        data = None if value is None and self.value.takes_null else self.value.encode(value)
        raw = None if key is None and self.key.takes_null else self.key.encode(key)
        return Sent(self, raw, data, at_ms, headers)

    def tombstone(self, key: K, at_ms: int = 0) -> Sent:
        """A record that deletes the row of this key, in a table."""
        return Sent(self, self.key.encode(key), None, at_ms)

    def time_of(self, value: V) -> int:
        """The time that the value says."""
        assert self.time is not None
        given = self.time(value)
        time_ms = given if type(given) is int else as_whole(given)
        if time_ms is None or not 0 <= time_ms <= MOST_TIME_MS:
            raise ValueError(f"its time is {given!r}, where an int is expected: milliseconds since 1970")
        return time_ms

    def decode_timed(self, data: bytes) -> V:
        """A value that says its time."""
        value = self.value.decode(data)
        self.time_of(value)
        return value

    def partition_of(self, key: bytes) -> int:
        """The partition that Java's producer would choose."""
        return murmur2(key) % self.partitions


@dataclass(frozen=True)
class Dead:
    """A topic for records that cannot be worked on: they do not decode, have no key or no value, or a function raises.
    Key and value stay as they were, and headers say which record it was, which stage gave it up, and why."""

    name: str
    partitions: int = 1

    def __post_init__(self) -> None:
        object.__setattr__(self, "partitions", _checked(self.name, self.partitions))

    @property
    def topic(self) -> Topic[bytes, bytes | None]:
        return Topic(self.name, raw, optional(raw), self.partitions)


def _checked(name: str, partitions: int) -> int:
    check_text("the name of a topic", name, "orders")
    return number_within(f"Topic {name}: partitions", partitions, 1)
