"""The exchange that proves who one is: once after connecting, and again before the broker's patience ends (KIP-368)."""

import asyncio
import secrets
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from oncelog.client.errors import KafkaError, KafkaException
from oncelog.client.net.connection import Connection
from oncelog.client.net.sasl.mechanism import Mechanism, OAuthBearer, Plain
from oncelog.client.net.sasl.tokens import TokenSource
from oncelog.error_codes import ErrorCodes as Code
from oncelog.security.scram_client import AuthenticationRefused, Scram
from oncelog.wire.requests import RequestSchema, api_key, request_schema

if TYPE_CHECKING:
    from oncelog.client.properties import ClientSettings

HANDSHAKE_VERSION = 1  # from which on the exchange is carried by Kafka's own frames
MOST_ROUNDS = 8
# The part of a session's life after which the proof is renewed, as in the Java client.
RENEWED_FROM, RENEWED_SPREAD = 0.85, 0.1


class Credentials:
    """The proof that a client gives, made once for all its connections."""

    def __init__(
        self, settings: "ClientSettings", nonce: Callable[[], str] = lambda: secrets.token_urlsafe(24)
    ) -> None:
        self.mechanism = settings.sasl_mechanism
        self._settings = settings
        self._nonce = nonce
        self._tokens = TokenSource(settings) if self.mechanism == "OAUTHBEARER" else None

    async def begin(self) -> Mechanism:
        name, password = self._settings.sasl_username or "", self._settings.sasl_password or ""
        if self._tokens is not None:
            token = await self._tokens.token()
            return OAuthBearer(token.value, token.extensions)
        if self.mechanism == "PLAIN":
            return Plain(name, password)
        return Scram(self.mechanism, name, password, self._nonce())


async def authenticate(connection: Connection, credentials: Credentials, random: Callable[[], float]) -> None:
    """Prove it now, and see to it that it is proven again in time."""
    lifetime_ms = await _prove(connection, credentials)
    if lifetime_ms > 0:
        pause_s = lifetime_ms * (RENEWED_FROM + RENEWED_SPREAD * random()) / 1000
        connection.call_later(pause_s, _begin_again, connection, credentials, random)


def _begin_again(connection: Connection, credentials: Credentials, random: Callable[[], float]) -> None:
    connection.keep(asyncio.ensure_future(_again(connection, credentials, random)))


async def _again(connection: Connection, credentials: Credentials, random: Callable[[], float]) -> None:
    """Prove it again. What is asked meanwhile waits: between the two requests of the proof the broker takes no
    other."""
    connection.hold()
    try:
        await authenticate(connection, credentials, random)
    except KafkaException as error:
        connection.close(error.error)
    except BaseException as error:  # what is held would be held for ever
        connection.close(_refused(connection, f"the proof could not be renewed: {error!r}").error)
        raise
    else:
        connection.release()


async def _prove(connection: Connection, credentials: Credentials) -> int:
    """The time for which the broker believes it, in milliseconds; 0 for as long as the connection lasts."""
    await _handshake(connection, credentials.mechanism)
    try:
        mechanism = await credentials.begin()
        message: bytes | None = mechanism.first()
        for _ in range(MOST_ROUNDS):
            answer = await _say(connection, mechanism, message or b"")
            challenge = bytes(answer.auth_bytes)
            message = mechanism.answer(challenge)
            if message is None:
                has_lifetime = hasattr(answer, "session_lifetime")  # from version 1 on
                return answer.session_lifetime // timedelta(milliseconds=1) if has_lifetime else 0
    except AuthenticationRefused as refused:
        raise _refused(connection, f"{credentials.mechanism}: {refused}") from None
    raise _refused(connection, f"{credentials.mechanism}: no end after {MOST_ROUNDS} messages")


async def _handshake(connection: Connection, mechanism: str) -> None:
    key = api_key("sasl_handshake")
    if key not in connection.versions:
        raise _refused(connection, "this server knows no SASL: set `security.protocol` to plaintext or ssl")
    spoken = request_schema("sasl_handshake", connection.version(key, HANDSHAKE_VERSION, HANDSHAKE_VERSION))
    answer = await _ask(connection, spoken, spoken.new("SaslHandshakeRequest", mechanism=mechanism))
    code = int(answer.error_code)
    if code == Code.UNSUPPORTED_SASL_MECHANISM:
        offered = ", ".join(map(str, answer.mechanisms)) or "none"
        raise _refused(connection, f"the broker offers no {mechanism}; `sasl.mechanism` may be: {offered}")
    if code == Code.ILLEGAL_SASL_STATE:
        raise _refused(connection, "this listener wants no SASL: set `security.protocol` to plaintext or ssl")
    if code:
        raise _refused(connection, f"the broker refuses the SASL handshake with error {code}")


async def _say(connection: Connection, mechanism: Mechanism, message: bytes) -> Any:
    spoken = request_schema("sasl_authenticate", connection.version(api_key("sasl_authenticate"), 0, 2))
    answer = await _ask(connection, spoken, spoken.new("SaslAuthenticateRequest", auth_bytes=message))
    if int(answer.error_code):
        said = answer.error_message or f"error {int(answer.error_code)}"
        details = f" ({mechanism.refusal})" if isinstance(mechanism, OAuthBearer) and mechanism.refusal else ""
        raise _refused(connection, f"{mechanism.name}: {said}{details}; {_advice(mechanism)}")
    return answer


async def _ask(connection: Connection, spoken: RequestSchema, request: Any) -> Any:
    frame = await connection.ask_frame(
        lambda correlation_id: spoken.encode(request, correlation_id, connection.client_id), is_ahead=True
    )
    return connection.understood(spoken, frame)


def _advice(mechanism: Mechanism) -> str:
    if isinstance(mechanism, OAuthBearer):
        return "does the broker accept tokens of this issuer?"
    return "are `sasl.username` and `sasl.password` right, and does the broker know this user for this mechanism?"


def _refused(connection: Connection, why: str) -> KafkaException:
    return KafkaException(KafkaError(KafkaError._AUTHENTICATION, f"{connection.endpoint}: {why}"))
