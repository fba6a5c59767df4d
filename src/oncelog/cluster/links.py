"""The links of a broker to the others: their listener, TLS or not, and the proof that it is a broker."""

import asyncio
import secrets
from collections.abc import Callable
from typing import Any

from oncelog.cluster.peer import Peer, PeerGone
from oncelog.security import brokers
from oncelog.security.scram_client import AuthenticationRefused, Scram
from oncelog.server.endpoints import Endpoint, endpoints
from oncelog.server.ports import Member
from oncelog.server.settings import Settings
from oncelog.server.tls_context import make_peer_context
from oncelog.settings import SettingsError
from oncelog.wire.requests import RequestSchema, request_schema

HANDSHAKE_VERSION, PROOF_VERSION = 1, 1
NONCE_BYTES = 24


class Links:
    def __init__(self, settings: Settings, secret: Callable[[], str]) -> None:
        """Raises SettingsError. What `secret` answers need not be known yet."""
        self._endpoint = link_of(settings)
        self._settings = settings.of_listener(self._endpoint.name)
        self._me = settings.node_id
        self._secret = secret
        if self._endpoint.is_encrypted:
            self._check_trust()

    def _check_trust(self) -> None:
        settings = self._settings
        if settings.ssl_truststore_location is None and settings.ssl_truststore_certificates is None:
            raise SettingsError(
                f"brokers reach each other by the listener {self._endpoint.name}, which speaks TLS: say which "
                "authorities their certificates come from, by ssl.truststore.location or ssl.truststore.certificates"
            )
        make_peer_context(self._endpoint.name, settings)

    def address(self, member: Member) -> tuple[str, int]:
        """The address at which it is reached; it may not know the listener yet, where that is new."""
        return member.endpoints.get(self._endpoint.name) or next(iter(member.endpoints.values()))

    async def connect(self, address: tuple[str, int], timeout_s: float) -> Peer:
        """Raises OSError, and TimeoutError, which is one. Certificates are read anew: they may have been renewed."""
        encrypted = make_peer_context(self._endpoint.name, self._settings) if self._endpoint.is_encrypted else None
        async with asyncio.timeout(timeout_s):
            peer = await Peer.connect(address, timeout_s, encrypted=encrypted)
            if self._endpoint.is_sasl:
                try:
                    await self._prove(peer, timeout_s)
                except BaseException:
                    peer.close()
                    raise
        return peer

    async def _prove(self, peer: Peer, timeout_s: float) -> None:
        scram = Scram(brokers.SCRAM, str(self._me), self._secret(), secrets.token_urlsafe(NONCE_BYTES))
        handshake = request_schema("sasl_handshake", HANDSHAKE_VERSION)
        proof = request_schema("sasl_authenticate", PROOF_VERSION)
        asked = handshake.new("SaslHandshakeRequest", mechanism=brokers.MECHANISM)
        _check(await self._ask(peer, handshake, asked, timeout_s))
        message: bytes | None = scram.first()
        try:
            while message is not None:
                answer = await self._ask(
                    peer, proof, proof.new("SaslAuthenticateRequest", auth_bytes=message), timeout_s
                )
                _check(answer)
                message = scram.answer(bytes(answer.auth_bytes))
        except AuthenticationRefused as refused:
            raise PeerGone(f"the other side does not prove that it is a broker: {refused}") from None

    async def _ask(self, peer: Peer, spoken: RequestSchema, request: Any, timeout_s: float) -> Any:
        frame = spoken.encode(request, correlation_id=0, client_id=f"broker-{self._me}")
        return spoken.read(await peer.ask(frame, timeout_s))


def link_of(settings: Settings) -> Endpoint:
    """The listener by which brokers reach each other. Raises SettingsError."""
    found = endpoints(settings)
    wanted = settings.inter_broker_listener_name
    if wanted is None:
        return found[0]
    for each in found:
        if each.name == wanted.upper():
            return each
    raise SettingsError(
        f"inter.broker.listener.name={wanted}: listeners names none of that name, but "
        f"{', '.join(each.name for each in found)}"
    )


def _check(answer: Any) -> None:
    if int(answer.error_code):
        said = getattr(answer, "error_message", None) or f"error {int(answer.error_code)}"
        raise PeerGone(f"the other side does not take this one for a broker of its cluster: {said}")
