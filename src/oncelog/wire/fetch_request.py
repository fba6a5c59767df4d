"""The Fetch request that consumers usually send, read by structs; kio reads all others but a follower's
(`follower_fetch.py`).

    4 replica_id max_wait min_bytes max_bytes isolation [topic [index offset max_bytes]]; 5 log_start_offset;
    7 session id and epoch, forgotten topics; 9 current_leader_epoch; 11 rack_id; 12 compact forms, last_fetched_epoch;
    13 topic ids for names; 15 replica_id is gone

Unusual are tagged fields, forgotten topics, nulls, bytes left over, a great many partitions, and whatever is
malformed.
For these the answer is None, so that there is one judge of what is an error.
"""

from collections.abc import Iterator, Sequence
from functools import cache, lru_cache
from struct import Struct
from struct import error as StructError
from typing import Any, NamedTuple
from uuid import UUID

from oncelog.wire.follower_fetch import (
    MOST_PARTITIONS,
    UNSAID,
    FollowedPartition,
    FollowerFetch,
    read_follower_fetch,
)
from oncelog.wire.frames import MalformedFrame, Readable, read_uvarint
from oncelog.wire.hot import FETCH_FLEXIBLE, FETCH_TOPIC_IDS

NO_EPOCH = -1
REPLICA_STATE_FROM = 15  # before, the replica id is passed over: no follower is as old as that

_int16 = Struct(">h")
_int32 = Struct(">i")


class FetchPartition(NamedTuple):
    partition: int
    leader_epoch: int
    offset: int
    max_bytes: int


class FetchRequest(NamedTuple):
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation_level: int
    session_id: int
    session_epoch: int
    # name as UTF-8, or the 16 bytes of the topic id; its partitions
    topics: list[tuple[bytes, list[FetchPartition]]]
    forgotten: Sequence[tuple[bytes, Sequence[int]]] = ()  # of a session


class _Unusual(Exception):
    pass


@cache
def _layout(version: int) -> tuple[Struct, Struct]:
    """The fields before the topics, and those of one partition: index, leader epoch, offset, max_bytes and count of
    tags."""
    head = Struct(f">{'' if version >= 15 else '4x'}iiib{'ii' if version >= 7 else ''}")
    epoch = "i" if version >= 9 else ""
    between = 4 * (version >= 12) + 8 * (version >= 5)  # last fetched epoch and log start offset: a follower's
    return head, Struct(f">i{epoch}q{between}xi{'B' if version >= FETCH_FLEXIBLE else ''}")


@lru_cache(maxsize=1024)
def _layout_of_one(version: int, name_bytes: int) -> Struct:
    """The whole body that names one topic with one partition; all counts come out with it."""
    head, partition = _layout(version)
    if version < FETCH_FLEXIBLE:
        return Struct(f"{head.format}i2x{name_bytes}si{partition.format[1:]}ih")
    name_length = "" if version >= FETCH_TOPIC_IDS else "x"
    return Struct(f"{head.format}B{name_length}{name_bytes}sB{partition.format[1:]}BBBB")


# The count of topics and that of partitions, and all behind the partition. Flexible: the tags of the partition and of
# the topic, topics forgotten, the rack's length, tags; counts are one more than there is.
_ONE = (1, 1, 0, 0)
_ONE_COMPACT = (2, 2, 0, 0, 1, 1, 0)
_NOTHING = b"\1\1\1\0"  # compact: neither topics nor forgotten ones, no rack, no tags


def _read_none(buffer: Readable, at: int, version: int) -> FetchRequest | None:
    """The request of a consumer whose session says it all."""
    head = _layout(version)[0]
    if buffer[at + head.size : at + head.size + len(_NOTHING)] != _NOTHING:
        return None
    wait_ms, least, most, isolation, session, epoch = head.unpack_from(buffer, at)
    return FetchRequest(wait_ms, least, most, isolation, session, epoch, [])


