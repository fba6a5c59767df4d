"""The Fetch of a follower by structs, as the followers here send it: version 18.

Beside what a consumer says, it says for each partition in which epoch its log ends, where it begins and which high
watermark it knows (a tagged field), and behind all of them who it is (a tagged field, too).

The answer is as a consumer's. One that is OFFSET_OUT_OF_RANGE has, in the place of records, what the follower is to
begin anew with.
"""

from collections.abc import Iterator, Sequence
from struct import Struct
from struct import error as StructError
from typing import NamedTuple

from oncelog.wire.fields import TOPIC_ID_BYTES, count_bytes
from oncelog.wire.frames import MalformedFrame, Readable, read_uvarint
from oncelog.wire.requests import request_header

FETCH_KEY = 1
VERSION = 18
MOST_PARTITIONS = 10_000
UNSAID = 2**63 - 1  # the high watermark of a follower that says none

_head = Struct(">iiibii")  # max wait, min and max bytes, isolation level, session's id and epoch
_partition = Struct(">iiqiqi3sq")
_TAGGED = b"\1\1\x08"  # one field: 1, of 8 bytes
_tail = Struct(">5siqc")
_BEFORE_REPLICA = b"\1\1\1\1\x0d"  # nothing forgotten, no rack; one field: 1, of 13 bytes


class FollowedPartition(NamedTuple):
    partition: int
    leader_epoch: int
    offset: int
    last_epoch: int
    log_start_offset: int
    max_bytes: int
    high_watermark: int = UNSAID


class FollowerFetch(NamedTuple):
    replica_id: int
    replica_epoch: int
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    session_epoch: int
    topics: Sequence[tuple[bytes, Sequence[FollowedPartition]]]  # by the 16 bytes of the topic id


def pack_follower_fetch(correlation_id: int, client_id: str | None, fetch: FollowerFetch) -> bytes:
    """The whole frame."""
    replica_id, replica_epoch, max_wait_ms, min_bytes, max_bytes, session_epoch, topics = fetch
    body = bytearray(_head.pack(max_wait_ms, min_bytes, max_bytes, 0, 0, session_epoch))
    body += count_bytes(True, len(topics))
    pack = _partition.pack
    for topic_id, partitions in topics:
        body += topic_id + count_bytes(True, len(partitions))
        for index, leader_epoch, offset, last_epoch, start, most, high_watermark in partitions:
            body += pack(index, leader_epoch, offset, last_epoch, start, most, _TAGGED, high_watermark)
        body.append(0)
    body += _tail.pack(_BEFORE_REPLICA, replica_id, replica_epoch, b"\0")
    return request_header(FETCH_KEY, VERSION, correlation_id, client_id, len(body), is_flexible=True) + bytes(body)


def read_follower_fetch(buffer: Readable, at: int, end: int, version: int) -> FollowerFetch | None:
    """The request whose body begins at `at`, or None where it is another one: kio should read it."""
    if version < VERSION:
        return None
    try:
        max_wait_ms, min_bytes, max_bytes, _, _, session_epoch = _head.unpack_from(buffer, at)
        topics, at = _read_topics(buffer, at + _head.size)
        before, replica_id, replica_epoch, after = _tail.unpack_from(buffer, at)
    except (StructError, IndexError, MalformedFrame, _Unusual):
        return None
    if before != _BEFORE_REPLICA or after != b"\0" or replica_id < 0 or at + _tail.size != end:
        return None
    return FollowerFetch(replica_id, replica_epoch, max_wait_ms, min_bytes, max_bytes, session_epoch, topics)


class _Unusual(Exception):
    pass


def _read_topics(buffer: Readable, at: int) -> tuple[list[tuple[bytes, list[FollowedPartition]]], int]:
    count, at = read_uvarint(buffer, at)
    left = MOST_PARTITIONS - (count - 1)
    topics = []
    for _ in range(count - 1):
        topic_id = bytes(buffer[at : at + TOPIC_ID_BYTES])
        partitions, at = read_uvarint(buffer, at + TOPIC_ID_BYTES)
        left -= partitions - 1
        if left < 0 or not partitions:
            raise _Unusual
        stop = at + (partitions - 1) * _partition.size
        topics.append((topic_id, list(_tagged(_partition.iter_unpack(memoryview(buffer)[at:stop])))))
        if buffer[stop]:
            raise _Unusual
        at = stop + 1
    if not count:
        raise _Unusual
    return topics, at


def _tagged(found: Iterator[tuple[int, int, int, int, int, int, bytes, int]]) -> Iterator[FollowedPartition]:
    for index, leader_epoch, offset, last_epoch, start, most, tagged, high_watermark in found:
        if tagged != _TAGGED:
            raise _Unusual
        yield FollowedPartition(index, leader_epoch, offset, last_epoch, start, most, high_watermark)
