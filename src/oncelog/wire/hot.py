"""Produce and Fetch without schemas: the two messages that every other message waits behind.

A Produce request is read where it lies: its record batches come out as positions, nothing is copied. The answers to
both are packed by structs made once for a version and a length of name. kio's reader and writer are the oracle for
each version in the tests.

    produce  3-4 index error base_offset append_time; 5 log_start_offset; 8 record_errors error_message;
             9 compact forms; 13 topic ids for names
    fetch    4 error high_watermark last_stable_offset aborted records; 5 log_start_offset; 7 error and session of the
             whole answer; 11 preferred_read_replica; 12 compact forms; 13 topic ids for names
"""

from collections.abc import Callable, Iterator, Sequence, Sized
from functools import cache, lru_cache
from itertools import chain
from struct import Struct, pack
from struct import error as StructError
from typing import Generic, NamedTuple, TypeVar

from oncelog.wire.fields import count_bytes, sized_bytes
from oncelog.wire.frames import (
    SIZE,
    SIZE_BYTES,
    MalformedFrame,
    Readable,
    read_uvarint,
    skip_tagged_fields,
    write_uvarint,
)

PRODUCE_FLEXIBLE = 9
PRODUCE_TOPIC_IDS = 13
FETCH_FLEXIBLE = 12
FETCH_TOPIC_IDS = 13

# Topics and partitions that one request may name; a few bytes each on the wire, some hundred in memory.
MOST_ENTRIES = 10_000  # topics and partitions of a request; its answer is packed in one turn of the loop
NO_TAGS = b"\0"
NO_RECORDS = -1  # the stop of a partition whose records are null

# index, start and stop of the records in the buffer
ProducePartition = tuple[int, int, int]
# name as UTF-8, or the 16 bytes of the topic id; its partitions
ProduceTopic = tuple[bytes, list[ProducePartition]]

_acks_timeout = Struct(">hi")
_int16 = Struct(">h")
_int32 = Struct(">i")
_two_int32 = Struct(">ii")
_int64 = Struct(">q")


class ProduceRequest(NamedTuple):
    transactional_id: str | None
    acks: int
    timeout_ms: int
    topics: list[ProduceTopic]


def read_produce(buffer: Readable, at: int, end: int, version: int) -> ProduceRequest:
    """The request whose body begins at `at`, behind the request header."""
    try:
        request, at = (_read_compact if version >= PRODUCE_FLEXIBLE else _read_legacy)(buffer, at, end, version)
    except (StructError, IndexError, UnicodeDecodeError) as error:
        raise MalformedFrame(f"produce request: {error}") from None
    if at > end:
        raise MalformedFrame("a produce request reaches beyond its frame")
    return request


def _read_legacy(buffer: Readable, at: int, end: int, version: int) -> tuple[ProduceRequest, int]:
    transactional_id, at = _legacy_bytes(buffer, at, end)
    acks, timeout_ms = _acks_timeout.unpack_from(buffer, at)
    (topic_count,) = _int32.unpack_from(buffer, at + 6)
    at += 10
    left = MOST_ENTRIES - topic_count
    topics: list[ProduceTopic] = []
    for _ in range(topic_count):
        name, at = _legacy_bytes(buffer, at, end)
        if name is None:
            raise MalformedFrame("a topic without a name")
        (partition_count,) = _int32.unpack_from(buffer, at)
        at += 4
        left -= max(partition_count, 0)
        if left < 0:
            raise MalformedFrame(f"more than {MOST_ENTRIES} topics and partitions")
        partitions: list[ProducePartition] = []
        for _ in range(partition_count):
            index, size_bytes = _two_int32.unpack_from(buffer, at)
            at += 8
            if size_bytes < 0:
                partitions.append((index, at, NO_RECORDS))
                continue
            partitions.append((index, at, at + size_bytes))
            at += size_bytes
            if at > end:
                raise MalformedFrame("records reach beyond their frame")
        topics.append((name, partitions))
    return ProduceRequest(_text(transactional_id), acks, timeout_ms, topics), at


