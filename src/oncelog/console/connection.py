"""A connection to the page, which has an end: uvicorn's own waits for ever for a request that never becomes whole, for
a first one, and for somebody to read an answer; and whom it has told that there are too many, it keeps."""

import asyncio
from typing import Any, Final

from uvicorn.protocols.http.h11_impl import H11Protocol

MOST_CONNECTIONS: Final = 64  # more are told that it is too many
MOST_OPEN: Final = 2 * MOST_CONNECTIONS  # more are not told anything: files are for the log's clients
PATIENCE_S: Final = 15.0  # a page asks once a second, and is answered in milliseconds


class Connection(H11Protocol):
    """Ends where nothing new was asked between two looks."""

    _look: asyncio.TimerHandle | None = None
    _asked_then: Any = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        super().connection_made(transport)
        if len(self.connections) > MOST_OPEN:
            transport.abort()
        else:
            self._look_later()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._look is not None:
            self._look.cancel()
        super().connection_lost(exc)

    def _look_later(self) -> None:
        self._look = self.loop.call_later(PATIENCE_S, self.end_if_silent)

    def end_if_silent(self) -> None:
        if self.cycle is self._asked_then:
            self.transport.abort()
        else:
            self._asked_then = self.cycle
            self._look_later()
