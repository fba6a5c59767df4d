"""The bytes that a connection receives: where they go, and which of them wait.

Bytes are received into a buffer that all connections share, and served where they lie; what is left of a chunk is kept
by the connection. A frame too large for that gets a buffer of its own, out of a budget that all connections share, once
a good piece of it is there. The buffer grows with what arrives, and so does what it takes of the budget: a length that
is only announced costs nothing. Where the budget is used up, reading stops until something is given back; while
somebody waits so, a frame that does not get on loses its connection.
"""

import asyncio
from typing import Protocol, cast

from oncelog.server.connections import Connections
from oncelog.server.principal import HAS_KEPT
from oncelog.wire.frames import REQUEST_HEAD, REQUEST_HEAD_BYTES, SIZE, SIZE_BYTES, MalformedFrame

HELD_BYTES = 64 * 1024  # a connection that stands still keeps this much of what arrives behind
LARGE_FRAME_BYTES = HELD_BYTES  # once so much of a frame is there, the rest goes into a buffer of its own
LEAST_RECEIVED_BYTES = 4096
AHEAD = 4  # a first buffer is this many times as large as what is there of the frame; whole for what comes in one piece
GROWN_BYTES = 4 * 2**20  # a buffer grows by no more at a time: to fill it with zeros takes a millisecond for each 2 MB
READ_BYTES = 2**20  # at a time: the loop reads as often as 32 times before it looks at others, which is some 6 ms
TLS_HELLOS = (0x160301, 0x160303)  # how the first bytes of a client with TLS begin
PROGRESS_BYTES = 16 * 1024  # less than this in STALLED_MS is none


class Serving(Protocol):
    """The receiver of the frames."""

    is_closing: bool
    is_serving: bool
    active_ms: int

    def serve(self, buffer: bytearray, at: int, end: int) -> None:
        """Serve frames. Bytes that it does not serve must be left by `keep`."""

    def is_held(self) -> bool:
        """Whether nothing may be served now."""

    def may_serve(self, key: int, size: int) -> bool:
        """Whether a request of this kind and size may be served now."""


class Gone:
    """A stand-in for a connection that is gone: two objects that point at each other stay until the collector finds
    them, and it stops the server while it looks through everything."""

    is_closing = True
    is_serving = False
    active_ms = 0

    def serve(self, buffer: bytearray, at: int, end: int) -> None:
        """Nobody is there."""

    def is_held(self) -> bool:
        return True

    def may_serve(self, key: int, size: int) -> bool:
        return False


GONE = Gone()


