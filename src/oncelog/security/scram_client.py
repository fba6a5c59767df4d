"""The client's side of SCRAM. Pure: the nonce is passed in. What both sides compute is in `scram.py`.

Both sides prove that they know the password without sending it: the client by its proof, the server by its signature,
which is checked. A server that wants fewer rounds than the RFC allows makes a stolen exchange cheap to guess, and one
that wants very many holds this client up; both are refused.
"""

import hmac
from base64 import b64encode

from oncelog.security import scram
from oncelog.security.scram import LEAST_ITERATIONS

MOST_ITERATIONS = 2**17  # a tenth of a second
_GS2_HEADER = b"n,,"


class AuthenticationRefused(Exception):
    """The client itself gives up: what the broker sent does not prove that it may be trusted."""


class Scram:
    def __init__(self, name: str, username: str, password: str, nonce: str) -> None:
        self.name = name
        self._password = password
        self._nonce = nonce
        self._first_bare = f"n={scram.escaped(username)},r={nonce}".encode()
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
        salted = scram.salted_password(self.name, self._password, salt, iterations)
        client_key = scram.client_key(self.name, salted)
        signature = scram.signed(self.name, scram.hashed(self.name, client_key), message)
        proof = scram.exclusive_or(client_key, signature)
        self._server_signature = scram.signed(self.name, scram.server_key(self.name, salted), message)
        return without_proof + b",p=" + b64encode(proof)

    def _check(self, server_final: bytes) -> None:
        said = _attributes(server_final)
        if "e" in said:
            raise AuthenticationRefused(f"the broker says {said['e']}")
        assert self._server_signature is not None
        if not hmac.compare_digest(_decoded(said.get("v", "")), self._server_signature):
            raise AuthenticationRefused("the broker does not know the password either: it may be another one's server")
        self._is_over = True


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
        return scram.decoded(text)
    except scram.Refused:
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
