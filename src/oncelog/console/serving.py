"""The page on the server's own event loop: a listening socket, and uvicorn's protocol for each connection.

uvicorn is made to run a process: it takes the signals for itself and wakes up ten times a second. Here it does neither;
of its server only starting and stopping are used, so nothing happens while nobody asks.
"""

import asyncio
import logging
import socket
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import uvicorn

from oncelog.console.connection import MOST_OPEN, Connection
from oncelog.console.faults import FaultList, Faults
from oncelog.console.sign_in import SignIn
from oncelog.console.web import application
from oncelog.server.broker import Broker, bracketed
from oncelog.server.doorway import Doorway
from oncelog.server.endpoints import WILDCARDS
from oncelog.server.exposure import Exposure
from oncelog.server.listener import address_refused
from oncelog.server.tls import LOOK_MS

BACKLOG = 64
STOP_GRACE_S = 1


class Console:
    def __init__(self, broker: Broker, host: str, port: int, faults: Faults | None = None) -> None:
        self._host, self._port = host, port
        self._broker = broker
        self._exposure = exposure = exposure_of_page(host, port, broker)
        tls = exposure.tls()
        self._doorway = None if tls is None else Doorway(broker, tls, exposure.what, MOST_OPEN)
        self._sign_in = SignIn(broker, is_asked_for=exposure.asks_to_sign_in, is_encrypted=tls is not None)
        config = uvicorn.Config(
            application(broker, FaultList() if faults is None else faults, self._sign_in, own_names(host, broker)),
            loop="none",
            http=self._new_connection,  # type: ignore[arg-type]  # it only calls it
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

    def _new_connection(self, **given: Any) -> asyncio.BaseProtocol:
        connection = Connection(self._broker.turns, **given)
        return connection if self._doorway is None else self._doorway.enter(connection)

    async def start(self) -> None:
        """Raises SettingsError."""
        self._exposure.check_users()
        config = self._server.config
        if not config.loaded:
            config.load()
        self._server.lifespan = config.lifespan_class(config)
        self._sockets = [_listening(self._host, self._port)]
        self.port = self._sign_in.port = self._sockets[0].getsockname()[1]
        if self._doorway is not None:
            self._broker.housekeeping.every(LOOK_MS, self._doorway.look)
        await self._server.startup(sockets=self._sockets)

    async def stop(self) -> None:
        await self._server.shutdown(sockets=self._sockets)

    @property
    def connections(self) -> Collection[object]:
        return self._server.server_state.connections

    @property
    def address(self) -> str:
        """The address that a person opens."""
        host = "127.0.0.1" if self._host in WILDCARDS else self._host
        scheme = "http" if self._doorway is None else "https"
        return f"{scheme}://{bracketed(host)}:{self.port}/"


def exposure_of_page(host: str, port: int, broker: Broker) -> Exposure:
    settings = broker.settings
    return Exposure(
        broker,
        host,
        what="the page",
        given=f"--console {bracketed(host)}:{port}",
        listener="CONSOLE",
        sign_in=("oncelog.console.sign.in", settings.oncelog_console_sign_in),
        tls_word=settings.oncelog_console_tls,
    )


def own_names(host: str, broker: Broker) -> frozenset[str]:
    """The names by which the page may be asked, beside addresses."""
    return broker.own_names if host in WILDCARDS else broker.own_names | {host.casefold()}


def beside(host: str, port: int, faults: Faults | None = None) -> Callable[[Broker], AbstractAsyncContextManager[str]]:
    """The context that `running.serve` keeps up while the server runs."""

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
        raise address_refused("serve the page", host, port, error) from error
