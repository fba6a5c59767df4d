"""A request that is recognised means what it would mean if it were read; anything else is not recognised."""

import struct
from typing import Any

import pytest

from oncelog.embedded import Server
from oncelog.server.produce_pattern import Pattern, pattern_of
from oncelog.wire.hot import read_produce
from tests.raw import RawConnection, encode_request, make, message
from tests.raw.topics import new_topic

HEAD_BYTES = 8  # key, version and correlation id: not what is compared


def request(topic: str, records: bytes, **more: Any) -> bytearray:
    kind = message("produce", 9)
    data = [{"name": topic, "partition_data": [{"index": 0, "records": records}]}]
    values = {"transactional_id": None, "acks": -1, "timeout": 1000, "topic_data": data, **more}
    return bytearray(encode_request(kind, make(kind.request, values), 1, "me"))


@pytest.fixture
def pattern(server: Server, raw: RawConnection) -> Pattern:
    topic = new_topic(raw)
    partition = server.broker.topics.partition(topic, 0)
    assert partition is not None
    buffer = request(topic, b"the first")
    body = HEAD_BYTES + 2 + len("me") + 1
    found = pattern_of(buffer, HEAD_BYTES, len(buffer), 9, read_produce(buffer, body, len(buffer), 9), partition)
    assert found is not None
    return found


@pytest.mark.parametrize("size", [0, 1, 126, 127, 128, 16_382, 16_383, 16_384, 2_097_150])
def test_the_same_place_with_other_records_is_recognised(pattern: Pattern, size: int) -> None:
    buffer = request(pattern.partition.topic.name, b"x" * size) + b"the next frame"
    end = len(buffer) - len(b"the next frame")
    found = pattern.records(buffer, HEAD_BYTES, end)
    assert found is not None
    assert buffer[found[0] : found[1]] == b"x" * size


def test_what_takes_long_in_any_case_is_not_recognised(pattern: Pattern) -> None:
    buffer = request(pattern.partition.topic.name, b"x" * 2_097_151)  # the first length of four bytes
    assert pattern.records(buffer, HEAD_BYTES, len(buffer)) is None


def test_what_differs_is_not_recognised(pattern: Pattern) -> None:
    name = pattern.partition.topic.name
    part = {"index": 0, "records": b"x"}
    others = [
        request(name, b"x", acks=1),
        request(name, b"x", timeout=999),
        request(name, b"x", transactional_id="t"),
        request(name + "0", b"x"),
        request(name[:-1] + "%", b"x"),
        request(name, b"x", topic_data=[{"name": name, "partition_data": [{"index": 1, "records": b"x"}]}]),
        request(name, b"x", topic_data=[{"name": name, "partition_data": [part, part]}]),
        request(name, b"x", topic_data=[{"name": name, "partition_data": [part]}] * 2),
        request(name, b"x", topic_data=[{"name": name, "partition_data": [{"index": 0, "records": None}]}]),
    ]
    assert [pattern.records(other, HEAD_BYTES, len(other)) for other in others] == [None] * len(others)


def test_records_that_reach_beyond_their_frame_are_not_recognised(pattern: Pattern) -> None:
    buffer = request(pattern.partition.topic.name, b"x" * 50)
    for end in range(HEAD_BYTES, len(buffer)):
        assert pattern.records(buffer, HEAD_BYTES, end) is None
        assert pattern.records(buffer[:end], HEAD_BYTES, end) is None, "and nothing lies behind it"
    assert pattern.records(buffer, HEAD_BYTES, len(buffer)) is not None


def test_tagged_fields_behind_the_records_are_not_recognised(pattern: Pattern) -> None:
    buffer = request(pattern.partition.topic.name, b"x" * 50)
    buffer[-1:] = b"\x01\x63\x02ab"
    assert pattern.records(buffer, HEAD_BYTES, len(buffer)) is None


def test_a_request_with_frills_makes_no_place(server: Server, raw: RawConnection, pattern: Pattern) -> None:
    buffer = request(pattern.partition.topic.name, b"x" * 50)
    buffer[-1:] = b"\x01\x63\x02ab"
    body = HEAD_BYTES + 2 + len("me") + 1
    parsed = read_produce(buffer, body, len(buffer), 9)
    assert pattern_of(buffer, HEAD_BYTES, len(buffer), 9, parsed, pattern.partition) is None


def test_a_length_that_is_written_the_long_way_is_read_all_the_same(raw: RawConnection, pattern: Pattern) -> None:
    """Such a request names no pattern by itself, and is no other where one is known."""
    buffer = request(pattern.partition.topic.name, b"x" * 50)
    at = len(pattern.prefix) + HEAD_BYTES
    assert buffer[at] == 51
    long_way = buffer[:at] + b"\xb3\x00" + buffer[at + 1 :]
    found = pattern.records(long_way, HEAD_BYTES, len(long_way))
    assert found is not None and long_way[found[0] : found[1]] == b"x" * 50
    body = HEAD_BYTES + 2 + len("me") + 1
    parsed = read_produce(long_way, body, len(long_way), 9)
    assert pattern_of(long_way, HEAD_BYTES, len(long_way), 9, parsed, pattern.partition) is None


def test_the_answer_is_the_general_one(pattern: Pattern) -> None:
    from oncelog.wire.hot import Produced, encode_produced

    expected = encode_produced(9, 5, [(pattern.name, [Produced(0, 0, 77, -1, 0)])])
    assert pattern.answer(5, 77, -1) == expected
    assert struct.unpack_from(">i", expected)[0] == len(expected) - 4
