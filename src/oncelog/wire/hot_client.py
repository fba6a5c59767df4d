"""The client's side of Produce and Fetch without schemas: requests packed, answers read, by structs.

Record batches are not copied in either direction: a request is a list of buffers to be written one after another, the
batches among them as they are; an answer's records are views of its frame. kio is the oracle for every version in the
tests.

    produce  7 (Kafka 2.1) legacy forms; 8 record_errors error_message; 9 compact forms; 10 leaders in tags;
             13 topic ids for names
    fetch    10 (Kafka 2.1) legacy forms; 11 racks; 12 compact forms, last_fetched_epoch, diverging epochs in tags;
             13 topic ids for names; 15 without replica_id; 16 endpoints in tags

A topic is bytes on both ways: its name as UTF-8, or from version 13 on the 16 bytes of its id.
"""

from collections.abc import Callable, Sequence
from struct import Struct
from struct import error as StructError
from typing import NamedTuple, TypeVar

from oncelog.wire.fields import (
    NO_LEADER,
    NodeEndpoint,
    count_bytes,
    read_count,
    read_endpoints,
    read_leader,
    read_tags,
    read_text,
    read_topic,
    sized_bytes,
)
from oncelog.wire.frames import Buffer, MalformedFrame, read_uvarint, skip_tagged_fields, write_uvarint
from oncelog.wire.hot import FETCH_FLEXIBLE, FETCH_TOPIC_IDS, PRODUCE_FLEXIBLE, PRODUCE_TOPIC_IDS
from oncelog.wire.requests import request_header

T = TypeVar("T")

PRODUCE_KEY = 0
FETCH_KEY = 1
PRODUCE_VERSIONS = (7, 13)
PRODUCE_VERSIONS_BY_NAME = (7, PRODUCE_TOPIC_IDS - 1)
# Later ones add partitions to the transaction by themselves, and then another end of it is expected (KIP-890).
PRODUCE_VERSIONS_IN_TRANSACTION = (7, 11)
FETCH_VERSIONS = (10, 18)
FETCH_VERSIONS_BY_NAME = (10, FETCH_TOPIC_IDS - 1)

_RACK_FROM = 11
_LAST_FETCHED_EPOCH_FROM = 12
_NO_REPLICA_ID_FROM = 15
_RECORD_ERRORS_FROM = 8

_int32 = Struct(">i")
_two_int64 = Struct(">qq")
_epoch_offset = Struct(">iq")
_acks_timeout = Struct(">hi")


# --- Produce


class ProducedPartition(NamedTuple):
    """The outcome for one batch."""

    topic: bytes
    partition: int
    error_code: int
    base_offset: int
    append_time_ms: int
    log_start_offset: int
    record_errors: Sequence[tuple[int, str | None]] = ()
    error_message: str | None = None
    leader: tuple[int, int] = NO_LEADER  # node and epoch, where the broker knows a newer one


class ProduceAnswer(NamedTuple):
    partitions: list[ProducedPartition]
    throttle_ms: int
    endpoints: Sequence[NodeEndpoint] = ()


def pack_produce(
    version: int,
    correlation_id: int,
    client_id: str | None,
    topics: Sequence[tuple[bytes, Sequence[tuple[int, Buffer]]]],
    *,
    acks: int = -1,
    timeout_ms: int,
    transactional_id: str | None = None,
) -> list[Buffer]:
    """The whole frame; for each topic its partitions with one record batch each."""
    flexible = version >= PRODUCE_FLEXIBLE
    tags = b"\0" if flexible else b""
    out: list[Buffer] = []
    body_bytes = 0
    if transactional_id is None:
        head = bytearray(b"\0" if flexible else b"\xff\xff")
    else:
        head = bytearray(sized_bytes(flexible, transactional_id.encode()))
    head += _acks_timeout.pack(acks, timeout_ms)
    head += count_bytes(flexible, len(topics))
    for topic, partitions in topics:
        head += topic if version >= PRODUCE_TOPIC_IDS else sized_bytes(flexible, topic)
        head += count_bytes(flexible, len(partitions))
        for index, batch in partitions:
            length = len(batch)
            head += _int32.pack(index)
            head += write_uvarint(length + 1) if flexible else _int32.pack(length)
            out += (head, batch)
            body_bytes += len(head) + length
            head = bytearray(tags)
        head += tags
    head += tags
    if head:
        out.append(head)
        body_bytes += len(head)
    out[0] = request_header(PRODUCE_KEY, version, correlation_id, client_id, body_bytes, is_flexible=flexible) + out[0]
    return out


