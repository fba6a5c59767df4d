"""The records of groups of KIP-848 in `__consumer_offsets`, byte for byte as Kafka 4.3 writes them.

    key 3   group                   epoch int32; tag 0: hash of the topics' metadata int64
    key 5   group, member           instance, rack, client id, client host, topics, pattern, rebalance timeout int32,
                                    assignor; tag 0: what a member of the classic protocol said
    key 6   group                   the target's epoch int32; tag 0: its time int64
    key 7   group, member           the places that it is to have: by topic id
    key 8   group, member           epoch int32, the one before int32, state int8, its places, those to give up;
                                    tag 0 of each topic: in which epoch each became its own
    key 16  group, pattern          topics, version int64, time int64

Values are version 0, in the flexible encoding. A null value is a tombstone. Key 4 was written before Kafka 4.1, and is
passed over.
"""

import struct
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from oncelog.server.coordinator_topic import BadRecord, KeyValue
from oncelog.server.groups.consumer.values import (
    Change,
    Classic,
    Current,
    Epochs,
    GroupEpoch,
    MemberCurrent,
    MemberSaid,
    MemberState,
    Pattern,
    Place,
    Resolved,
    Said,
    Target,
    TargetEpoch,
)
from oncelog.server.groups.records import Reader

GROUP, SAID, TARGET_EPOCH, TARGET, CURRENT, PATTERN = 3, 5, 6, 7, 8, 16
NAMELESS = (GROUP, TARGET_EPOCH)
KINDS = (*NAMELESS, SAID, TARGET, CURRENT, PATTERN)
ID_BYTES = 16

_int8 = struct.Struct(">b")
_int16 = struct.Struct(">h")
_int32 = struct.Struct(">i")
_int64 = struct.Struct(">q")


class Key(NamedTuple):
    kind: int
    group: str
    name: str  # of a member, or a pattern


def encode(group: str, change: Change) -> KeyValue:
    if isinstance(change, GroupEpoch):
        return _key(GROUP, group), None if change.epoch is None else _epoch(change.epoch, change.topics_hash)
    if isinstance(change, TargetEpoch):
        return _key(TARGET_EPOCH, group), None if change.epoch is None else _epoch(change.epoch, change.wall_ms)
    if isinstance(change, MemberSaid):
        return _key(SAID, group, change.member_id), None if change.said is None else _said(change.said)
    if isinstance(change, Target):
        key = _key(TARGET, group, change.member_id)
        return key, None if change.places is None else _version() + _places(dict.fromkeys(change.places, 0)) + NO_TAGS
    if isinstance(change, MemberCurrent):
        return _key(CURRENT, group, change.member_id), None if change.current is None else _current(change.current)
    return _key(PATTERN, group, change.pattern), None if change.resolved is None else _resolved(change.resolved)


def decode_key(data: bytes) -> Key | None:
    """None for a kind of record that is not of such a group."""
    reader = Reader(data)
    kind = reader.version(flexible_from=2**15)
    if kind not in KINDS:
        return None
    return Key(kind, reader.text(), "" if kind in NAMELESS else reader.text())


def decode(key: Key, value: bytes | None) -> Change:
    reader = Reader(value or b"")
    if value is not None:
        reader.version(flexible_from=0)
    if key.kind in NAMELESS:
        return _read_epoch(key.kind, None if value is None else reader)
    if key.kind == SAID:
        return MemberSaid(key.name, None if value is None else _read_said(reader))
    if key.kind == TARGET:
        return Target(key.name, None if value is None else frozenset(_read_places(reader)))
    if key.kind == CURRENT:
        return MemberCurrent(key.name, None if value is None else _read_current(reader))
    return Pattern(key.name, None if value is None else _read_resolved(reader))


# Writing

NO_TAGS = b"\0"


def _uvarint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _key(kind: int, *names: str) -> bytes:
    parts = [_int16.pack(kind)]
    for name in names:
        data = name.encode()
        parts += (_int16.pack(len(data)), data)
    return b"".join(parts)


def _version() -> bytes:
    return _int16.pack(0)


def _string(text: str | None) -> bytes:
    if text is None:
        return b"\0"
    data = text.encode()
    return _uvarint(len(data) + 1) + data


def _strings(texts: Iterable[str]) -> bytes:
    found = [_string(each) for each in texts]
    return _uvarint(len(found) + 1) + b"".join(found)


def _tag_0(data: bytes) -> bytes:
    return b"\1\0" + _uvarint(len(data)) + data


def _epoch(epoch: int, more: int) -> bytes:
    return _version() + _int32.pack(epoch) + (_tag_0(_int64.pack(more)) if more else NO_TAGS)


def _said(said: Said) -> bytes:
    return b"".join(
        (
            _version(),
            _string(said.instance_id),
            _string(said.rack_id),
            _string(said.client_id),
            _string(said.client_host),
            _strings(said.topics),
            _string(said.pattern),
            _int32.pack(said.rebalance_timeout_ms),
            _string(said.assignor),
            NO_TAGS if said.classic is None else _tag_0(b"\1" + _classic(said.classic)),
        )
    )