def _read_compact(buffer: Readable, at: int, end: int, version: int) -> tuple[ProduceRequest, int]:
    transactional_id, at = _compact_bytes(buffer, at, end)
    acks, timeout_ms = _acks_timeout.unpack_from(buffer, at)
    topic_count, at = read_uvarint(buffer, at + 6)
    left = MOST_ENTRIES - max(topic_count - 1, 0)
    topics: list[ProduceTopic] = []
    for _ in range(topic_count - 1):
        name: bytes | None
        if version >= PRODUCE_TOPIC_IDS:
            name = bytes(buffer[at : at + 16])
            at += 16
        else:
            name, at = _compact_bytes(buffer, at, end)
        if name is None:
            raise MalformedFrame("a topic without a name")
        partition_count, at = read_uvarint(buffer, at)
        left -= max(partition_count - 1, 0)
        if left < 0:
            raise MalformedFrame(f"more than {MOST_ENTRIES} topics and partitions")
        partitions: list[ProducePartition] = []
        for _ in range(partition_count - 1):
            (index,) = _int32.unpack_from(buffer, at)
            size_bytes, at = read_uvarint(buffer, at + 4)
            if size_bytes == 0:
                partitions.append((index, at, NO_RECORDS))
            else:
                start, at = at, at + size_bytes - 1
                partitions.append((index, start, at))
            if at > end:
                raise MalformedFrame("records reach beyond their frame")
            at = skip_tagged_fields(buffer, at, end)
        at = skip_tagged_fields(buffer, at, end)
        topics.append((name, partitions))
    at = skip_tagged_fields(buffer, at, end)
    return ProduceRequest(_text(transactional_id), acks, timeout_ms, topics), at


def _legacy_bytes(buffer: Readable, at: int, end: int) -> tuple[bytes | None, int]:
    (length,) = _int16.unpack_from(buffer, at)
    at += 2
    if length < 0:
        return None, at
    stop = at + length
    if stop > end:
        raise MalformedFrame("a text reaches beyond its frame")
    return bytes(buffer[at:stop]), stop


def _compact_bytes(buffer: Readable, at: int, end: int) -> tuple[bytes | None, int]:
    length, at = read_uvarint(buffer, at)
    if length == 0:
        return None, at
    stop = at + length - 1
    if stop > end:
        raise MalformedFrame("a text reaches beyond its frame")
    return bytes(buffer[at:stop]), stop


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode()


# --- the answer to Produce


class Produced(NamedTuple):
    """The outcome for one partition's batch."""

    partition_index: int
    error_code: int = 0
    base_offset: int = -1
    append_time_ms: int = -1
    log_start_offset: int = -1
    record_errors: Sequence[tuple[int, str | None]] = ()
    error_message: str | None = None


def pack_produced_one(version: int, topic: bytes) -> tuple[Callable[..., bytes], int, bytes, bytes]:
    """The packer for answers about one partition of this topic, with the bytes before and behind the numbers."""
    before = b"".join(_answer_start(version, PRODUCE_FLEXIBLE, 1, topic, 1, PRODUCE_TOPIC_IDS))
    after = _produced_end(version, (), None) + _produce_answer_end(version)
    layout = Struct(f">ii{len(before)}sihqqq{len(after)}s")
    return layout.pack, layout.size - SIZE_BYTES, before, after


def encode_produced(version: int, correlation_id: int, topics: Sequence[tuple[bytes, Sequence[Produced]]]) -> bytes:
    """The whole frame of any answer to Produce."""
    flexible = version >= PRODUCE_FLEXIBLE
    parts = [_int32.pack(correlation_id), b"\0" if flexible else b"", count_bytes(flexible, len(topics))]
    for topic, partitions in topics:
        parts.append(_topic(version, flexible, topic, PRODUCE_TOPIC_IDS))
        parts.append(count_bytes(flexible, len(partitions)))
        for each in partitions:
            parts.append(_produced.pack(each.partition_index, each.error_code, each.base_offset, each.append_time_ms))
            if version >= 5:
                parts.append(_int64.pack(each.log_start_offset))
            parts.append(_produced_end(version, each.record_errors, each.error_message))
        if flexible:
            parts.append(b"\0")
    parts.append(_int32.pack(0) + (b"\0" if flexible else b""))
    body = b"".join(parts)
    return SIZE.pack(len(body)) + body


_produced = Struct(">ihqq")


