"""Bytes become frames, however they are cut on their way."""

import asyncio
import random

import pytest

from oncelog.client.net.frame_reader import LARGE_FRAME_BYTES, MOST_KEPT_BYTES, RECEIVE_BYTES, FrameReader


class Taker:
    def __init__(self, max_frame_bytes: int = 10_000_000) -> None:
        self.reader = FrameReader(max_frame_bytes, self)
        self.is_closed = False
        self.frames: list[memoryview] = []
        self.heard: list[str] = []

    def frame(self, frame: memoryview) -> None:
        self.frames.append(frame)

    def rubbish(self, what: str) -> None:
        self.heard.append(what)
        self.is_closed = True

    def made(self, transport: asyncio.BaseTransport) -> None:
        raise AssertionError("there is none here")

    def lost(self, error: Exception | None) -> None:
        raise AssertionError("there is nothing to be lost here")


def feed(taker: Taker, data: bytes, next_bytes: random.Random | None = None) -> None:
    """As a transport does: into the buffer that it is given, as much as happens to be there."""
    at = 0
    while at < len(data):
        buffer = taker.reader.get_buffer(-1)
        most = len(buffer) if next_bytes is None else next_bytes.randint(1, len(buffer))
        chunk = data[at : at + most]
        buffer[: len(chunk)] = chunk
        taker.reader.buffer_updated(len(chunk))
        at += len(chunk)


def framed(payload: bytes) -> bytes:
    return len(payload).to_bytes(4, "big") + payload


@pytest.mark.parametrize("seed", range(40))
def test_frames_come_out_whole_and_in_order_wherever_the_stream_is_cut(seed: int) -> None:
    chance = random.Random(seed)
    sizes = [chance.choice([4, 5, 60, 4000, LARGE_FRAME_BYTES + 1, RECEIVE_BYTES, 300_000]) for _ in range(30)]
    payloads = [chance.randbytes(size) for size in sizes]
    taker = Taker()
    feed(taker, b"".join(map(framed, payloads)), chance)
    assert [bytes(frame) for frame in taker.frames] == payloads


def test_a_frame_stays_as_it_is_when_more_arrives() -> None:
    taker = Taker()
    feed(taker, framed(b"first answer"))
    feed(taker, framed(b"other answer"))
    assert bytes(taker.frames[0]) == b"first answer"


def test_a_large_frame_is_received_into_the_buffer_that_is_handed_on() -> None:
    taker = Taker()
    data = framed(bytes(1_000_000))
    feed(taker, data[:100])
    own = taker.reader.get_buffer(-1).obj
    feed(taker, data[100:])
    assert taker.frames[0].obj is own


def test_the_memory_of_a_large_frame_serves_again_when_nobody_has_the_frame_any_more() -> None:
    taker = Taker()
    feed(taker, framed(b"a" * 2_000_000))
    first = taker.frames.pop()
    part = first[5:10]
    own = id(first.obj)
    del first
    feed(taker, framed(b"b" * 1_900_000))
    assert bytes(part) == b"aaaaa"  # somebody has a part of it
    assert id(taker.frames[0].obj) != own
    del part
    feed(taker, framed(b"c" * 1_800_000))
    assert id(taker.frames[1].obj) == own
    assert bytes(taker.frames[1]) == b"c" * 1_800_000
    assert bytes(taker.frames[0]) == b"b" * 1_900_000


def test_no_more_memory_is_kept_than_is_allowed() -> None:
    taker = Taker(100_000_000)
    for size in (2, 9, 3, 10, 30, 4):
        feed(taker, framed(bytes(size * 1_000_000)))
    assert sum(map(len, taker.reader.rooms)) <= MOST_KEPT_BYTES


def test_several_answers_in_one_chunk_are_all_handed_on() -> None:
    taker = Taker()
    feed(taker, framed(b"aaaa") * 100)
    assert len(taker.frames) == 100


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"HTTP/1.1 400 Bad Request", "an HTTP server answers there"),
        (b"\x15\x03\x03\x00\x02\x02\x50", "`security.protocol` should be ssl"),
        ((20_000).to_bytes(4, "big"), r"`receive.message.max.bytes` \(10000\)"),
        (b"\xff\xff\xff\xff", "no Kafka"),
        (b"\0\0\0\3abc", "no Kafka"),
    ],
)
def test_what_cannot_be_a_frame_is_told_with_what_it_may_be(data: bytes, words: str) -> None:
    import re

    taker = Taker(max_frame_bytes=10_000)
    feed(taker, data)
    (said,) = taker.heard
    assert re.search(words, said)
    assert taker.frames == []
