"""What members of the classic protocol say of themselves, in bytes."""

import struct
from collections.abc import Iterable


def subscription(
    topics: Iterable[str], has: Iterable[tuple[str, int]] = (), generation: int = -1, version: int = 2
) -> bytes:
    names = tuple(topics)
    by_topic: dict[str, list[int]] = {}
    for topic, index in sorted(has):
        by_topic.setdefault(topic, []).append(index)
    parts = [struct.pack(">hi", version, len(names)), *map(_text, names), struct.pack(">i", -1)]
    if version >= 1:
        parts.append(struct.pack(">i", len(by_topic)))
        for topic, indexes in by_topic.items():
            parts.append(_text(topic) + struct.pack(f">i{len(indexes)}i", len(indexes), *indexes))
    if version >= 2:
        parts.append(struct.pack(">i", generation))
    return b"".join(parts)


def _text(text: str) -> bytes:
    data = text.encode()
    return struct.pack(">h", len(data)) + data
