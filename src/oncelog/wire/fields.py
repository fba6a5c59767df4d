"""The fields that packed messages are made of, in their legacy and their compact forms."""

from collections.abc import Sequence
from struct import Struct
from typing import NamedTuple

from oncelog.wire.frames import Buffer, MalformedFrame, read_uvarint, skip_tagged_fields, write_uvarint

TOPIC_ID_BYTES = 16

_int16 = Struct(">h")
_int32 = Struct(">i")
_two_int32 = Struct(">ii")


class NodeEndpoint(NamedTuple):
    """A broker that an answer names, so that no client has to ask for it."""

    node_id: int
    host: str
    port: int
    rack: str | None


NO_LEADER = (-1, -1)


def count_bytes(flexible: bool, count: int) -> bytes:
    return write_uvarint(count + 1) if flexible else _int32.pack(count)


def sized_bytes(flexible: bool, data: bytes) -> bytes:
    return (write_uvarint(len(data) + 1) if flexible else _int16.pack(len(data))) + data


def read_count(flexible: bool, frame: Buffer, at: int) -> tuple[int, int]:
    """0 where an array is null. A count that is too large runs into the frame's end, element by element."""
    if flexible:
        count, at = read_uvarint(frame, at)
        return max(count - 1, 0), at
    (count,) = _int32.unpack_from(frame, at)
    return max(count, 0), at + 4


def read_topic(is_id: bool, flexible: bool, frame: Buffer, at: int) -> tuple[bytes, int]:
    if is_id:
        length = TOPIC_ID_BYTES
    elif flexible:
        length, at = read_uvarint(frame, at)
        length -= 1
    else:
        (length,) = _int16.unpack_from(frame, at)
        at += 2
    stop = at + length
    if length < 0 or stop > len(frame):
        raise MalformedFrame("a topic reaches beyond its frame, or has no name")
    return bytes(frame[at:stop]), stop


def read_text(flexible: bool, frame: Buffer, at: int) -> tuple[str | None, int]:
    if flexible:
        length, at = read_uvarint(frame, at)
        length -= 1
    else:
        (length,) = _int16.unpack_from(frame, at)
        at += 2
    if length < 0:
        return None, at
    stop = at + length
    if stop > len(frame):
        raise MalformedFrame("a text reaches beyond its frame")
    return bytes(frame[at:stop]).decode(), stop


def read_tags(frame: Buffer, at: int) -> tuple[dict[int, Buffer], int]:
    count, at = read_uvarint(frame, at)
    found: dict[int, Buffer] = {}
    for _ in range(count):
        tag, at = read_uvarint(frame, at)
        size_bytes, at = read_uvarint(frame, at)
        stop = at + size_bytes
        if stop > len(frame):
            raise MalformedFrame("tagged fields reach beyond their frame")
        found[tag] = frame[at:stop]
        at = stop
    return found, at


def read_leader(tagged: Buffer | None) -> tuple[int, int]:
    return NO_LEADER if tagged is None else _two_int32.unpack_from(tagged)


def read_endpoints(frame: Buffer, at: int) -> Sequence[NodeEndpoint]:
    """The tagged fields at the end of an answer: 0 holds the brokers that its leaders stand for."""
    if at >= len(frame):
        raise MalformedFrame("it ends before its tagged fields")
    if frame[at] == 0:
        return ()
    found, _ = read_tags(frame, at)
    tagged = found.get(0)
    if tagged is None:
        return ()
    count, at = read_count(True, tagged, 0)
    endpoints = []
    for _ in range(count):
        (node_id,) = _int32.unpack_from(tagged, at)
        host, at = read_text(True, tagged, at + 4)
        (port,) = _int32.unpack_from(tagged, at)
        rack, at = read_text(True, tagged, at + 4)
        at = skip_tagged_fields(tagged, at, len(tagged))
        endpoints.append(NodeEndpoint(node_id, host or "", port, rack))
    return endpoints
