"""One client's connection through the proxy: two pumps, one for each direction, frame by frame."""

import asyncio
import socket
import struct
from typing import Final, Protocol

from oncelog.chaos.addresses import api_name, rewritten
from oncelog.chaos.faults import Direction, Fault, Hit, Kind, Sides
from oncelog.wire.frames import MalformedFrame

MOST_FRAME_BYTES: Final = 256 << 20
PRODUCE: Final = 0
_SIZE_BYTES: Final = 4
_RESET_ON_CLOSE: Final = struct.pack("ii", 1, 0)

READ_AHEAD_BYTES: Final = 1 << 20
_UNTOLD: Final = {Sides.SERVER: Direction.UP, Sides.CLIENT: Direction.DOWN}

Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Proxy(Protocol):
    """The proxy, as a link needs it."""

    unreadable: list[str]

    async def behind(self, host: str, port: int) -> tuple[str, int]: ...

    def frame(self, link: "Link", direction: Direction, api: str, size_bytes: int) -> Hit | None: ...


class Link:
    def __init__(self, proxy: Proxy, number: int, server: tuple[str, int], client: Stream, upstream: Stream) -> None:
        self.number = number
        self.server = server
        self._proxy = proxy
        self._client_reader, self._client_writer = client
        self._server_reader, self._server_writer = upstream
        for writer in (self._client_writer, self._server_writer):
            # `drain` waits until the system has taken everything, so that a cut comes where it should. With TLS nothing
            # at all reaches a limit of 0, and `drain` may wait for ever.
            is_encrypted = writer.get_extra_info("ssl_object") is not None
            writer.transport.set_write_buffer_limits(int(is_encrypted))
        self._asked: dict[int, tuple[int, int]] = {}  # by correlation id: key and version, in the order of asking
        self._swallow_left = 0
        self._late: dict[Direction, tuple[int, int]] = {}  # frames and milliseconds
        self._is_cut = False
        self._untold: Direction | None = None  # what the side that does not know of a cut still sends
        self._ended = asyncio.Event()

    @property
    def in_flight(self) -> int:
        """Produce requests that the client has sent and not seen answered."""
        return sum(1 for key, _ in self._asked.values() if key == PRODUCE)

    async def run(self) -> None:
        """Run until either side ends, or a fault ends both."""
        pumps = {Direction.UP: self._pump_up(), Direction.DOWN: self._pump_down()}
        tasks = {direction: asyncio.ensure_future(pump) for direction, pump in pumps.items()}
        ended = asyncio.ensure_future(self._ended.wait())
        try:
            await asyncio.wait((*tasks.values(), ended), return_when=asyncio.FIRST_COMPLETED)
            if self._untold is not None:
                await asyncio.wait((tasks[self._untold], ended), return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (*tasks.values(), ended):
                task.cancel()
            await asyncio.gather(*tasks.values(), ended, return_exceptions=True)
            for writer in (self._client_writer, self._server_writer):
                writer.close()

    def cut(self, sides: Sides, *, is_reset: bool) -> None:
        """End it for one side or both. The side that is not told keeps a connection on which nothing comes any more."""
        self._is_cut = True
        self._untold = _UNTOLD.get(sides)
        end = reset if is_reset else asyncio.StreamWriter.close
        if sides is not Sides.SERVER:
            end(self._client_writer)
        if sides is not Sides.CLIENT:
            end(self._server_writer)
        if sides is Sides.BOTH:
            self._ended.set()

    # --- the pumps

    async def _pump_up(self) -> None:
        while True:
            frame = await self._next(self._client_reader)
            if frame is None:
                return
            key, version, correlation_id = struct.unpack_from(">hhi", frame, _SIZE_BYTES)
            self._asked[correlation_id] = (key, version)
            if not await self._pass(Direction.UP, api_name(key), correlation_id, frame, self._server_writer):
                return

    async def _pump_down(self) -> None:
        while True:
            frame = await self._next(self._server_reader)
            if frame is None:
                return
            correlation_id = int.from_bytes(frame[_SIZE_BYTES : _SIZE_BYTES + 4], "big", signed=True)
            key, version = self._asked.get(correlation_id, (-1, -1))
            try:
                body = await rewritten(key, version, memoryview(frame)[_SIZE_BYTES:], self._proxy.behind)
            except MalformedFrame as error:
                self._proxy.unreadable.append(f"{self.server}: {error}")
                self.cut(Sides.BOTH, is_reset=True)
                return
            if isinstance(body, bytes):
                frame = len(body).to_bytes(_SIZE_BYTES, "big") + body
            if not await self._pass(Direction.DOWN, api_name(key), correlation_id, frame, self._client_writer):
                return
            self._answered(correlation_id)

    def _answered(self, correlation_id: int) -> None:
        """Answers come in order, so what was asked before and has none (acks=0) will never get one."""
        if correlation_id in self._asked:
            for each in list(self._asked):
                del self._asked[each]
                if each == correlation_id:
                    return

    async def _next(self, reader: asyncio.StreamReader) -> bytes | None:
        """A whole frame with its length; None at the end. Bytes of a side that does not know of a cut go nowhere."""
        try:
            head = await reader.readexactly(_SIZE_BYTES)
            size = int.from_bytes(head, "big", signed=True)
            if not 4 <= size <= MOST_FRAME_BYTES:
                self._proxy.unreadable.append(f"{self.server}: a frame of {size} bytes")
                return None
            return head + await reader.readexactly(size)
        except (OSError, EOFError):
            return None

    async def _pass(
        self, direction: Direction, api: str, correlation_id: int, frame: bytes, writer: asyncio.StreamWriter
    ) -> bool:
        """Whether this direction goes on."""
        if self._is_cut:
            return True  # somebody who was not told still talks
        hit = self._proxy.frame(self, direction, api, len(frame))
        if hit is not None and not await self._suffer(hit.fault, direction, frame[: hit.passed_bytes], writer):
            return False
        if self._swallow_left and direction is Direction.DOWN:
            self._swallow(correlation_id)
            return True
        await self._wait_if_late(direction)
        if not self._is_cut:
            writer.write(frame)
            await _drained(writer)
        return True

    def _swallow(self, correlation_id: int) -> None:
        """The connection ends with the last answer that is swallowed, or when nothing more will be answered."""
        self._swallow_left -= 1
        if not self._swallow_left or next(reversed(self._asked), correlation_id) == correlation_id:
            self.cut(Sides.BOTH, is_reset=True)

    async def _suffer(self, fault: Fault, direction: Direction, passed: bytes, writer: asyncio.StreamWriter) -> bool:
        """Whether the frame may still be passed on."""
        match fault.kind:
            case Kind.CUT:
                if passed:
                    writer.write(passed)
                    await _drained(writer)
                self.cut(fault.sides, is_reset=fault.is_reset)
                return fault.sides is not Sides.BOTH
            case Kind.SWALLOW:
                self._swallow_left = max(1, fault.frames)
            case Kind.DELAY:
                self._late[direction] = (fault.frames, fault.ms)
            case Kind.STALL:
                if fault.ms:
                    await asyncio.sleep(fault.ms / 1000)
                else:
                    await self._ended.wait()
            case Kind.REFUSE:  # the proxy sees to those that come next
                self.cut(Sides.BOTH, is_reset=True)
                return False
        return True

    async def _wait_if_late(self, direction: Direction) -> None:
        frames, ms = self._late.get(direction, (0, 0))
        if frames:
            self._late[direction] = (frames - 1, ms)
            await asyncio.sleep(ms / 1000)


async def _drained(writer: asyncio.StreamWriter) -> None:
    try:
        await writer.drain()
    except OSError:
        return  # the other pump learns of it, too


def reset(writer: asyncio.StreamWriter) -> None:
    """End it so that the other end gets a reset: what was on the way is lost."""
    if not writer.transport.is_closing():
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
    writer.transport.abort()