def _produce_answer_end(version: int) -> bytes:
    """The end of an answer, behind the last partition: the topic's tags, throttle_time, the answer's tags."""
    return b"\0\0\0\0\0\0" if version >= PRODUCE_FLEXIBLE else b"\0\0\0\0"


def with_produce_throttle(frame: bytes, version: int, throttle_ms: int) -> bytes:
    """The same answer, with how long its client is to wait."""
    end = len(frame) - (1 if version >= PRODUCE_FLEXIBLE else 0)
    return frame[: end - _int32.size] + _int32.pack(throttle_ms) + frame[end:]


def _produced_end(version: int, record_errors: Sequence[tuple[int, str | None]], message: str | None) -> bytes:
    if version < 8:
        return b""
    flexible = version >= PRODUCE_FLEXIBLE
    tags = b"\0" if flexible else b""
    parts = [count_bytes(flexible, len(record_errors))]
    for index, text in record_errors:
        parts.append(_int32.pack(index) + _string(flexible, text) + tags)
    parts.append(_string(flexible, message) + tags)
    return b"".join(parts)


# --- the answer to Fetch


Records = TypeVar("Records", bound=Sized)  # bytes, or what can be made into as many bytes when it is sent


class Fetched(NamedTuple, Generic[Records]):
    """The records and facts that one partition answers with."""

    partition_index: int
    error_code: int
    high_watermark: int
    log_start_offset: int
    records: Records
    tags: bytes = NO_TAGS  # where the version has room for them
    stable_offset: int = -1
    aborted: Sequence[tuple[int, int]] = ()  # pid and first offset of each transaction, for who reads committed records


def diverging(epoch: int, end_offset: int) -> bytes:
    """The tagged fields that say so to a follower."""
    return _diverging.pack(1, 0, _epoch_end.size + 1, epoch, end_offset, 0)


_epoch_end = Struct(">iq")
_diverging = Struct(">BBBiqB")


def encode_fetched(
    version: int,
    correlation_id: int,
    topics: Sequence[tuple[bytes, Sequence[Fetched[Records]]]],
    *,
    error_code: int = 0,
    session_id: int = 0,
    read_committed: bool = False,
) -> list[bytes | bytearray | Records]:
    """The whole frame as buffers to be written one after another; the records are not copied into it.

    Those who read committed records only are told what was aborted; the others null, as Kafka answers.
    """
    if len(topics) == 1 and len(topics[0][1]) == 1 and not error_code and _is_usual(topics[0][1][0]):
        return _encode_fetched_one(version, correlation_id, *topics[0], session_id, read_committed)
    flexible = version >= FETCH_FLEXIBLE
    out: list[bytes | bytearray | Records] = []
    size_bytes = 0
    head = bytearray(b"\0\0\0\0")
    head += _int32.pack(correlation_id)
    head += b"\0\0\0\0\0" if flexible else b"\0\0\0\0"
    if version >= 7:
        head += _error_session.pack(error_code, session_id)
    head += count_bytes(flexible, len(topics))
    layout, middle = _fetch_layout(version, read_committed)
    for topic, partitions in topics:
        head += _topic(version, flexible, topic, FETCH_TOPIC_IDS)
        head += count_bytes(flexible, len(partitions))
        for index, error, high_watermark, log_start_offset, records, tags, stable_offset, aborted in partitions:
            starts = (log_start_offset,) if version >= 5 else ()
            head += layout.pack(index, error, high_watermark, stable_offset, *starts, middle)
            if aborted:
                del head[-len(middle) :]
                head += _aborted(version, flexible, aborted)
            length = len(records)
            head += write_uvarint(length + 1) if flexible else _int32.pack(length)
            if length:
                out.append(head)
                out.append(records)
                size_bytes += len(head) + length
                head = bytearray()
            if flexible:
                head += tags
        if flexible:
            head.append(0)
    if flexible:
        head.append(0)
    if head:
        out.append(head)
        size_bytes += len(head)
    first = out[0]
    assert isinstance(first, bytearray)
    SIZE.pack_into(first, 0, size_bytes - SIZE_BYTES)
    return out


_error_session = Struct(">hi")
_two_int64 = Struct(">qq")


def _is_usual(fetched: Fetched[Records]) -> bool:
    return fetched.tags == NO_TAGS and not fetched.aborted


