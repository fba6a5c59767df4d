"""SCRAM (RFC 5802, RFC 7677) without channel binding, as Kafka speaks it. Pure: the nonce is passed in.

Both sides prove that they know the password without sending it: the client by its proof, the server by its signature,
which is checked. A server that wants fewer rounds than the RFC allows makes a stolen exchange cheap to guess, and one
that wants very many holds this client up; both are refused.
"""

import hashlib
import hmac
from base64 import b64decode, b64encode
from binascii import Error as BadBase64

from oncelog.client.net.sasl.mechanism import AuthenticationRefused

LEAST_ITERATIONS = 4096
MOST_ITERATIONS = 2**17  # a tenth of a second
HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
_GS2_HEADER = b"n,,"


class Scram:
    def __init__(self, name: str, username: str, password: str, nonce: str) -> None:
        self.name = name
        self._hash = HASHES[name]
        self._password = password.encode()
        self._nonce = nonce
        escaped = username.replace("=", "=3D").replace(",", "=2C")
        self._first_bare = f"n={escaped},r={nonce}".encode()
        self._server_signature: bytes | None = None
        self._is_over = False

    def first(self) -> bytes:
        return _GS2_HEADER + self._first_bare

    def answer(self, challenge: bytes) -> bytes | None:
        if self._server_signature is None:
            return self._final(challenge)
        self._check(challenge)
        return None

    @property
    def is_proven(self) -> bool:
        """Whether the server has shown that it knows the password, too."""
        return self._is_over

    def _final(self, server_first: bytes) -> bytes:
        said = _attributes(server_first)
        nonce, salt, iterations = said.get("r", ""), _decoded(said.get("s", "")), _iterations(said.get("i", ""))
        if not nonce.startswith(self._nonce) or len(nonce) == len(self._nonce):
            raise AuthenticationRefused("the broker's nonce does not continue this client's")
        if not salt:
            raise AuthenticationRefused("the broker sent no salt")
        without_proof = b"c=" + b64encode(_GS2_HEADER) + b",r=" + nonce.encode()
        message = b",".join((self._first_bare, server_first, without_proof))
        salted = hashlib.pbkdf2_hmac(self._hash, self._password, salt, iterations)
        client_key = self._hmac(salted, b"Client Key")
        stored_key = hashlib.new(self._hash, client_key).digest()
        signature = self._hmac(stored_key, message)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        self._server_signature = self._hmac(self._hmac(salted, b"Server Key"), message)
        return without_proof + b",p=" + b64encode(proof)

    def _check(self, server_final: bytes) -> None:
        said = _attributes(server_final)
        if "e" in said:
            raise AuthenticationRefused(f"the broker says {said['e']}")
        assert self._server_signature is not None
        if not hmac.compare_digest(_decoded(said.get("v", "")), self._server_signature):
            raise AuthenticationRefused("the broker does not know the password either: it may be another one's server")
        self._is_over = True

    def _hmac(self, key: bytes, message: bytes) -> bytes:
        return hmac.new(key, message, self._hash).digest()


def _attributes(message: bytes) -> dict[str, str]:
    try:
        parts = message.decode().split(",")
    except UnicodeDecodeError:
        raise AuthenticationRefused("the broker's SCRAM message is no text") from None
    found: dict[str, str] = {}
    for part in parts:
        name, sign, value = part.partition("=")
        if len(name) != 1 or not sign or name in found:
            raise AuthenticationRefused(f"the broker's SCRAM message cannot be read: {message[:80]!r}")
        found[name] = value
    if "m" in found:
        raise AuthenticationRefused("the broker wants an extension of SCRAM that is not known here")
    return found


def _decoded(text: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except (BadBase64, ValueError):
        raise AuthenticationRefused("the broker's SCRAM message has bad base64 in it") from None


def _iterations(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise AuthenticationRefused(f"the broker wants {text[:20]!r} SCRAM iterations")
    count = int(text)
    if not LEAST_ITERATIONS <= count <= MOST_ITERATIONS:
        raise AuthenticationRefused(
            f"the broker wants {count} SCRAM iterations; {LEAST_ITERATIONS} to {MOST_ITERATIONS} are done here"
        )
    return count
