"""From an address to a connection that may be used: TCP, TLS, ApiVersions, SASL."""

import asyncio
import re
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from oncelog import __version__
from oncelog.client.errors import KafkaError, KafkaException
from oncelog.client.net.connection import Connection, Endpoint
from oncelog.wire.requests import known_versions, request_schema

if TYPE_CHECKING:
    from oncelog.client.properties import ClientSettings

API_VERSIONS = 18
UNSUPPORTED_VERSION = 35
SOFTWARE_NAME = "oncelog"
SOFTWARE_VERSION = re.sub(r"[^a-zA-Z0-9.-]+", "-", __version__)


async def open_connection(
    endpoint: Endpoint,
    settings: "ClientSettings",
    on_lost: Callable[[Connection], None] | None = None,
) -> Connection:
    """Raises a KafkaException that says what is wrong and, where that is known, what to do."""
    setup_s = settings.socket_connection_setup_timeout_ms / 1000
    connection: Connection | None = None
    try:
        async with asyncio.timeout(setup_s):
            connection = await _connect(endpoint, settings, on_lost)
            await negotiate(connection, settings)
            return connection
    except TimeoutError:
        error = KafkaError(KafkaError._TIMED_OUT, f"{endpoint}: no connection within {setup_s:g} s", retriable=True)
        if connection is not None:
            connection.close(error)
        raise KafkaException(error) from None
    except BaseException:
        if connection is not None:
            connection.close()
        raise


async def _connect(
    endpoint: Endpoint, settings: "ClientSettings", on_lost: Callable[[Connection], None] | None
) -> Connection:
    def made() -> Connection:
        return Connection(
            endpoint,
            client_id=settings.client_id,
            timeout_ms=settings.socket_timeout_ms,
            max_frame_bytes=settings.receive_message_max_bytes,
            on_lost=on_lost,
        )

    loop = asyncio.get_running_loop()
    try:
        transport, connection = await loop.create_connection(made, endpoint.host, endpoint.port)
    except socket.gaierror as error:
        words = f"{endpoint}: the host name cannot be resolved: {error.strerror or error}"
        raise KafkaException(KafkaError(KafkaError._RESOLVE, words, retriable=True)) from None
    except OSError as error:
        words = f"{endpoint}: connect failed: {error.strerror or error}"
        raise KafkaException(KafkaError(KafkaError._TRANSPORT, words, retriable=True)) from None
    _set_socket_options(transport, settings)
    return connection


def _set_socket_options(transport: asyncio.BaseTransport, settings: "ClientSettings") -> None:
    raw = transport.get_extra_info("socket")
    raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


async def negotiate(connection: Connection, settings: "ClientSettings") -> None:
    """Ask which versions the broker speaks. One that finds our question too new says which it would understand."""
    low, high = known_versions("api_versions")
    answer = await _ask_versions(connection, high)
    if int(answer.error_code) == UNSUPPORTED_VERSION:
        theirs = {int(each.api_key): int(each.max_version) for each in answer.api_keys}
        answer = await _ask_versions(connection, max(low, min(high - 1, theirs.get(API_VERSIONS, low))))
    if int(answer.error_code):
        words = f"{connection.endpoint}: the broker refuses ApiVersions with error {int(answer.error_code)}"
        raise KafkaException(KafkaError(KafkaError._UNSUPPORTED_FEATURE, words))
    connection.versions = {
        int(each.api_key): (int(each.min_version), int(each.max_version)) for each in answer.api_keys
    }


async def _ask_versions(connection: Connection, version: int) -> Any:
    spoken = request_schema("api_versions", version)
    request = spoken.new(
        "ApiVersionsRequest", client_software_name=SOFTWARE_NAME, client_software_version=SOFTWARE_VERSION
    )
    frame = await connection.ask_frame(
        lambda correlation_id: spoken.encode(request, correlation_id, connection.client_id)
    )
    # A refusal of the version comes in version 0, whatever was asked (KIP-511).
    is_refusal = bytes(frame[4:6]) == UNSUPPORTED_VERSION.to_bytes(2, "big")
    return connection.understood(request_schema("api_versions", 0) if is_refusal else spoken, frame)
