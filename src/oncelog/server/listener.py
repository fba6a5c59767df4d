"""Listening: each new connection is served from then on."""

import asyncio
import errno
import os
import socket
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from oncelog.server.broker import bracketed
from oncelog.server.connection import Connection
from oncelog.server.connections import Connections
from oncelog.server.endpoints import Endpoint
from oncelog.server.guarded_connection import GuardedConnection
from oncelog.server.tls_transport import TlsTransport
from oncelog.settings import SettingsError

BACKLOG = 1024
REMEDIES: Final = {
    errno.EADDRINUSE: "Stop what listens there, or choose another port (0: any that is free)",
    errno.EADDRNOTAVAIL: "Choose an address that this machine has",
}


async def listen(wanted: Sequence[Endpoint], connections: Connections) -> tuple[list[asyncio.Server], dict[str, int]]:
    """The servers, and the port that each listener got."""
    loop = asyncio.get_running_loop()
    servers: list[asyncio.Server] = []
    ports: dict[str, int] = {}
    for endpoint in wanted:
        factory = _factory(endpoint, connections)
        try:
            server = await loop.create_server(
                factory,
                endpoint.host or None,
                endpoint.port,
                backlog=BACKLOG,
                reuse_address=True,
            )
        except OSError as error:
            for each in servers:
                each.close()
            raise address_refused("listen", endpoint.host, endpoint.port, error) from error
        servers.append(server)
        ports[endpoint.name] = server.sockets[0].getsockname()[1]
    return servers, ports


def refuse_taken(addresses: Iterable[tuple[str, int]]) -> None:
    """Raises SettingsError where `listen` would refuse an address: before a folder is made that a server which cannot
    listen would leave behind."""
    known: set[tuple[str, int]] = set()
    for host, port in addresses:
        if port and (host, port) in known:
            raise address_refused("listen", host, port, OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE)))
        known.add((host, port))
        try:
            found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
            failures = [failure for each in found if (failure := _failure(*each)) is not None]
        except OSError as error:
            raise address_refused("listen", host, port, error) from error
        taken = [each for each in failures if each.errno == errno.EADDRINUSE]
        if taken or len(failures) == len(found):  # as `listen`, which passes over a family that is missing here
            raise address_refused("listen", host, port, [*taken, *failures][0])


def _failure(family: int, kind: int, protocol: int, _: str, address: Any) -> OSError | None:
    try:
        with socket.socket(family, kind, protocol) as trial:
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                trial.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            trial.bind(address)
    except OSError as failure:
        return failure
    return None


def address_refused(doing: str, host: str, port: int, error: OSError) -> SettingsError:
    remedy = REMEDIES.get(error.errno or 0)
    return SettingsError(
        f"cannot {doing} on {bracketed(host)}:{port}: {error.strerror or error}" + (f". {remedy}" if remedy else "")
    )


def _factory(endpoint: Endpoint, connections: Connections) -> Callable[[], asyncio.BaseProtocol]:
    kind = GuardedConnection if endpoint.is_sasl else Connection

    def new_connection() -> Connection:
        return kind(connections, endpoint)

    tls = connections.broker.tls.get(endpoint.name)
    if tls is None:
        return new_connection

    def new_encrypted() -> TlsTransport:
        return TlsTransport(connections, tls, new_connection)

    return new_encrypted