def _aborted(version: int, flexible: bool, aborted: Sequence[tuple[int, int]]) -> bytes:
    """With what stands between it and the records."""
    told = pack(f">{2 * len(aborted)}q", *chain.from_iterable(aborted))
    if flexible:
        told = _with_no_tags(told)
    return b"".join((count_bytes(flexible, len(aborted)), told, _int32.pack(-1) if version >= 11 else b""))


def _with_no_tags(told: bytes) -> bytes:
    """Behind each of them. They may be very many, so no loop looks at each."""
    size = _two_int64.size
    spread = bytearray(len(told) // size * (size + 1))
    for at in range(size):
        spread[at :: size + 1] = told[at::size]
    return bytes(spread)


def _encode_fetched_one(
    version: int,
    correlation_id: int,
    topic: bytes,
    partitions: Sequence[Fetched[Records]],
    session_id: int,
    read_committed: bool,
) -> list[bytes | bytearray | Records]:
    """The answer that nearly every consumer gets: one partition."""
    layout, start, before, middle, after = _fetch_layout_of_one(version, topic, read_committed)
    index, error, high_watermark, log_start_offset, records, _, stable_offset, _ = partitions[0]
    length = len(records)
    length_field = write_uvarint(length + 1) if version >= FETCH_FLEXIBLE else _int32.pack(length)
    size_bytes = layout.size - SIZE_BYTES + len(length_field) + length + len(after)
    starts = (log_start_offset,) if version >= 5 else ()
    session = _int32.pack(session_id) if version >= 7 else b""
    head = layout.pack(
        size_bytes,
        correlation_id,
        start,
        session,
        before,
        index,
        error,
        high_watermark,
        stable_offset,
        *starts,
        middle,
    )
    if not length:
        return [head + length_field + after]
    return [head + length_field, records, after] if after else [head + length_field, records]


@lru_cache(maxsize=4096)
def _fetch_layout_of_one(version: int, topic: bytes, read_committed: bool) -> tuple[Struct, bytes, bytes, bytes, bytes]:
    """The layout up to the length of the records, and the constant bytes in it, around the session, and behind the
    records."""
    flexible = version >= FETCH_FLEXIBLE
    start = (b"\0\0\0\0\0" if flexible else b"\0\0\0\0") + (_int16.pack(0) if version >= 7 else b"")
    before = b"".join(
        (
            count_bytes(flexible, 1),
            _topic(version, flexible, topic, FETCH_TOPIC_IDS),
            count_bytes(flexible, 1),
        )
    )
    partition, middle = _fetch_layout(version, read_committed)
    session_bytes = 4 if version >= 7 else 0
    layout = Struct(f">ii{len(start)}s{session_bytes}s{len(before)}s{partition.format[1:]}")
    return layout, start, before, middle, b"\0\0\0" if flexible else b""


@cache
def _fetch_layout(version: int, read_committed: bool) -> tuple[Struct, bytes]:
    """Index to log_start_offset, and the constant bytes before the records: aborted transactions, preferred replica."""
    flexible = version >= FETCH_FLEXIBLE
    aborted = (0 if read_committed else -1) + flexible
    middle = (write_uvarint(aborted) if flexible else _int32.pack(aborted)) + (
        _int32.pack(-1) if version >= 11 else b""
    )
    return Struct(f">ihqq{'q' if version >= 5 else ''}{len(middle)}s"), middle


# --- what both share


def _answer_start(
    version: int, flexible_from: int, topics: int, topic: bytes, partitions: int, ids_from: int
) -> Iterator[bytes]:
    """Everything between the correlation id and the first partition, where there is one topic."""
    flexible = version >= flexible_from
    if flexible:
        yield b"\0"
    yield count_bytes(flexible, topics)
    yield _topic(version, flexible, topic, ids_from)
    yield count_bytes(flexible, partitions)


def _topic(version: int, flexible: bool, topic: bytes, ids_from: int) -> bytes:
    return topic if version >= ids_from else sized_bytes(flexible, topic)


def _string(flexible: bool, text: str | None) -> bytes:
    if text is None:
        return b"\0" if flexible else b"\xff\xff"
    return sized_bytes(flexible, text.encode())
