"""The records of `__consumer_offsets`, byte for byte as Kafka writes them: its own tools can read the topic.

    key    int16 version; 0 and 1: group, topic, partition int32; 2: group
    offset int16 version; 0: offset int64, metadata, commit time int64; 1: and expire time int64;
           2: as 0; 3: leader epoch int32 after the offset; 4: as 3 in the flexible encoding
    group  int16 version; 0: protocol type, generation int32, protocol, leader, members; 2: time of the state int64
           before the members; 4: flexible. A member: id, (3: instance id,) client id, client host,
           (1: rebalance timeout int32,) session timeout int32, subscription, assignment

A null value is a tombstone. Keys of other versions belong to kinds of groups that are not kept here.
Written are key 1 and 2, offsets as 3 (as 1 with an expire time of their own), groups as 3. Kafka writes the same, but
since 4.1 offsets as 4 with the topic's id behind them, which is read here and passed over.
"""

import struct
from typing import NamedTuple

from oncelog.server.coordinator_topic import BadRecord, KeyValue
from oncelog.server.groups.messages import StoredGroup, StoredMember

OFFSET_KEYS = (0, 1)
GROUP_KEY = 2
NO_EPOCH = -1


class OffsetKey(NamedTuple):
    group: str
    topic: str
    partition: int


class GroupKey(NamedTuple):
    group: str


class CommittedOffset(NamedTuple):
    offset: int
    leader_epoch: int
    metadata: str
    commit_wall_ms: int
    expire_wall_ms: int = -1  # set by clients of OffsetCommit v2 to v4 only
    end_offset: int = -1  # of its record in the log, about; not stored in it


_int8 = struct.Struct(">b")
_int16 = struct.Struct(">h")
_int32 = struct.Struct(">i")
_three_int32 = struct.Struct(">iii")
_int64 = struct.Struct(">q")
_offset_v3 = struct.Struct(">hqi")
_offset_v1 = struct.Struct(">hq")
_two_int64 = struct.Struct(">qq")


def _string(text: str | None) -> bytes:
    if text is None:
        return _int16.pack(-1)
    data = text.encode()
    return _int16.pack(len(data)) + data


def _bytes(data: bytes) -> bytes:
    return _int32.pack(len(data)) + data


def encode_offset_key(group: str, topic: str, partition: int) -> bytes:
    return _int16.pack(1) + _string(group) + _string(topic) + _int32.pack(partition)


def encode_committed(group: str, topic: str, partition: int, value: CommittedOffset) -> KeyValue:
    return encode_offset_key(group, topic, partition), encode_offset(value)


def encode_group_key(group: str) -> bytes:
    return _int16.pack(GROUP_KEY) + _string(group)


def encode_stored(group: str, value: StoredGroup) -> KeyValue:
    return encode_group_key(group), encode_group(value)


def encode_offset(value: CommittedOffset) -> bytes:
    if value.expire_wall_ms >= 0:
        head = _offset_v1.pack(1, value.offset)
        return head + _string(value.metadata) + _two_int64.pack(value.commit_wall_ms, value.expire_wall_ms)
    head = _offset_v3.pack(3, value.offset, value.leader_epoch)
    return head + _string(value.metadata) + _int64.pack(value.commit_wall_ms)


def encode_group(value: StoredGroup) -> bytes:
    parts = [
        _int16.pack(3),
        _string(value.protocol_type),
        _int32.pack(value.generation),
        _string(value.protocol_name),
        _string(value.leader),
        _int64.pack(value.state_since_wall_ms),
        _int32.pack(len(value.members)),
    ]
    strings: dict[str | None, bytes] = {}  # most members have some in common

    def string(text: str | None) -> bytes:
        found = strings.get(text)
        if found is None:
            found = strings[text] = _string(text)
        return found

    int16, int32, three_int32 = _int16.pack, _int32.pack, _three_int32.pack
    for (
        member_id,
        instance_id,
        client_id,
        client_host,
        rebalance_ms,
        session_ms,
        subscription,
        assignment,
    ) in value.members:
        id_bytes = member_id.encode()
        parts += (
            int16(len(id_bytes)),
            id_bytes,
            string(instance_id),
            string(client_id),
            string(client_host),
            three_int32(rebalance_ms, session_ms, len(subscription)),
            subscription,
            int32(len(assignment)),
            assignment,
        )
    return b"".join(parts)