def _read_one(buffer: Readable, at: int, end: int, version: int) -> FetchRequest | None:
    """The request of a consumer of one partition, by one struct; from version 11."""
    head_bytes = _layout(version)[0].size
    if version < FETCH_FLEXIBLE:
        (name_bytes,) = _int16.unpack_from(buffer, at + head_bytes + 4)
    else:
        name_bytes = 16 if version >= FETCH_TOPIC_IDS else buffer[at + head_bytes + 1] - 1
    if not 0 <= name_bytes < 0x7F:
        return None
    layout = _layout_of_one(version, name_bytes)
    if at + layout.size != end:
        return None
    values = layout.unpack_from(buffer, at)
    wait_ms, least, most, isolation, session, epoch, topics, name, partitions = values[:9]
    if (topics, partitions, *values[13:]) != (_ONE if version < FETCH_FLEXIBLE else _ONE_COMPACT):
        return None
    if version < FETCH_TOPIC_IDS:
        name.decode()
    return FetchRequest(wait_ms, least, most, isolation, session, epoch, [(name, [FetchPartition._make(values[9:13])])])


def read_fetch(buffer: Readable, at: int, end: int, version: int) -> FetchRequest | FollowerFetch | None:
    """The request whose body begins at `at`, or None where kio should read it."""
    if version >= FETCH_FLEXIBLE and end - at == _layout(version)[0].size + len(_NOTHING):
        return _read_none(buffer, at, version)
    try:
        request = _read_one(buffer, at, end, version) if version >= 11 else None
    except (StructError, IndexError, UnicodeDecodeError):
        return None
    return request or _read_any(buffer, at, end, version) or read_follower_fetch(buffer, at, end, version)


def _read_any(buffer: Readable, at: int, end: int, version: int) -> FetchRequest | None:
    head, partition = _layout(version)
    try:
        max_wait_ms, min_bytes, max_bytes, isolation_level, *session = head.unpack_from(buffer, at)
        read_topics = _compact_topics if version >= FETCH_FLEXIBLE else _legacy_topics
        topics, at = read_topics(buffer, at + head.size, end, version, partition)
        at = _end(buffer, at, version)
    except (_Unusual, MalformedFrame, StructError, IndexError, UnicodeDecodeError):
        return None
    if at != end:
        return None
    session_id, session_epoch = session or (0, -1)
    return FetchRequest(max_wait_ms, min_bytes, max_bytes, isolation_level, session_id, session_epoch, topics)


def _legacy_topics(
    buffer: Readable, at: int, end: int, version: int, partition: Struct
) -> tuple[list[tuple[bytes, list[FetchPartition]]], int]:
    (topic_count,) = _int32.unpack_from(buffer, at)
    at += 4
    left = MOST_PARTITIONS - _checked(topic_count, MOST_PARTITIONS)
    topics = []
    for _ in range(topic_count):
        (length,) = _int16.unpack_from(buffer, at)
        name, at = _text(buffer, at + 2, length, end)
        (count,) = _int32.unpack_from(buffer, at)
        left -= _checked(count, left)
        stop = at + 4 + count * partition.size
        found = partition.iter_unpack(memoryview(buffer)[at + 4 : stop])
        if version >= 9:
            partitions = list(map(FetchPartition._make, found))
        else:
            partitions = [FetchPartition(index, NO_EPOCH, offset, max_bytes) for index, offset, max_bytes in found]
        topics.append((name, partitions))
        at = stop
    return topics, at