def read_produce_answer(version: int, frame: Buffer) -> ProduceAnswer:
    """Raises `MalformedFrame` for whatever is wrong with it."""
    return _guarded("produce", _read_produced, version, frame)


def _read_produced(version: int, frame: Buffer) -> ProduceAnswer:
    flexible = version >= PRODUCE_FLEXIBLE
    end = len(frame)
    at = skip_tagged_fields(frame, 4, end) if flexible else 4
    topic_count, at = read_count(flexible, frame, at)
    partitions: list[ProducedPartition] = []
    for _ in range(topic_count):
        topic, at = read_topic(version >= PRODUCE_TOPIC_IDS, flexible, frame, at)
        partition_count, at = read_count(flexible, frame, at)
        for _ in range(partition_count):
            index, code, base, append_ms, start = _produced.unpack_from(frame, at)
            at += _produced.size
            errors: list[tuple[int, str | None]] = []
            message: str | None = None
            leader = NO_LEADER
            if version >= _RECORD_ERRORS_FROM:
                errors, at = _read_record_errors(flexible, frame, at)
                message, at = read_text(flexible, frame, at)
            if flexible:
                if frame[at]:
                    found, at = read_tags(frame, at)
                    leader = read_leader(found.get(0))
                else:
                    at += 1
            partitions.append(ProducedPartition(topic, index, code, base, append_ms, start, errors, message, leader))
        if flexible:
            at = skip_tagged_fields(frame, at, end)
    (throttle_ms,) = _int32.unpack_from(frame, at)
    return ProduceAnswer(partitions, throttle_ms, read_endpoints(frame, at + 4) if flexible else ())


_produced = Struct(">ihqqq")


def _read_record_errors(flexible: bool, frame: Buffer, at: int) -> tuple[list[tuple[int, str | None]], int]:
    count, at = read_count(flexible, frame, at)
    errors = []
    for _ in range(count):
        (index,) = _int32.unpack_from(frame, at)
        text, at = read_text(flexible, frame, at + 4)
        if flexible:
            at = skip_tagged_fields(frame, at, len(frame))
        errors.append((index, text))
    return errors, at


# --- Fetch


class FetchPartition(NamedTuple):
    """The request about one partition."""

    partition: int
    offset: int
    max_bytes: int
    leader_epoch: int = -1
    last_fetched_epoch: int = -1


class FetchedPartition(NamedTuple):
    topic: bytes
    partition: int
    error_code: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    records: memoryview  # of the answer's frame
    aborted: Sequence[tuple[int, int]] = ()  # pid and first offset of each aborted transaction
    preferred_read_replica: int = -1
    diverging: tuple[int, int] | None = None  # epoch and its end: the log was truncated to there
    leader: tuple[int, int] = NO_LEADER  # node and epoch, where the broker knows a newer one


class FetchAnswer(NamedTuple):
    error_code: int
    partitions: list[FetchedPartition]
    throttle_ms: int
    session_id: int = 0
    endpoints: Sequence[NodeEndpoint] = ()


def pack_fetch(
    version: int,
    correlation_id: int,
    client_id: str | None,
    topics: Sequence[tuple[bytes, Sequence[FetchPartition]]],
    *,
    max_wait_ms: int,
    min_bytes: int,
    max_bytes: int,
    read_committed: bool = False,
    rack: str = "",
) -> list[Buffer]:
    """The whole frame of a fetch outside of any session."""
    flexible = version >= FETCH_FLEXIBLE
    tags = b"\0" if flexible else b""
    layout = _fetch_partition if version >= _LAST_FETCHED_EPOCH_FROM else _fetch_partition_legacy
    body = bytearray(b"" if version >= _NO_REPLICA_ID_FROM else b"\xff\xff\xff\xff")
    body += _fetch_head.pack(max_wait_ms, min_bytes, max_bytes, read_committed, 0, -1)
    body += count_bytes(flexible, len(topics))
    for topic, partitions in topics:
        body += topic if version >= FETCH_TOPIC_IDS else sized_bytes(flexible, topic)
        body += count_bytes(flexible, len(partitions))
        for index, offset, most, leader_epoch, last_epoch in partitions:
            if version >= _LAST_FETCHED_EPOCH_FROM:
                body += layout.pack(index, leader_epoch, offset, last_epoch, -1, most)
            else:
                body += layout.pack(index, leader_epoch, offset, -1, most)
            body += tags
        body += tags
    body += count_bytes(flexible, 0)  # nothing is forgotten where there is no session
    if version >= _RACK_FROM:
        body += sized_bytes(flexible, rack.encode())
    body += tags
    return [request_header(FETCH_KEY, version, correlation_id, client_id, len(body), is_flexible=flexible) + body]


