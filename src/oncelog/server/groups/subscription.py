"""The one thing that Kafka's coordinator reads out of its members' metadata: which topics they are subscribed to."""

import struct
from collections.abc import Iterable

CONSUMER_PROTOCOL = "consumer"

_int16 = struct.Struct(">h")
_int32 = struct.Struct(">i")


def subscribed_topics(protocol_type: str | None, metadatas: Iterable[bytes]) -> frozenset[str] | None:
    """The topics of all members together; None where they cannot be known (another protocol, or unreadable)."""
    if protocol_type != CONSUMER_PROTOCOL:
        return None
    try:
        return frozenset(topic for metadata in metadatas for topic in _topics_of(metadata))
    except (struct.error, UnicodeDecodeError, ValueError):
        return None


def _topics_of(metadata: bytes) -> list[str]:
    """Every version of a ConsumerProtocolSubscription begins like version 0: its version, then the topics' names."""
    at = _int16.size
    (count,) = _int32.unpack_from(metadata, at)
    at += _int32.size
    topics = []
    for _ in range(count):
        (size_bytes,) = _int16.unpack_from(metadata, at)
        at += _int16.size
        end = at + size_bytes
        if size_bytes < 0 or end > len(metadata):
            raise ValueError("a topic's name is cut short")
        topics.append(metadata[at:end].decode())
        at = end
    return topics
