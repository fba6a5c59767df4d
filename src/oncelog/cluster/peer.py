"""A connection to another broker: one request at a time, and its answer."""

import asyncio
import ssl
from collections.abc import Callable
from typing import Self, cast

from oncelog.wire.frames import SIZE, SIZE_BYTES, Buffer

FIRST_BYTES = 64 * 1024  # an answer of up to this size comes by one read; what is larger, into a buffer of its own
MOST_BYTES = 128 * 2**20


class PeerGone(ConnectionError):
    """The connection has ended, or what came by it is no answer."""


class Peer(asyncio.BufferedProtocol):
    def __init__(self) -> None:
        self._transport: asyncio.Transport = cast(asyncio.Transport, None)
        self._first = bytearray(FIRST_BYTES)
        self._frame: bytearray | None = None  # a large one, on its way
        self._filled = 0
        self._answer: asyncio.Future[bytearray] | None = None
        self._limit = asyncio.timeout(None)  # of the wait for it
        self._silence_s = 0.0
        self._reason: str | None = None
        self.on_lost: Callable[[], None] = _nothing

    @classmethod
    async def connect(
        cls, address: tuple[str, int], timeout_s: float, *, encrypted: ssl.SSLContext | None = None
    ) -> Self:
        """Raises OSError, and TimeoutError, which is one."""
        async with asyncio.timeout(timeout_s):
            _, peer = await asyncio.get_running_loop().create_connection(cls, *address, ssl=encrypted)
        return peer

    async def ask(self, frame: Buffer, timeout_s: float) -> bytearray:
        """The answer without its length. A large one may take longer, as long as more of it comes: links are slow.
        After any error, TimeoutError too, the connection is of no use."""
        if self._reason is not None:
            raise PeerGone(self._reason)
        answer: asyncio.Future[bytearray] = asyncio.get_running_loop().create_future()
        self._answer, self._silence_s = answer, timeout_s
        self._transport.write(frame)
        try:
            async with asyncio.timeout(timeout_s) as self._limit:
                return await answer
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self._give_up("the connection was closed here")

    def _give_up(self, reason: str) -> None:
        if self._reason is None:
            self._reason = reason
        self._transport.abort()
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(PeerGone(self._reason))

    # What asyncio calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def eof_received(self) -> None:
        self.connection_lost(None)  # and not a round of the loop later

    def connection_lost(self, exc: Exception | None) -> None:
        if self._reason is None:
            self.on_lost()
        self._give_up(str(exc or "the other side has closed the connection"))

    def get_buffer(self, sizehint: int) -> memoryview:
        return memoryview(self._first if self._frame is None else self._frame)[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        self._filled += nbytes
        if self._frame is None:
            if self._filled < SIZE_BYTES:
                return
            (size,) = SIZE.unpack_from(self._first)
            came = self._filled - SIZE_BYTES
            if not came <= size <= MOST_BYTES:
                self._give_up(f"an answer of {size} bytes, of which {came} are there")
            elif SIZE_BYTES + size <= FIRST_BYTES:
                if came == size:
                    self._answered(self._first[SIZE_BYTES : self._filled])
            else:
                self._frame = bytearray(size)
                self._frame[:came] = memoryview(self._first)[SIZE_BYTES : self._filled]
                self._filled = came
        if self._frame is not None and self._filled == len(self._frame):
            self._answered(self._frame)
        elif self._frame is not None:
            self._more_came()

    def _more_came(self) -> None:
        if self._answer is not None and not self._answer.done() and not self._limit.expired():
            self._limit.reschedule(asyncio.get_running_loop().time() + self._silence_s)

    def _answered(self, frame: bytearray) -> None:
        self._frame, self._filled = None, 0
        if self._answer is None or self._answer.done():
            self._give_up("an answer that nobody has asked for")
        else:
            self._answer.set_result(frame)


def _nothing() -> None: ...
