"""The demands of a listener on its clients: TLS or none, a certificate, and the mechanisms to log in by.

It is asked without being trusted: no password is sent, and its certificate is looked at and not relied on.
"""

import asyncio
import socket
import ssl
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from oncelog.client.net.connection import Endpoint
from oncelog.clock import DAY_MS
from oncelog.doctor.finding import Finding, note, ok
from oncelog.error_codes import ErrorCodes as Code
from oncelog.security.certificates import BadCertificate, Certificate, read_certificate
from oncelog.wire.frames import MalformedFrame
from oncelog.wire.requests import request_schema

SOON_MS: Final = 14 * DAY_MS
MOST_ANSWER_BYTES: Final = 64 * 1024
# What is asked for. The answer has all that are enabled, whether this is one of them or not; where it is, the server
# has nothing to complain of in its log.
LIKELY_MECHANISM: Final = "SCRAM-SHA-512"
UNSUPPORTED_MECHANISM: Final = 33
SASL_HANDSHAKE_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class Wants:
    tls: str | None  # its version; None without
    certificate: Certificate | None
    wants_certificate: bool
    mechanisms: tuple[str, ...]

    @property
    def protocol(self) -> str:
        return ("sasl_" if self.mechanisms else "") + ("ssl" if self.tls else "plaintext")

    def fit(self, protocol: str) -> bool:
        """Whether a client of that protocol is what it wants. One that asks for a certificate first tells no more."""
        if self.wants_certificate:
            return protocol.endswith("ssl")
        return protocol == self.protocol

    @property
    def remedy(self) -> str:
        """The options that a client needs."""
        options, file = f"-X security.protocol={self.protocol}", "a file with these by -F"
        if self.tls:
            options += " -X ssl.ca.location=.../authority.pem"
        if self.wants_certificate:
            options += " -X ssl.certificate.location=... -X ssl.key.location=..."
        if self.mechanisms:
            options += f" -X sasl.mechanism={self.mechanisms[-1]} -X sasl.username=... -X 'sasl.password=${{env:...}}'"
            if self.tls:
                file = "-F DATA/secure/client.properties, where --secure made it"
        return f"{options}, or {file}"


async def wants_of(endpoints: Iterable[Endpoint], timeout_s: float, protocol: str) -> dict[Endpoint, Wants]:
    """The demands of the endpoints that answer as a Kafka does. `protocol`: the client's security.protocol."""
    found: dict[Endpoint, Wants] = {}
    for endpoint in endpoints:
        wants = await asyncio.to_thread(listener_wants, endpoint.host, endpoint.port, timeout_s, protocol)
        if wants is not None:
            found[endpoint] = wants
    return found


def findings_of(address: str, wants: Wants, protocol: str, now_ms: int) -> Iterator[Finding]:
    name, facts = "listener", {"address": address, "security_protocol": wants.protocol, "sasl": list(wants.mechanisms)}
    if not wants.fit(protocol):
        # What to do about it stands beside the broker that does not let this client in.
        yield note(name, f"{address} {_in_words(wants)}, and security.protocol is {protocol}", "", **facts)
    elif wants.protocol != "plaintext":
        yield ok(name, f"{address} {_in_words(wants)}", **facts)
    certificate = wants.certificate
    if certificate is not None and certificate.ends_ms - now_ms < SOON_MS:
        days = (certificate.ends_ms - now_ms) // DAY_MS
        when = f"ends in {days} days" if days >= 0 else f"is over since {-days} days"
        yield note("certificate", f"that of {address} ({certificate.subject}) {when}", "renew it", address=address)


def _in_words(wants: Wants) -> str:
    parts = []
    if wants.tls:
        of = f", certificate of {wants.certificate.subject}" if wants.certificate else ""
        signed = ""
        if wants.certificate is not None:
            own = wants.certificate.is_self_signed
            signed = ", which nobody else has signed" if own else f", signed by {wants.certificate.issuer}"
        parts.append(f"speaks {wants.tls}{of}{signed}")
        if wants.wants_certificate:
            parts.append("asks for a client's certificate")
    if wants.mechanisms:
        parts.append(f"asks who one is, by {' or '.join(wants.mechanisms)}")
    return " and ".join(parts) or "asks for neither TLS nor a name"


def listener_wants(host: str, port: int, timeout_s: float, protocol: str = "ssl") -> Wants | None:
    """None where nobody answers as a Kafka does. It waits for the network. What the client would speak comes first: a
    listener that wants just that has nothing to complain of in its log."""
    for is_encrypted in (True, False) if protocol.endswith("ssl") else (False, True):
        try:
            return _asked(host, port, timeout_s, is_encrypted=is_encrypted)
        except (OSError, EOFError, MalformedFrame):
            continue
    return None


def _asked(host: str, port: int, timeout_s: float, *, is_encrypted: bool) -> Wants:
    with socket.create_connection((host, port), timeout_s) as plain:
        if not is_encrypted:
            return Wants(None, None, wants_certificate=False, mechanisms=_mechanisms(plain))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        with context.wrap_socket(plain, server_hostname=host) as encrypted:
            certificate = _read(encrypted.getpeercert(binary_form=True))
            wants_certificate = False
            mechanisms: tuple[str, ...] = ()
            try:
                mechanisms = _mechanisms(encrypted)
            except ssl.SSLError as error:
                wants_certificate = "CERTIFICATE" in (error.reason or "")
            return Wants(encrypted.version(), certificate, wants_certificate, mechanisms)


def _read(der: bytes | None) -> Certificate | None:
    try:
        return None if der is None else read_certificate(der)
    except BadCertificate:
        return None


def _mechanisms(sock: socket.socket) -> tuple[str, ...]:
    """The mechanisms that are enabled; none where the listener asks nobody who they are."""
    schema = request_schema("sasl_handshake", SASL_HANDSHAKE_VERSION)
    request = schema.new("SaslHandshakeRequest", mechanism=LIKELY_MECHANISM)
    sock.sendall(schema.encode(request, correlation_id=0, client_id="oncelog-doctor"))
    answer = schema.read(memoryview(_frame(sock)))
    return tuple(answer.mechanisms) if int(answer.error_code) in (Code.NO_ERROR, UNSUPPORTED_MECHANISM) else ()


def _frame(sock: socket.socket) -> bytes:
    size = struct.unpack(">i", _exactly(sock, 4))[0]
    if not 4 <= size <= MOST_ANSWER_BYTES:
        raise MalformedFrame(f"a frame of {size} bytes")
    return _exactly(sock, size)


def _exactly(sock: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = sock.recv(size - len(data))
        if not piece:
            raise EOFError
        data += piece
    return data
