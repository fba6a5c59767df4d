"""The page on the server's own event loop: a listening socket, and uvicorn's protocol for each connection.

uvicorn is made to run a process: it takes the signals for itself and wakes up ten times a second. Here it does neither;
of its server only starting and stopping are used, so nothing happens while nobody asks.
"""

import logging
import socket
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial

import uvicorn

from oncelog.console.connection import Connection
from oncelog.console.faults import FaultList, Faults
from oncelog.console.web import application
from oncelog.server.broker import Broker, bracketed
from oncelog.settings import SettingsError

BACKLOG = 64
STOP_GRACE_S = 1
WILDCARDS = ("", "0.0.0.0", "::")


class Console:
    def __init__(self, broker: Broker, host: str, port: int, faults: Faults | None = None) -> None:
        self._host, self._port = host, port
        own_name = "" if host in WILDCARDS else host
        config = uvicorn.Config(
            application(broker, FaultList() if faults is None else faults, own_name),
            loop="none",
            http=partial(Connection, broker.turns),  # type: ignore[arg-type]  # it only calls it
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            date_header=False,
            timeout_graceful_shutdown=STOP_GRACE_S,
        )
        # Its warnings are about what clients do, once for each time, which could fill a disk.
        logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
        self._server = uvicorn.Server(config)
        self._sockets: list[socket.socket] = []
        self.port = 0

    async def start(self) -> None:
        config = self._server.config
        if not config.loaded:
            config.load()
        self._server.lifespan = config.lifespan_class(config)
        self._sockets = [_listening(self._host, self._port)]
        self.port = self._sockets[0].getsockname()[1]
        await self._server.startup(sockets=self._sockets)

    async def stop(self) -> None:
        await self._server.shutdown(sockets=self._sockets)

    @property
    def connections(self) -> Collection[object]:
        return self._server.server_state.connections

    @property
    def address(self) -> str:
        """What a person opens."""
        host = "127.0.0.1" if self._host in WILDCARDS else self._host
        return f"http://{bracketed(host)}:{self.port}/"


def beside(host: str, port: int, faults: Faults | None = None) -> Callable[[Broker], AbstractAsyncContextManager[str]]:
    """What `running.serve` keeps up while the server runs."""

    @asynccontextmanager
    async def running(broker: Broker) -> AsyncIterator[str]:
        console = Console(broker, host, port, faults)
        await console.start()
        try:
            yield f"the page is at {console.address}"
        finally:
            await console.stop()

    return running


def _listening(host: str, port: int) -> socket.socket:
    try:
        found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, _, _, _, address = min(found, key=lambda each: each[0] != socket.AF_INET)
        return socket.create_server(address[:2], family=family, backlog=BACKLOG)
    except OSError as error:
        raise SettingsError(f"cannot serve the page on {bracketed(host)}:{port}: {error.strerror or error}") from error