_fetch_head = Struct(">iiibii")
_fetch_partition = Struct(">iiqiqi")
_fetch_partition_legacy = Struct(">iiqqi")


def read_fetch_answer(version: int, frame: Buffer) -> FetchAnswer:
    """Raises `MalformedFrame` for whatever is wrong with it; the records are not looked at."""
    return _guarded("fetch", _read_fetched, version, frame)


def _read_fetched(version: int, frame: Buffer) -> FetchAnswer:
    flexible = version >= FETCH_FLEXIBLE
    view = memoryview(frame)
    end = len(frame)
    at = skip_tagged_fields(frame, 4, end) if flexible else 4
    throttle_ms, error_code, session_id = _fetched_head.unpack_from(frame, at)
    topic_count, at = read_count(flexible, frame, at + _fetched_head.size)
    partitions: list[FetchedPartition] = []
    for _ in range(topic_count):
        topic, at = read_topic(version >= FETCH_TOPIC_IDS, flexible, frame, at)
        partition_count, at = read_count(flexible, frame, at)
        for _ in range(partition_count):
            one, at = _read_fetched_partition(version, flexible, view, topic, at)
            partitions.append(one)
        if flexible:
            at = skip_tagged_fields(frame, at, end)
    endpoints = read_endpoints(frame, at) if flexible else ()
    return FetchAnswer(error_code, partitions, throttle_ms, session_id, endpoints)


_fetched_head = Struct(">ihi")
_fetched = Struct(">ihqqq")


def _read_fetched_partition(
    version: int, flexible: bool, view: memoryview, topic: bytes, at: int
) -> tuple[FetchedPartition, int]:
    index, code, high_watermark, stable, start = _fetched.unpack_from(view, at)
    aborted, at = _read_aborted(flexible, view, at + _fetched.size)
    preferred = -1
    if version >= _RACK_FROM:
        (preferred,) = _int32.unpack_from(view, at)
        at += 4
    if flexible:
        size_bytes, at = read_uvarint(view, at)
        size_bytes -= 1
    else:
        (size_bytes,) = _int32.unpack_from(view, at)
        at += 4
    stop = at + max(size_bytes, 0)
    if stop > len(view):
        raise MalformedFrame("records reach beyond their frame")
    records = view[at:stop]
    at = stop
    diverging, leader = None, NO_LEADER
    if flexible:
        if view[at]:
            found, at = read_tags(view, at)
            diverging = _epoch_offset.unpack_from(found[0]) if 0 in found else None
            leader = read_leader(found.get(1))
        else:
            at += 1
    return (
        FetchedPartition(
            topic, index, code, high_watermark, stable, start, records, aborted, preferred, diverging, leader
        ),
        at,
    )


def _read_aborted(flexible: bool, view: memoryview, at: int) -> tuple[Sequence[tuple[int, int]], int]:
    count, at = read_count(flexible, view, at)
    aborted = []
    for _ in range(count):
        aborted.append(_two_int64.unpack_from(view, at))
        at += _two_int64.size
        if flexible:
            at = skip_tagged_fields(view, at, len(view))
    return aborted, at


def _guarded(what: str, read: Callable[[int, Buffer], T], version: int, frame: Buffer) -> T:
    try:
        return read(version, frame)
    except (StructError, IndexError, UnicodeDecodeError) as error:
        raise MalformedFrame(f"{what} answer: {error}") from None