def _compact_topics(
    buffer: Readable, at: int, end: int, version: int, partition: Struct
) -> tuple[list[tuple[bytes, list[FetchPartition]]], int]:
    topic_count, at = read_uvarint(buffer, at)
    left = MOST_PARTITIONS - _checked(topic_count - 1, MOST_PARTITIONS)
    topics = []
    for _ in range(topic_count - 1):
        if version >= FETCH_TOPIC_IDS:
            name = bytes(buffer[at : at + 16])
            at += 16
        else:
            length, at = read_uvarint(buffer, at)
            name, at = _text(buffer, at, length - 1, end)
        count, at = read_uvarint(buffer, at)
        left -= _checked(count - 1, left)
        stop = at + (count - 1) * partition.size
        partitions = list(_untagged(partition.iter_unpack(memoryview(buffer)[at:stop])))
        at = _no_tags(buffer, stop)
        topics.append((name, partitions))
    return topics, at


def _untagged(found: Iterator[tuple[int, ...]]) -> Iterator[FetchPartition]:
    for index, leader_epoch, offset, max_bytes, tags in found:
        if tags:
            raise _Unusual
        yield FetchPartition(index, leader_epoch, offset, max_bytes)


def _end(buffer: Readable, at: int, version: int) -> int:
    """The end of a request, behind the topics: nothing forgotten, any rack."""
    if version >= FETCH_FLEXIBLE:
        if buffer[at] != 1:
            raise _Unusual
        length, at = read_uvarint(buffer, at + 1)
        _, at = _text(buffer, at, length - 1, len(buffer))
        return _no_tags(buffer, at)
    if version >= 7:
        if _int32.unpack_from(buffer, at) != (0,):
            raise _Unusual
        at += 4
    if version >= 11:
        (length,) = _int16.unpack_from(buffer, at)
        _, at = _text(buffer, at + 2, length, len(buffer))
    return at


def _text(buffer: Readable, at: int, length: int, end: int) -> tuple[bytes, int]:
    stop = at + length
    if length < 0 or stop > end:
        raise _Unusual
    data = bytes(buffer[at:stop])
    data.decode()
    return data, stop


def _no_tags(buffer: Readable, at: int) -> int:
    if buffer[at]:
        raise _Unusual
    return at + 1


def _checked(count: int, most: int) -> int:
    if not 0 <= count <= most:
        raise _Unusual
    return count


def from_entity(request: Any, version: int) -> FetchRequest | FollowerFetch:
    """The request as kio has read it."""
    if version >= REPLICA_STATE_FROM and request.replica_state.replica_id >= 0:
        return _of_follower(request)
    topics = [(_name(topic, version), [_partition_of(each) for each in topic.partitions]) for topic in request.topics]
    return FetchRequest(
        round(request.max_wait.total_seconds() * 1000),
        request.min_bytes,
        request.max_bytes,
        request.isolation_level,
        getattr(request, "session_id", 0),
        getattr(request, "session_epoch", -1),
        topics,
        tuple((_name(each, version), each.partitions) for each in getattr(request, "forgotten_topics_data", ())),
    )


def _name(topic: Any, version: int) -> bytes:
    name: bytes = (topic.topic_id or UUID(int=0)).bytes if version >= FETCH_TOPIC_IDS else topic.topic.encode()
    return name


def _of_follower(request: Any) -> FollowerFetch:
    topics = [
        ((topic.topic_id or UUID(int=0)).bytes, [_followed(each) for each in topic.partitions])
        for topic in request.topics
    ]
    return FollowerFetch(
        request.replica_state.replica_id,
        request.replica_state.replica_epoch,
        round(request.max_wait.total_seconds() * 1000),
        request.min_bytes,
        request.max_bytes,
        request.session_epoch,
        topics,
    )


def _followed(each: Any) -> FollowedPartition:
    return FollowedPartition(
        each.partition,
        each.current_leader_epoch,
        each.fetch_offset,
        each.last_fetched_epoch,
        each.log_start_offset,
        each.partition_max_bytes,
        getattr(each, "high_watermark", UNSAID),
    )


def _partition_of(each: Any) -> FetchPartition:
    epoch = getattr(each, "current_leader_epoch", NO_EPOCH)
    return FetchPartition(each.partition, epoch, each.fetch_offset, each.partition_max_bytes)
