"""The partition of a record: by its key, or chosen where the key says nothing.

The hashes are librdkafka's, number for number, since a key must go where other producers of the same topic send it.
`murmur2` is Java's too, and `fnv1a` that of Go's Sarama. The choices for records without a key are small objects that
are told the time and the chance, so that a run can be repeated.
"""

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from oncelog.records.murmur2 import murmur2

_MASK: Final = 0xFFFFFFFF
_POSITIVE: Final = 0x7FFFFFFF

Hash = Callable[[bytes], int]


crc32: Final[Hash] = zlib.crc32


def fnv1a(key: bytes) -> int:
    """FNV-1a as Sarama counts it: the absolute value of a signed number."""
    found = 0x811C9DC5
    for byte in key:
        found = (found ^ byte) * 0x01000193 & _MASK
    return found if found <= _POSITIVE else -found & _MASK


@dataclass(frozen=True, slots=True)
class Partitioner:
    """A rule from keys to partitions. `hash` is None where no key decides."""

    name: str
    hash: Hash | None
    places_null: bool = False  # a record without a key goes where an empty one goes, instead of anywhere
    places_empty: bool = True

    def place(self, key: bytes | None, count: int) -> int | None:
        """The partition out of `count`; None where the key leaves the choice."""
        if self.hash is None or self.is_keyless(key):
            return None
        return self.hash(key or b"") % count

    def is_keyless(self, key: bytes | None) -> bool:
        """Whether the record counts as one without a key."""
        return not self.places_null if key is None else not key and not self.places_empty


_ALL: Final = {
    each.name: each
    for each in (
        Partitioner("random", None),
        Partitioner("consistent", crc32, places_null=True),
        Partitioner("consistent_random", crc32, places_empty=False),
        Partitioner("murmur2", murmur2, places_null=True),
        Partitioner("murmur2_random", murmur2),
        Partitioner("fnv1a", fnv1a, places_null=True),
        Partitioner("fnv1a_random", fnv1a),
    )
}


def partitioner(name: str) -> Partitioner:
    """The partitioner of librdkafka's name, as the property `partitioner` has it."""
    return _ALL[name]


@dataclass(slots=True)
class StickyChoice:
    """One partition for a while, then another, so that records without a key share batches. One for each topic."""

    linger_ms: int
    chosen: int = -1
    until_ms: int = -1

    def choose(self, count: int, now_ms: int, pick: Callable[[int], int]) -> int:
        """`pick(n)` answers a number below n by chance. With a linger of 0 every record is a new choice."""
        if now_ms >= self.until_ms or not 0 <= self.chosen < count:
            self.chosen = pick(count)
            self.until_ms = now_ms + self.linger_ms
        return self.chosen


@dataclass(slots=True)
class KeylessCounter:
    """Partitions in turn, by a counter that is saved with the producer, so that a replay places its records alike.

    Each partition gets `run` records before the next one has its turn. That is a function of the counter too, so it
    does not matter how the records were cut into calls.
    """

    counter: int = 0
    run: int = 1

    def choose(self, count: int) -> int:
        chosen = self.counter // self.run % count
        self.counter += 1
        return chosen

    def choose_many(self, records: int) -> range:
        """The same for many records: number n of the range goes to partition `n // run % count`."""
        first = self.counter
        self.counter += records
        return range(first, self.counter)
