"""The steps from an address to a connection that may be used: TCP, TLS, ApiVersions, SASL."""

import asyncio
import os
import random as chance
import re
import socket
import ssl
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from oncelog import __version__
from oncelog.client.errors import KafkaError, KafkaException
from oncelog.client.net.connection import Connection, Endpoint
from oncelog.client.net.frame_reader import FrameReader
from oncelog.client.net.sasl.exchange import Credentials, authenticate
from oncelog.client.net.tls import WANTS_CERTIFICATE, tls_context, tls_failure
from oncelog.error_codes import ErrorCodes as Code
from oncelog.wire.requests import known_versions, request_schema

if TYPE_CHECKING:
    from oncelog.client.properties import ClientSettings

API_VERSIONS = 18
SOFTWARE_NAME = "oncelog"
SOFTWARE_VERSION = re.sub(r"[^a-zA-Z0-9.-]+", "-", __version__)

_FAMILIES = {"any": socket.AF_UNSPEC, "v4": socket.AF_INET, "v6": socket.AF_INET6}
_WANTS_TLS = "; does this listener want TLS, or is it no Kafka at all? (`security.protocol`)"
_WANTS_SASL = " at its first request: does this listener want SASL? (`security.protocol`)"

OnLost = Callable[[Connection], None]


class Opener:
    """Opens connections by one client's settings; what is wrong with them shows when it is made."""

    def __init__(self, settings: "ClientSettings", random: Callable[[], float] = chance.random) -> None:
        self._settings = settings
        self._random = random
        self._tls = tls_context(settings)
        is_sasl = settings.security_protocol.startswith("sasl")
        self._credentials = Credentials(settings) if is_sasl else None

    async def open(self, endpoint: Endpoint, on_lost: OnLost | None = None) -> Connection:
        """Raises a KafkaException that says what is wrong and, where that is known, what to do."""
        setup_s = self._settings.socket_connection_setup_timeout_ms / 1000
        connection: Connection | None = None
        try:
            async with asyncio.timeout(setup_s):
                connection = await self._connect(endpoint, on_lost)
                await self._make_ready(connection)
                return connection
        except TimeoutError:
            words = f"{endpoint}: no connection within {setup_s:g} s (`socket.connection.setup.timeout.ms`)"
            error = KafkaError(KafkaError._TIMED_OUT, words, retriable=True)
            if connection is not None:
                connection.close(error)
            raise KafkaException(error) from None
        except BaseException:
            if connection is not None:
                connection.close()
            raise

    async def _connect(self, endpoint: Endpoint, on_lost: OnLost | None) -> Connection:
        settings = self._settings
        connection = Connection(
            endpoint,
            client_id=settings.client_id,
            timeout_ms=settings.socket_timeout_ms,
            on_lost=on_lost,
        )
        try:
            transport, _ = await asyncio.get_running_loop().create_connection(
                lambda: FrameReader(settings.receive_message_max_bytes, connection),
                endpoint.host,
                endpoint.port,
                ssl=self._tls,
                family=_FAMILIES[settings.broker_address_family],
                server_hostname=endpoint.host if self._tls is not None else None,
            )
        except ssl.SSLError as error:  # first: one of a certificate is a ValueError as well
            raise tls_failure(endpoint, error) from None
        except (socket.gaierror, ValueError, OverflowError) as error:
            # A broker may advertise what is no host name at all, and no port.
            words = f"{endpoint}: the host name cannot be resolved: {getattr(error, 'strerror', None) or error}"
            raise KafkaException(KafkaError(KafkaError._RESOLVE, words, retriable=True)) from None
        except OSError as error:
            if self._tls is not None and isinstance(error, ConnectionResetError | ConnectionAbortedError):
                raise tls_failure(endpoint, error) from None
            # asyncio does not say whether it was refused or unreachable; for several addresses there is no number.
            reason = os.strerror(error.errno) if error.errno else error.strerror or error
            words = f"{endpoint}: connect failed: {reason}"
            raise KafkaException(KafkaError(KafkaError._TRANSPORT, words, retriable=True)) from None
        _set_socket_options(transport, settings)
        return connection

    async def _make_ready(self, connection: Connection) -> None:
        connection.hint = WANTS_CERTIFICATE if self._tls is not None else _WANTS_TLS
        await negotiate(connection)
        connection.hint = ""
        if self._credentials is not None:
            await authenticate(connection, self._credentials, self._random)
        else:
            connection.hint = _WANTS_SASL


def _set_socket_options(transport: asyncio.BaseTransport, settings: "ClientSettings") -> None:
    raw = transport.get_extra_info("socket")
    raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, settings.socket_nagle_disable)
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, settings.socket_keepalive_enable)
    if settings.socket_send_buffer_bytes:
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, settings.socket_send_buffer_bytes)
    if settings.socket_receive_buffer_bytes:
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, settings.socket_receive_buffer_bytes)


async def negotiate(connection: Connection) -> None:
    """Ask which versions the broker speaks. One that finds our question too new says which it would understand."""
    low, high = known_versions("api_versions")
    answer = await _ask_versions(connection, high)
    if int(answer.error_code) == Code.UNSUPPORTED_VERSION:
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
    is_refusal = bytes(frame[4:6]) == Code.UNSUPPORTED_VERSION.to_bytes(2, "big")
    return connection.understood(request_schema("api_versions", 0) if is_refusal else spoken, frame)
