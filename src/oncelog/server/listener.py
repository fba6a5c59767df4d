"""Listening: each new connection is served from then on."""

import asyncio
from collections.abc import Callable, Sequence

from oncelog.server.connection import Connection
from oncelog.server.connections import Connections
from oncelog.server.endpoints import Endpoint
from oncelog.server.guarded_connection import GuardedConnection
from oncelog.server.tls_transport import TlsTransport
from oncelog.settings import SettingsError

BACKLOG = 1024


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
            where = f"{endpoint.host}:{endpoint.port}"
            raise SettingsError(f"cannot listen on {where}: {error.strerror or error}") from error
        servers.append(server)
        ports[endpoint.name] = server.sockets[0].getsockname()[1]
    return servers, ports


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
