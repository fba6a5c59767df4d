"""The receiver of asyncio's bytes: they become frames for the connection that it belongs to.

Small frames are taken out of one buffer and copied, so that its receiver may keep it. A large frame gets a
buffer of its own as soon as its length is known; the rest of it is received straight into that and handed on as it is.
When nobody has the frame any more its buffer serves for another one: fresh memory costs a third of filling it.
"""

import asyncio
from struct import Struct
from sys import getrefcount
from typing import Protocol

RECEIVE_BYTES = 64 * 1024
LARGE_FRAME_BYTES = 16 * 1024
SIZE = Struct(">i")
SIZE_BYTES = SIZE.size
LEAST_FRAME_BYTES = 4  # an answer has at least a correlation id
LEAST_KEPT_BYTES = 1 << 20  # smaller buffers the allocator itself keeps
MOST_KEPT_BYTES = 24 << 20
FREE = 3  # references: the list's, the loop's, and the one that counts them


class Taker(Protocol):
    is_closed: bool

    def frame(self, frame: memoryview) -> None:
        """A whole frame, without its length."""

    def rubbish(self, what: str) -> object:
        """Something came that cannot be a frame."""

    def made(self, transport: asyncio.BaseTransport) -> None: ...

    def lost(self, error: Exception | None) -> None: ...


class FrameReader(asyncio.BufferedProtocol):
    def __init__(self, max_frame_bytes: int, taker: Taker) -> None:
        self._taker = taker
        self._max_frame_bytes = max_frame_bytes
        self._buffer = bytearray(RECEIVE_BYTES)
        self._view = memoryview(self._buffer)
        self._filled = 0
        self._large: memoryview | None = None
        self._large_filled = 0
        self.rooms: list[bytearray] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._taker.made(transport)

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._large = None
        self._taker.lost(exc)

    def get_buffer(self, sizehint: int) -> memoryview:
        if self._large is not None:
            return self._large[self._large_filled :]
        return self._view[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        large = self._large
        if large is None:
            self._walk(self._filled + nbytes)
            return
        self._large_filled += nbytes
        if self._large_filled == len(large):
            self._large = None
            if not self._taker.is_closed:
                self._taker.frame(large)

    def _walk(self, end: int) -> None:
        """Hand on every whole frame that lies before `end`, and keep what is left at the buffer's start."""
        view, taker = self._view, self._taker
        at = 0
        while end - at >= SIZE_BYTES and not taker.is_closed:
            (size,) = SIZE.unpack_from(view, at)
            if not LEAST_FRAME_BYTES <= size <= self._max_frame_bytes:
                taker.rubbish(_what_it_is(bytes(view[at : at + SIZE_BYTES]), size, self._max_frame_bytes))
                return
            start = at + SIZE_BYTES
            stop = start + size
            if stop > end:
                if size > LARGE_FRAME_BYTES:
                    self._begin_large(size, start, end)
                    return
                break
            taker.frame(memoryview(bytes(view[start:stop])))
            at = stop
        left = end - at
        if left and at:
            view[:left] = bytes(view[at:end])
        self._filled = left

    def _begin_large(self, size: int, start: int, end: int) -> None:
        large = self._room(size)
        large[: end - start] = self._view[start:end]
        self._large, self._large_filled = large, end - start
        self._filled = 0

    def _room(self, size: int) -> memoryview:
        if size < LEAST_KEPT_BYTES:
            return memoryview(bytearray(size))
        for kept in self.rooms:
            if size <= len(kept) <= 2 * size and getrefcount(kept) == FREE:
                return memoryview(kept)[:size]
        made = bytearray(size + size // 8)
        if len(made) <= MOST_KEPT_BYTES:
            while sum(map(len, self.rooms)) + len(made) > MOST_KEPT_BYTES:
                del self.rooms[0]
            self.rooms.append(made)
        return memoryview(made)[:size]


def _what_it_is(first: bytes, size: int, max_frame_bytes: int) -> str:
    if first == b"HTTP":
        return "an HTTP server answers there; is the port right?"
    if first[0] in (0x15, 0x16) and first[1] == 3:
        return "it answers with TLS: `security.protocol` should be ssl or sasl_ssl"
    if size > max_frame_bytes and size < 2**30:
        return f"an answer of {size} bytes is larger than `receive.message.max.bytes` ({max_frame_bytes}): raise that"
    return f"its answer begins with {first.hex(' ')}, which is no Kafka; are host and port right?"
