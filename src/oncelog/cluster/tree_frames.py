"""The frames on the tree's socket: each is a head, which is JSON, and behind it the values that the head names.

    length of the head, length of the values (4 bytes each, big-endian), head, values

    asked                                       answered
    hello, session or 0                         welcome, session, timeout in ms   over   refused, why
    beat, number                                done, number
    change, number, deadline in ms, changes     done, number   outdated, number, path   unsure | refused, number, why
    get, number, path                           nodes, number, nodes
    children, number, folder                    nodes, number, nodes
    close, number                               done, number
                                                told, path: unasked; "" for anything

A change is [kind, path, version, size of its value], a node [name, version, size of its value].
"""

import asyncio
import json
import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from oncelog.cluster.tree import (
    ABSENT,
    MOST_CHANGE_BYTES,
    MOST_TREE_BYTES,
    MOST_VALUE_BYTES,
    Change,
    Check,
    Node,
    Put,
    PutEphemeral,
    Remove,
)

_LENGTHS = struct.Struct(">II")
MOST_REQUEST_BYTES = 4 * MOST_CHANGE_BYTES  # JSON doubles some characters of a path
MOST_ANSWER_BYTES = 4 * MOST_TREE_BYTES

Head = list[Any]


class BadFrame(Exception):
    """Bytes that are no frame; nothing behind them can be read either."""


class Frame(NamedTuple):
    head: Head
    values: bytes = b""


def encode(head: Sequence[object], values: Iterable[bytes] = ()) -> bytes:
    encoded = json.dumps(head, separators=(",", ":"), ensure_ascii=False).encode()
    joined = b"".join(values)
    return b"".join((_LENGTHS.pack(len(encoded), len(joined)), encoded, joined))


async def read(reader: asyncio.StreamReader, most_bytes: int) -> Frame:
    """Raises IncompleteReadError at the end of the stream, and `BadFrame`."""
    head_bytes, values_bytes = _LENGTHS.unpack(await reader.readexactly(_LENGTHS.size))
    if head_bytes + values_bytes > most_bytes:
        raise BadFrame(f"a frame of {head_bytes + values_bytes:,} bytes: {most_bytes:,} are allowed")
    body = await reader.readexactly(head_bytes + values_bytes)
    try:
        head = json.loads(body[:head_bytes])
    except (ValueError, RecursionError) as error:
        raise BadFrame(str(error)) from None
    if not isinstance(head, list):
        raise BadFrame("no list")
    return Frame(head, body[head_bytes:])


_KINDS: dict[str, type[Change]] = {"check": Check, "put": Put, "ephemeral": PutEphemeral, "remove": Remove}
_NAMES = {kind: name for name, kind in _KINDS.items()}


def encode_changes(number: int, deadline_ms: int, changes: Sequence[Change]) -> bytes:
    heads, values = [], []
    for change in changes:
        value = change.value if isinstance(change, Put | PutEphemeral) else b""
        version = ABSENT if isinstance(change, PutEphemeral) else change.version
        heads.append((_NAMES[type(change)], change.path, version, len(value)))
        values.append(value)
    return encode(("change", number, deadline_ms, heads), values)


def decode_changes(heads: Head, values: bytes) -> list[Change]:
    cut = _Cutter(values)
    found: list[Change] = []
    for head in heads:
        match head:
            case ["check", str(path), int(version), 0]:
                found.append(Check(path, version))
            case ["put", str(path), int(version), int(size_bytes)]:
                found.append(Put(path, cut(size_bytes), version))
            case ["ephemeral", str(path), -1, int(size_bytes)]:
                found.append(PutEphemeral(path, cut(size_bytes)))
            case ["remove", str(path), int(version), 0]:
                found.append(Remove(path, version))
            case _:
                raise BadFrame(f"no change: {head!r:.100}")
    return found


def encode_nodes(number: int, nodes: Mapping[str, Node]) -> bytes:
    heads = [(name, node.version, len(node.value)) for name, node in nodes.items()]
    return encode(("nodes", number, heads), (node.value for node in nodes.values()))


def decode_nodes(heads: Head, values: bytes) -> dict[str, Node]:
    cut = _Cutter(values)
    found: dict[str, Node] = {}
    for head in heads:
        match head:
            case [str(name), int(version), int(size_bytes)]:
                found[name] = Node(cut(size_bytes), version)
            case _:
                raise BadFrame(f"no node: {head!r:.100}")
    return found


class _Cutter:
    def __init__(self, values: bytes) -> None:
        self._values = values
        self._at = 0

    def __call__(self, size_bytes: int) -> bytes:
        start, self._at = self._at, self._at + size_bytes
        if not 0 <= size_bytes <= MOST_VALUE_BYTES or self._at > len(self._values):
            raise BadFrame(f"no value of {size_bytes} bytes")
        return self._values[start : self._at]