def _classic(classic: Classic) -> bytes:
    protocols = [
        _string(name) + _uvarint(len(metadata) + 1) + metadata + NO_TAGS for name, metadata in classic.protocols
    ]
    count = _uvarint(len(protocols) + 1)
    return _int32.pack(classic.session_timeout_ms) + count + b"".join(protocols) + NO_TAGS


def _by_topic(places: Epochs) -> Mapping[bytes, list[tuple[int, int]]]:
    found: dict[bytes, list[tuple[int, int]]] = {}
    for place, epoch in places.items():
        found.setdefault(place.topic_id, []).append((place.partition, epoch))
    return found


def _places(places: Epochs, *, with_epochs: bool = False) -> bytes:
    parts = [b""]
    by_topic = _by_topic(places)
    for topic_id, entries in by_topic.items():
        entries.sort()
        count, size = _uvarint(len(entries) + 1), len(entries)
        indexes = struct.pack(f">{size}i", *[index for index, _ in entries])
        epochs = NO_TAGS
        if with_epochs:
            epochs = _tag_0(count + struct.pack(f">{size}i", *[epoch for _, epoch in entries]))
        parts += (topic_id, count, indexes, epochs)
    parts[0] = _uvarint(len(by_topic) + 1)
    return b"".join(parts)


def _current(current: Current) -> bytes:
    return b"".join(
        (
            _version(),
            _int32.pack(current.epoch),
            _int32.pack(current.previous_epoch),
            _int8.pack(current.state.value),
            _places(current.assigned, with_epochs=True),
            _places(current.revoking, with_epochs=True),
            NO_TAGS,
        )
    )


def _resolved(resolved: Resolved) -> bytes:
    times = _int64.pack(resolved.version) + _int64.pack(resolved.wall_ms)
    return _version() + _strings(sorted(resolved.topics)) + times + NO_TAGS


# Reading


def _read_epoch(kind: int, reader: Reader | None) -> Change:
    epoch, more = None, 0
    if reader is not None:
        epoch = reader.int32()
        found = reader.tagged().get(0)
        more = 0 if found is None else Reader(found).int64()
    return GroupEpoch(epoch, more) if kind == GROUP else TargetEpoch(epoch, more)


def _read_strings(reader: Reader) -> tuple[str, ...]:
    return tuple(reader.text() for _ in range(max(reader.count(), 0)))


def _read_said(reader: Reader) -> Said:
    instance_id, rack_id = reader.string(), reader.string()
    client_id, client_host = reader.text(), reader.text()
    topics, pattern = _read_strings(reader), reader.string()
    rebalance_timeout_ms, assignor = reader.int32(), reader.string()
    classic = reader.tagged().get(0)
    return Said(
        instance_id=instance_id,
        rack_id=rack_id,
        client_id=client_id,
        client_host=client_host,
        topics=topics,
        pattern=pattern or None,
        rebalance_timeout_ms=rebalance_timeout_ms,
        assignor=assignor,
        classic=None if classic is None or classic[:1] == b"\0" else _read_classic(classic[1:]),
    )


def _read_classic(data: bytes) -> Classic:
    reader = Reader(data, is_flexible=True)
    session_timeout_ms = reader.int32()
    protocols = []
    for _ in range(max(reader.count(), 0)):
        protocols.append((reader.text(), reader.data()))
        reader.end_of_struct()
    return Classic(session_timeout_ms=session_timeout_ms, protocols=tuple(protocols))


def _read_places(reader: Reader) -> dict[Place, int]:
    places: dict[Place, int] = {}
    for _ in range(max(reader.count(), 0)):
        topic_id = reader.take(ID_BYTES)
        indexes = _read_int32s(reader)
        found = reader.tagged().get(0)
        epochs = [0] * len(indexes) if found is None else _read_int32s(Reader(found, is_flexible=True))
        if len(epochs) != len(indexes):
            raise BadRecord("a member has another number of epochs than of partitions")
        places.update((Place(topic_id, index), epoch) for index, epoch in zip(indexes, epochs, strict=True))
    return places


def _read_int32s(reader: Reader) -> tuple[int, ...]:
    count = max(reader.count(), 0)
    return struct.unpack(f">{count}i", reader.take(count * _int32.size))


def _read_current(reader: Reader) -> Current:
    epoch, previous_epoch, state = reader.int32(), reader.int32(), reader.int8()
    assigned, revoking = _read_places(reader), _read_places(reader)
    is_known = state in {each.value for each in MemberState}
    return Current(
        epoch=epoch,
        previous_epoch=previous_epoch,
        state=MemberState(state) if is_known else MemberState.UNRELEASED,
        assigned=assigned,
        revoking=revoking,
    )


def _read_resolved(reader: Reader) -> Resolved:
    return Resolved(frozenset(_read_strings(reader)), reader.int64(), reader.int64())