class Receiver:
    def __init__(self, connections: Connections, serving: Serving) -> None:
        self._connections = connections
        self._serving: Serving = serving
        self._memory = connections.broker.memory
        self._metrics = connections.broker.metrics
        self._sleepers = connections.sleepers
        self._shared = connections.receive_buffer
        self._shared_view = memoryview(self._shared)
        self._max_frame_bytes = connections.broker.settings.socket_request_max_bytes
        self._transport: asyncio.Transport = cast(asyncio.Transport, None)
        self._rest = bytearray()  # what of the received bytes is not served yet, where that is little
        self._large: bytearray | None = None  # a large frame on its way
        self._in_hand: bytearray | None = None  # a large frame that is being served
        self._large_filled = 0
        self._large_size = 0
        self._large_room = 0  # up to where it may be received
        self._large_taken = 0  # of the budget
        self._large_seen = 0  # how much of it was there when it last got on
        self._large_seen_ms = 0
        self._is_read_paused = False
        self._is_asleep = False
        self._is_starved = False  # waits for memory for a large frame, or for its round

    def begin(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._sleepers.came(self)

    @property
    def active_ms(self) -> int:
        return self._serving.active_ms

    @property
    def may_sleep(self) -> bool:
        """Whether whatever comes next comes by the socket."""
        return not self._transport.get_extra_info(HAS_KEPT, False)

    def fall_asleep(self) -> int:
        if self._is_read_paused or self._transport.is_closing():
            return -1
        self._is_asleep = True
        self._transport.pause_reading()
        number: int = self._transport.get_extra_info("socket").fileno()
        return number

    def wake_up(self) -> None:
        self._is_asleep = False
        if not self._transport.is_closing():
            self._transport.resume_reading()

    @property
    def is_reading(self) -> bool:
        return not self._is_read_paused

    @property
    def kept_bytes(self) -> int:
        """The bytes that are kept: too few to be served, or not to be served yet."""
        return len(self._rest)

    def get_buffer(self, sizehint: int = -1) -> memoryview:
        large = self._large
        if large is not None:
            if self._large_room > len(large):
                large.extend(bytes(self._large_room - len(large)))  # now: while it is received into it cannot
            end = min(self._large_size, self._large_filled + READ_BYTES)
            return memoryview(large)[self._large_filled : end]
        rest = self._rest
        kept = len(rest)
        if kept:
            self._shared[:kept] = rest
        if self._serving.is_held():
            return self._shared_view[kept : max(HELD_BYTES, kept + LEAST_RECEIVED_BYTES)]
        return self._shared_view[kept:] if kept else self._shared_view

    def buffer_updated(self, nbytes: int) -> None:
        if self._serving.is_closing:
            return
        self._metrics.bytes_received += nbytes
        if self._large is not None:
            self._large_filled += nbytes
            if self._large_filled == self._large_size:
                self._serve_large()
            elif self._large_filled == self._large_room:
                self._grow_large()
            return
        end = len(self._rest) + nbytes
        if self._rest:
            self._rest = bytearray()
        self._serving.serve(self._shared, 0, end)

    def frame_bytes(self, buffer: bytearray, at: int) -> int:
        size: int = SIZE.unpack_from(buffer, at)[0]
        if size < REQUEST_HEAD_BYTES or size > self._max_frame_bytes:
            is_tls = size >> 8 in TLS_HELLOS
            raise MalformedFrame("it speaks TLS to a listener without" if is_tls else f"a frame of {size} bytes")
        return size

    def keep(self, buffer: bytearray, at: int, end: int) -> None:
        left = end - at
        if left == 0 or self._serving.is_closing:
            return
        if buffer is self._in_hand:
            self._large = buffer  # it was not served yet
            self._pause_reading()
            return
        if left >= SIZE_BYTES and not self._serving.is_held():
            size = self.frame_bytes(buffer, at)
            if left >= LARGE_FRAME_BYTES and SIZE_BYTES + size > left:
                self._begin_large(buffer, at, end, SIZE_BYTES + size)
                return
        self._rest = bytearray(memoryview(buffer)[at:end])
        if left >= HELD_BYTES:
            self._pause_reading()

    def keep_unserved(self, buffer: bytearray, at: int, end: int) -> None:
        """The same for what may be no request, and is less than is held."""
        if end > at and not self._serving.is_closing:
            self._rest = bytearray(memoryview(buffer)[at:end])

    def _begin_large(self, buffer: bytearray, at: int, end: int, size: int) -> None:
        left = end - at
        budget = self._memory.unserved
        buffers = self._memory.large_buffers
        taken = buffers.first_bytes(min(size, AHEAD * left))
        if not self._large_taken:  # else it has waited for its round of the loop
            if not budget.take(taken):
                self._rest = bytearray(memoryview(buffer)[at:end])
                self._starve()
                budget.wait(self._fed)
                return
            self._large_taken = taken
        if not buffers.has(taken) and not self._memory.fresh.take(taken):
            self._rest = bytearray(memoryview(buffer)[at:end])
            self._wait_for_round()
            return
        large = buffers.take(taken)
        large[:left] = memoryview(buffer)[at:end]
        self._large, self._large_filled, self._large_size = large, left, size
        self._large_room = len(large)
        self._large_seen, self._large_seen_ms = left, self._connections.broker.clock.now().monotonic_ms

    def _grow_large(self) -> None:
        """Make room for the rest, or wait until there is memory for that."""
        large = self._large
        assert large is not None
        grown_bytes = min(len(large) + min(len(large), GROWN_BYTES), self._large_size)
        budget = self._memory.unserved
        if grown_bytes > self._large_taken:  # else it has waited for its round of the loop
            if not budget.take_more(grown_bytes - self._large_taken, self):
                self._starve()
                budget.wait_for_more(self._fed)
                return
            self._large_taken = grown_bytes
        buffers = self._memory.large_buffers
        if not buffers.has(grown_bytes) and not self._memory.fresh.take(grown_bytes - len(large)):
            self._wait_for_round()
            return
        self._large_room = grown_bytes
        grown = buffers.kept(grown_bytes)
        if grown is not None:
            grown[: self._large_filled] = memoryview(large)[: self._large_filled]
            self._large, self._large_room = grown, len(grown)
            buffers.give_back(large)
        self._large_seen_ms = self._connections.broker.clock.now().monotonic_ms

    def _starve(self) -> None:
        self._is_starved = True
        self._pause_reading()
        self._memory.is_wanted()

    def _wait_for_round(self) -> None:
        """There is memory for it; in this round of the loop enough of that was made."""
        self._is_starved = True
        self._pause_reading()
        self._memory.fresh.wait(self._fed)

    def stalled_since_ms(self, now_ms: int) -> int | None:
        """The time since when a large frame has not got on, where that is the client's doing."""
        if self._large is None or self._is_read_paused or self._serving.is_closing:
            return None
        if self._large_filled - self._large_seen >= PROGRESS_BYTES:
            self._large_seen, self._large_seen_ms = self._large_filled, now_ms
        return self._large_seen_ms

    def _serve_large(self) -> None:
        large, size = self._large, self._large_size
        assert large is not None
        if not self._serving.may_serve(REQUEST_HEAD.unpack_from(large, SIZE_BYTES)[0], size):
            self._pause_reading()
            return
        self._large, self._in_hand = None, large
        try:
            self._serving.serve(large, 0, size)
        finally:
            self._in_hand = None
            if self._large is None:
                self._memory.large_buffers.give_back(large)
                self._give_back_large()

    def drop(self) -> None:
        """The connection is gone."""
        self._sleepers.forget(self)
        self._serving = GONE
        self._rest = bytearray()
        if self._is_starved:
            self._is_starved = False
            self._memory.unserved.forget(self._fed)
        self._large = None
        if self._large_taken:
            self._give_back_large()

    def _give_back_large(self) -> None:
        taken, self._large_taken = self._large_taken, 0
        self._memory.unserved.give_back(taken, self)

    def _fed(self) -> None:
        """Another connection has given back memory, or others had their round."""
        self._is_starved = False
        self.go_on()

    def go_on(self) -> None:
        """Go on: whatever held this connection is over. Serve what has arrived meanwhile, then read on."""
        if self._serving.is_serving or self._serving.is_held() or self._is_starved:
            return
        if self._large is not None:
            if self._large_filled == self._large_size:
                self._serve_large()
            elif self._large_filled == self._large_room:
                self._grow_large()
        elif self._rest:
            rest, self._rest = self._rest, bytearray()
            self._serving.serve(rest, 0, len(rest))
        if self._may_read():
            self._resume_reading()

    def _may_read(self) -> bool:
        """Whether there is room for more: asked after serving, which may have changed every reason not to."""
        if self._serving.is_held() or self._is_starved:
            return False
        return not self._is_large_complete() and len(self._rest) < HELD_BYTES

    def _is_large_complete(self) -> bool:
        return self._large is not None and self._large_filled == self._large_size

    def pause(self) -> None:
        """Pause until it is told to go on."""
        self._pause_reading()

    def _pause_reading(self) -> None:
        if not self._is_read_paused and not self._serving.is_closing:
            self._is_read_paused = True
            self._sleepers.forget(self)
            if not self._is_asleep:
                self._transport.pause_reading()
            self._is_asleep = False

    def _resume_reading(self) -> None:
        if self._is_read_paused and not self._serving.is_closing:
            self._is_read_paused = False
            self._transport.resume_reading()
            self._sleepers.came(self)