class Reader:
    def __init__(self, data: bytes, *, is_flexible: bool = False) -> None:
        self._data = data
        self._at = 0
        self._flexible = is_flexible

    def version(self, flexible_from: int) -> int:
        version = self._number(_int16)
        self._flexible = version >= flexible_from
        return version

    def int8(self) -> int:
        return self._number(_int8)

    def int32(self) -> int:
        return self._number(_int32)

    def int64(self) -> int:
        return self._number(_int64)

    def count(self) -> int:
        return self._uvarint() - 1 if self._flexible else self._number(_int32)

    def string(self) -> str | None:
        size_bytes = self._uvarint() - 1 if self._flexible else self._number(_int16)
        return None if size_bytes < 0 else self.take(size_bytes).decode()

    def text(self) -> str:
        return self.string() or ""

    def data(self) -> bytes:
        return self.take(max(self.count(), 0))

    def end_of_struct(self) -> None:
        """Tagged fields may be added to the flexible versions without a new one (KIP-915): they are skipped."""
        self.tagged()

    def tagged(self) -> dict[int, bytes]:
        found: dict[int, bytes] = {}
        if self._flexible:
            for _ in range(self._uvarint()):
                tag = self._uvarint()
                found[tag] = self.take(self._uvarint())
        return found

    def take(self, size_bytes: int) -> bytes:
        end = self._at + size_bytes
        if size_bytes < 0 or end > len(self._data):
            raise BadRecord("a field is longer than its record")
        taken = self._data[self._at : end]
        self._at = end
        return taken

    def _number(self, kind: struct.Struct) -> int:
        try:
            number: int = kind.unpack_from(self._data, self._at)[0]
        except struct.error:
            raise BadRecord("a field is longer than its record") from None
        self._at += kind.size
        return number

    def _uvarint(self) -> int:
        value = shift = 0
        while True:
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7
            if shift > 28:
                raise BadRecord("a length takes more than five bytes")


def decode_key(data: bytes) -> OffsetKey | GroupKey | None:
    """None for a kind of record that is not kept here."""
    reader = Reader(data)
    version = reader.version(flexible_from=2**15)
    if version in OFFSET_KEYS:
        return OffsetKey(reader.text(), reader.text(), reader.int32())
    if version == GROUP_KEY:
        return GroupKey(reader.text())
    return None


def decode_offset(data: bytes) -> CommittedOffset:
    reader = Reader(data)
    version = reader.version(flexible_from=4)
    offset = reader.int64()
    leader_epoch = reader.int32() if version >= 3 else NO_EPOCH
    metadata = reader.text()
    commit_wall_ms = reader.int64()
    expire_wall_ms = reader.int64() if version == 1 else -1
    reader.end_of_struct()
    return CommittedOffset(offset, leader_epoch, metadata, commit_wall_ms, expire_wall_ms)


def decode_group(data: bytes) -> StoredGroup:
    reader = Reader(data)
    version = reader.version(flexible_from=4)
    protocol_type, generation = reader.text(), reader.int32()
    protocol_name, leader = reader.string(), reader.string()
    state_since_wall_ms = reader.int64() if version >= 2 else -1
    members = tuple(_member(reader, version) for _ in range(max(reader.count(), 0)))
    reader.end_of_struct()
    return StoredGroup(
        protocol_type=protocol_type,
        generation=generation,
        protocol_name=protocol_name,
        leader=leader,
        state_since_wall_ms=state_since_wall_ms,
        members=members,
    )


def _member(reader: Reader, version: int) -> StoredMember:
    member_id = reader.text()
    instance_id = reader.string() if version >= 3 else None
    client_id, client_host = reader.text(), reader.text()
    rebalance_timeout_ms = reader.int32() if version >= 1 else -1
    session_timeout_ms = reader.int32()
    subscription, assignment = reader.data(), reader.data()
    reader.end_of_struct()
    return StoredMember(
        member_id=member_id,
        instance_id=instance_id,
        client_id=client_id,
        client_host=client_host,
        rebalance_timeout_ms=session_timeout_ms if rebalance_timeout_ms < 0 else rebalance_timeout_ms,
        session_timeout_ms=session_timeout_ms,
        subscription=subscription,
        assignment=assignment,
    )
