"""The hash that places a key, number for number as in Java's producer and librdkafka."""

from typing import Final

_MASK: Final = 0xFFFFFFFF
_POSITIVE: Final = 0x7FFFFFFF


def murmur2(key: bytes) -> int:
    """MurmurHash2 with Kafka's seed, its sign bit dropped as Java's producer does."""
    multiplier = 0x5BD1E995
    whole = len(key) & ~3
    found = 0x9747B28C ^ len(key)
    for at in range(0, whole, 4):
        word = int.from_bytes(key[at : at + 4], "little") * multiplier & _MASK
        word = (word ^ word >> 24) * multiplier & _MASK
        found = found * multiplier & _MASK ^ word
    if whole < len(key):
        found = (found ^ int.from_bytes(key[whole:], "little")) * multiplier & _MASK
    found = (found ^ found >> 13) * multiplier & _MASK
    return (found ^ found >> 15) & _POSITIVE
