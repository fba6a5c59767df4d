"""Where the server listens, and what clients are told to connect to."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from oncelog.server.connection import Connection
from oncelog.server.connections import Connections
from oncelog.server.listeners import parse_listeners, parse_protocols
from oncelog.server.settings import Settings
from oncelog.settings import SettingsError

BACKLOG = 1024
WILDCARDS = ("", "0.0.0.0", "::")


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One listener. Its protocol says how bytes become requests: TLS and SASL will be others."""

    name: str
    protocol: str
    host: str
    port: int
    advertised_host: str | None = None  # None: the address by which a client reached us
    advertised_port: int | None = None  # None: the port that was bound


def endpoints(settings: Settings) -> list[Endpoint]:
    protocols = parse_protocols(settings.listener_security_protocol_map)
    advertised = (
        {each.name: each for each in parse_listeners("advertised.listeners", settings.advertised_listeners, protocols)}
        if settings.advertised_listeners
        else {}
    )
    found = []
    for each in parse_listeners("listeners", settings.listeners, protocols):
        told = advertised.get(each.name)
        own_host = None if each.host in WILDCARDS else each.host
        found.append(
            Endpoint(
                each.name,
                protocols.get(each.name, each.name),
                each.host,
                each.port,
                told.host if told else own_host,
                told.port if told else None,
            )
        )
    return found


async def listen(wanted: Sequence[Endpoint], connections: Connections) -> tuple[list[asyncio.Server], dict[str, int]]:
    """The servers, and the port that each listener got."""
    loop = asyncio.get_running_loop()
    servers: list[asyncio.Server] = []
    ports: dict[str, int] = {}
    for endpoint in wanted:

        def new_connection(listener_name: str = endpoint.name) -> Connection:
            return Connection(connections, listener_name)

        try:
            server = await loop.create_server(
                new_connection, endpoint.host or None, endpoint.port, backlog=BACKLOG, reuse_address=True
            )
        except OSError as error:
            for each in servers:
                each.close()
            where = f"{endpoint.host}:{endpoint.port}"
            raise SettingsError(f"cannot listen on {where}: {error.strerror or error}") from error
        servers.append(server)
        ports[endpoint.name] = server.sockets[0].getsockname()[1]
    return servers, ports
