"""One connection to the page, bounded: what a request may be, how long it may take, and how many there may be.

uvicorn parses all that a read has brought at once, and h11 takes its time: up to 2 µs for a line. So what a request is
made of is counted before it is parsed, and parsing has its turns as other long work does.
"""

import asyncio
from collections import Counter
from time import monotonic  # the time of a loop stands still while many connections come
from typing import Any, Final

import h11
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from oncelog.console.errors import Refused
from oncelog.console.guard import Receive, Scope, Send, refuse
from oncelog.security.hosts import place_of
from oncelog.server.turns import Turns

MOST_CONNECTIONS: Final = 64  # more are told that it is too many
MOST_OPEN: Final = 2 * MOST_CONNECTIONS  # more are not told anything: files are for the log's clients
MOST_REQUEST_BYTES: Final = 16 << 10
MOST_REQUEST_LINES: Final = 100
PATIENCE_S: Final = 15.0  # a page asks once a second, and is answered in milliseconds
SILENT_S: Final = 2.0  # who has asked nothing for so long makes room where there are too many

TOO_MUCH: Final = f"send a GET without a body, of at most {MOST_REQUEST_BYTES:,} bytes and {MOST_REQUEST_LINES} lines"
TOO_MANY: Final = (
    f"{MOST_CONNECTIONS} connections look at this page: close some, or try again in {2 * PATIENCE_S:.0f} s"
)


class Connection(H11Protocol):
    """Ends where nothing new was asked between two looks."""

    _look: asyncio.TimerHandle | None = None
    _asked_then: Any = None
    _place = ""  # where it comes from

    def __init__(
        self,
        turns: Turns,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._turns = turns
        self._unread = b""  # of a request that waits for its turn
        self._counted: Any = None  # the request before the one that is counted
        self._bytes = self._lines = 0
        self._asked_s = monotonic()  # when it last began to ask, or to be there

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        super().connection_made(transport)
        if len(self.connections) > MOST_OPEN:
            transport.abort()
            return
        self._look_later()
        self._place = "" if self.client is None else place_of(self.client[0])
        if len(self.connections) > MOST_CONNECTIONS:
            self._make_room()

    @property
    def _is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _make_room(self) -> None:
        """Connections that ask nothing keep nobody out: the one that has been silent for longest goes. Where all ask,
        it is one of the host that has most, if this one's has fewer."""
        every = [each for each in self.connections if isinstance(each, Connection)]
        others = [each for each in every if not each._is_answering]
        silent = min(others, key=lambda each: each._asked_s, default=self)
        if monotonic() - silent._asked_s < SILENT_S:
            counts = Counter(each._place for each in every)
            greedy = [each for each in others if counts[each._place] > counts[self._place] + 1]
            if not greedy:
                return
            silent = min(greedy, key=lambda each: (-counts[each._place], each._asked_s))
        self.connections.discard(silent)  # now: it may be told later that it is lost than the new one is read
        silent.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._look is not None:
            self._look.cancel()
        self._unset_keepalive_if_required()  # a connection that is reset would be kept until then
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.cycle is not self._counted:
            self._counted = self.cycle
            self._bytes = self._lines = 0
        self._bytes += len(data)
        self._lines += data.count(b"\n")
        if self._bytes > MOST_REQUEST_BYTES or self._lines > MOST_REQUEST_LINES:
            self._end_with(TOO_MUCH)
        elif self._unread:
            self._unread += data
        else:
            self._unread = data
            if self._turns.is_over():
                self._turns.wait(self._read)
            else:
                self._read()

    def _read(self) -> None:
        data, self._unread = self._unread, b""
        if not self.transport.is_closing():
            is_busy = len(self.connections) > MOST_CONNECTIONS or len(self.tasks) >= MOST_CONNECTIONS
            self.app = _refuse_many if is_busy else self.config.loaded_app
            before = self.cycle
            super().data_received(data)
            if self.cycle is not before:
                self._asked_s = monotonic()

    def send_400_response(self, msg: str) -> None:
        self._end_with(TOO_MUCH)

    def _end_with(self, words: str) -> None:
        if self.conn.our_state is h11.IDLE:
            super().send_400_response(words)
        else:
            self.transport.abort()  # an answer is on its way, or was given

    def _look_later(self) -> None:
        self._look = self.loop.call_later(PATIENCE_S, self.end_if_silent)

    def end_if_silent(self) -> None:
        if self.cycle is self._asked_then:
            self.transport.abort()
        else:
            self._asked_then = self.cycle
            self._look_later()


async def _refuse_many(scope: Scope, receive: Receive, send: Send) -> None:
    await refuse(Refused(503, TOO_MANY), send)
