"""TLS of what is served beside the log, the page and the metrics: the layer that the log's own listeners have, with
bounds of its own, around another protocol."""

import asyncio
import logging
from typing import Any, Final, cast

from oncelog.server.broker import Broker
from oncelog.server.connections import Connections, LineLimit
from oncelog.server.strangers import Stranger, Strangers
from oncelog.server.tls import Tls
from oncelog.server.tls_transport import TlsTransport

BUFFER_BYTES: Final = 16 * 1024


class Doorway:
    """The connections of a listener, as TLS needs them. Those that do not end their handshake make room for others,
    first those of the host that has most."""

    def __init__(self, broker: Broker, tls: Tls, what: str, most_open: int) -> None:
        """`what` it leads to, for the log."""
        self.broker = broker
        self.tls = tls
        self._what = what
        self.shaking_hands: set[Stranger] = set()
        self.strangers = Strangers(lambda: broker.clock.now().monotonic_ms, most_open)
        self.encrypted_view = memoryview(bytearray(BUFFER_BYTES))
        self.received = bytearray(BUFFER_BYTES)
        self._lines = LineLimit(broker.clock)

    @property
    def guard(self) -> "Doorway":
        return self

    def may_begin(self, client_host: str) -> bool:
        return True  # `strangers` makes room, and a connection that has come in is bounded by what is served

    async def look(self) -> None:
        """Whether the certificate has changed: it is renewed without a restart."""
        await self.broker.aside.run(self.tls.look)

    def log_refused(self, client_host: str, reason: str) -> None:
        self._lines.log(logging.INFO, "%s closed the connection of %s: %s", self._what, client_host, reason)

    def enter(self, inner: asyncio.Protocol) -> TlsTransport:
        return TlsTransport(cast(Connections, self), self.tls, lambda: Unbuffered(inner, self.received))


class Unbuffered:
    """A protocol that is handed what arrived, as one that says where it is to arrive."""

    def __init__(self, protocol: asyncio.Protocol, received: bytearray) -> None:
        self._protocol = protocol
        self._received = received
        self.connection_made = protocol.connection_made
        self.connection_lost = protocol.connection_lost
        self.pause_writing = protocol.pause_writing
        self.resume_writing = protocol.resume_writing

    def get_buffer(self, sizehint: int) -> Any:
        return memoryview(self._received)

    def is_held(self) -> bool:
        return False

    def buffer_updated(self, nbytes: int) -> None:
        self._protocol.data_received(bytes(self._received[:nbytes]))
