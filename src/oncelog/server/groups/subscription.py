"""The one thing that Kafka's coordinator reads out of its members' metadata: which topics they are subscribed to."""

import struct
from collections.abc import Iterable

from oncelog.server.topic_rules import MAX_NAME_CHARS

CONSUMER_PROTOCOL = "consumer"
MOST_LOOKED_AT = 50_000  # are looked at, in 15 ms; the members of one group can send a hundred million

_int16 = struct.Struct(">h")
_int32 = struct.Struct(">i")


def subscribed_topics(protocol_type: str | None, metadatas: Iterable[bytes]) -> frozenset[str] | None:
    """The topics of all members together; None where they cannot be known (another protocol, or unreadable), or are too
    many to look at."""
    if protocol_type != CONSUMER_PROTOCOL:
        return None
    topics: set[str] = set()
    left, last = MOST_LOOKED_AT, None
    try:
        for metadata in metadatas:
            if metadata == last:
                continue  # as most members say the same
            last = metadata
            left = _add_topics(topics, metadata, left)
    except (struct.error, UnicodeDecodeError, ValueError):
        return None
    return frozenset(topics)


def _add_topics(topics: set[str], metadata: bytes, most: int) -> int:
    """The number of names that may still be looked at. Every version of a ConsumerProtocolSubscription begins like
    version 0: its version, then the topics' names."""
    at = _int16.size
    count: int = _int32.unpack_from(metadata, at)[0]
    if count > most:
        raise ValueError(f"{count} names where {most} are looked at")
    at += _int32.size
    for _ in range(count):
        (size_bytes,) = _int16.unpack_from(metadata, at)
        at += _int16.size
        end = at + size_bytes
        if size_bytes < 0 or end > len(metadata):
            raise ValueError("a topic's name is cut short")
        if size_bytes <= MAX_NAME_CHARS:  # no topic has a longer one
            topics.add(metadata[at:end].decode())
        at = end
    return most - count
