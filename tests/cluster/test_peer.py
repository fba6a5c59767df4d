"""A connection to another broker: answers of any size and in any pieces, and whatever can be wrong with them."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager

import pytest

from oncelog.cluster.peer import FIRST_BYTES, Peer, PeerGone

PATIENCE_S = 30
Answering = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def framed(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


@asynccontextmanager
async def connected(answering: Answering) -> AsyncIterator[Peer]:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await answering(reader, writer)
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    peer = await Peer.connect(server.sockets[0].getsockname()[:2], PATIENCE_S)
    try:
        yield peer
    finally:
        peer.close()
        server.close()
        await server.wait_closed()


def saying(*pieces: bytes) -> Answering:
    """Once it is asked; each piece by itself."""

    async def answering(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(4)
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0)
        await reader.read()

    return answering


def cut(data: bytes, *at: int) -> Sequence[bytes]:
    return [data[start:stop] for start, stop in zip((0, *at), (*at, len(data)), strict=True)]


@pytest.mark.parametrize("size", [0, 1, FIRST_BYTES - 4, FIRST_BYTES - 3, 5 * FIRST_BYTES])
@pytest.mark.parametrize("pieces", [(), (1,), (3, 4), (4,), (2, 5)])
async def test_an_answer_comes_whole(size: int, pieces: tuple[int, ...]) -> None:
    body = bytes(range(256)) * (size // 256 + 1)
    async with connected(saying(*cut(framed(body[:size]), *pieces))) as peer:
        assert await peer.ask(b"ask!", PATIENCE_S) == body[:size]


async def test_one_answer_after_the_other() -> None:
    async def answering(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while asked := await reader.read(4):
            writer.write(framed(asked * (1 if asked == b"tiny" else FIRST_BYTES)))

    async with connected(answering) as peer:
        for asked in (b"tiny", b"huge", b"tiny", b"huge"):
            assert await peer.ask(asked, PATIENCE_S) == asked * (1 if asked == b"tiny" else FIRST_BYTES)


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (b"\xff\xff\xff\xff", "an answer of -1 bytes"),
        (b"\x7f\xff\xff\xff", "an answer of 2147483647 bytes"),
        (framed(b"a") + b"b", "an answer of 1 bytes, of which 2 are there"),
    ],
)
async def test_what_is_no_answer_ends_the_connection(said: bytes, reason: str) -> None:
    async with connected(saying(said)) as peer:
        with pytest.raises(PeerGone, match=reason):
            await peer.ask(b"ask!", PATIENCE_S)
        with pytest.raises(PeerGone, match=reason):
            await peer.ask(b"ask!", PATIENCE_S)


async def test_what_nobody_has_asked_for_ends_the_connection() -> None:
    async with connected(saying()) as peer:
        came = framed(b"news")
        peer.get_buffer(-1)[: len(came)] = came
        peer.buffer_updated(len(came))
        with pytest.raises(PeerGone, match="nobody has asked for"):
            await peer.ask(b"ask!", PATIENCE_S)


async def test_a_connection_that_ends_ends_the_wait() -> None:
    async def answering(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(4)
        writer.write(framed(b"half")[:6])

    async with connected(answering) as peer:
        with pytest.raises(PeerGone):
            await peer.ask(b"ask!", PATIENCE_S)


async def test_silence_ends_the_connection() -> None:
    async with connected(saying()) as peer:
        with pytest.raises(TimeoutError):
            await peer.ask(b"ask!", 0)
        with pytest.raises(PeerGone):
            await peer.ask(b"ask!", PATIENCE_S)


async def test_a_large_answer_may_take_longer_as_long_as_more_of_it_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    loop, body = asyncio.get_running_loop(), bytes(3 * FIRST_BYTES)
    time, passed_s = loop.time, 0.0
    monkeypatch.setattr(loop, "time", lambda: time() + passed_s)
    async with connected(saying()) as peer:
        answer = asyncio.create_task(peer.ask(b"ask!", PATIENCE_S))
        await asyncio.sleep(0)
        for piece in cut(framed(body), FIRST_BYTES, 2 * FIRST_BYTES):
            peer.get_buffer(-1)[: len(piece)] = piece
            peer.buffer_updated(len(piece))
            passed_s += PATIENCE_S * 0.7
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        assert await answer == body


async def test_nobody_there_is_told_at_once() -> None:
    server = await asyncio.start_server(saying(), "127.0.0.1", 0)
    address = server.sockets[0].getsockname()[:2]
    server.close()
    await server.wait_closed()
    with pytest.raises(ConnectionRefusedError):
        await Peer.connect(address, PATIENCE_S)
