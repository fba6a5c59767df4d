"""SCRAM (RFC 5802, RFC 7677) without channel binding, as Kafka speaks it: what both sides compute, and the server.

The server keeps no password, only what proves that somebody else knows it. An unknown user gets a challenge, too, by
credentials that were made up, and fails where a wrong password fails: with the same steps, after the same work. The
client's side is in `scram_client.py`.
"""

import hashlib
import hmac
import re
from base64 import b64decode, b64encode
from binascii import Error as BadBase64
from collections.abc import Callable
from dataclasses import dataclass, field

HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
LEAST_ITERATIONS = 4096
MOST_STORED_ITERATIONS = 16_384  # Kafka's bound for what is stored; a client may bear with more

_FIRST = re.compile(
    r"(?P<gs2>(?:n|y),(?:a=(?P<authorization>[^,]+))?,)"
    r"(?P<bare>n=(?P<name>[^,]+),r=(?P<nonce>[\x21-\x2b\x2d-\x7e]+)(?P<extensions>(?:,[A-Za-z]+=[^,]*)*))"
)
_FINAL = re.compile(
    r"(?P<unproven>c=(?P<binding>[A-Za-z0-9+/=]+),r=(?P<nonce>[\x21-\x2b\x2d-\x7e]+)(?:,[A-Za-z]+=[^,]*)*)"
    r",p=(?P<proof>[A-Za-z0-9+/=]+)"
)
_BY_TOKEN = ",tokenauth=true"  # Kafka's delegation tokens: the name is that of a token, not of a user


class Refused(Exception):
    """It is no proof. What the client may read of why is `told`; where that is nothing, it reads what all read."""

    def __init__(self, why: str, told: str | None = None) -> None:
        super().__init__(why)
        self.told = told


@dataclass(frozen=True, slots=True, kw_only=True)
class Credential:
    """The credential of one user, for one mechanism."""

    salt: bytes
    iterations: int
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    credential: Credential
    is_made_up: bool = False  # nobody has this name


Find = Callable[[str], Found]


# What both sides compute


def salted_password(mechanism: str, password: str | bytes, salt: bytes, iterations: int) -> bytes:
    """Milliseconds of work, and on purpose."""
    raw = password.encode() if isinstance(password, str) else password
    return hashlib.pbkdf2_hmac(HASHES[mechanism], raw, salt, iterations)


def signed(mechanism: str, key: bytes, message: bytes) -> bytes:
    return hmac.digest(key, message, HASHES[mechanism])


def hashed(mechanism: str, key: bytes) -> bytes:
    return hashlib.new(HASHES[mechanism], key).digest()


def client_key(mechanism: str, salted: bytes) -> bytes:
    return signed(mechanism, salted, b"Client Key")


def server_key(mechanism: str, salted: bytes) -> bytes:
    return signed(mechanism, salted, b"Server Key")


def exclusive_or(one: bytes, other: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(one, other, strict=True))


def escaped(name: str) -> str:
    return name.replace("=", "=3D").replace(",", "=2C")


def hash_bytes(mechanism: str) -> int:
    return hashlib.new(HASHES[mechanism]).digest_size


# What the server keeps


def credential_of(mechanism: str, salted: bytes, salt: bytes, iterations: int) -> Credential:
    return Credential(
        salt=salt,
        iterations=iterations,
        stored_key=hashed(mechanism, client_key(mechanism, salted)),
        server_key=server_key(mechanism, salted),
    )


def is_password(mechanism: str, password: str, found: Found) -> bool:
    """Whether the password itself is that of the user. As slow as `salted_password`, whether there is such a user."""
    stored = found.credential
    salted = salted_password(mechanism, password, stored.salt, stored.iterations)
    proven = credential_of(mechanism, salted, stored.salt, stored.iterations)
    return hmac.compare_digest(proven.stored_key, stored.stored_key) and not found.is_made_up


class Exchange:
    """The server's side of one proof: two messages, each answered."""

    def __init__(self, mechanism: str, nonce: str, find: Find) -> None:
        self._mechanism = mechanism
        self._nonce = nonce
        self._find = find
        self._found: Found | None = None
        self._first: re.Match[str] | None = None
        self._challenge = ""
        self.name = ""
        self.is_over = False

    def evaluate(self, message: bytes) -> bytes:
        """The answer to a message of the client. Raises Refused."""
        if self.is_over:
            raise Refused("the exchange is over")
        try:
            text = message.decode()
        except UnicodeDecodeError:
            raise Refused("a message that is no text") from None
        return (self._challenged(text) if self._first is None else self._answered(text)).encode()

    def _challenged(self, text: str) -> str:
        first = _FIRST.fullmatch(text)
        if first is None:
            raise Refused("a malformed first message")
        self.name = _unescaped(first["name"])
        if first["authorization"] is not None and _unescaped(first["authorization"]) != self.name:
            raise Refused("another authorization id", OTHER_AUTHORIZATION)
        self._first = first
        found = self._find(self.name)
        is_token = _BY_TOKEN in first["extensions"]
        self._found = Found(credential=found.credential, is_made_up=found.is_made_up or is_token)
        salt, iterations = b64encode(found.credential.salt).decode(), found.credential.iterations
        self._nonce = first["nonce"] + self._nonce
        self._challenge = f"r={self._nonce},s={salt},i={iterations}"
        return self._challenge

    def _answered(self, text: str) -> str:
        final, first, found = _FINAL.fullmatch(text), self._first, self._found
        assert first is not None and found is not None
        if final is None:
            raise Refused("a malformed final message")
        if final["nonce"] != self._nonce:
            raise Refused("another nonce in the final message")
        if decoded(final["binding"]) != first["gs2"].encode():
            raise Refused("another channel binding in the final message")
        message = ",".join((first["bare"], self._challenge, final["unproven"])).encode()
        self._check(found, message, decoded(final["proof"]))
        self.is_over = True
        return "v=" + b64encode(signed(self._mechanism, found.credential.server_key, message)).decode()

    def _check(self, found: Found, message: bytes, proof: bytes) -> None:
        stored_key = found.credential.stored_key
        signature = signed(self._mechanism, stored_key, message)
        if len(proof) != len(signature):
            raise Refused("a proof of another length")
        shown = hashed(self._mechanism, exclusive_or(proof, signature))
        if not hmac.compare_digest(shown, stored_key) or found.is_made_up:
            raise Refused("nobody has this name" if found.is_made_up else "a wrong password")


OTHER_AUTHORIZATION = "Authentication failed: Client requested an authorization id that is different from username"


def decoded(text: str) -> bytes:
    """Raises Refused for what is no base64."""
    try:
        return b64decode(text, validate=True)
    except (BadBase64, ValueError):
        raise Refused("bad base64") from None


def _unescaped(text: str) -> str:
    name = text.replace("=2C", ",").replace("=3D", "=")
    if escaped(name) != text:
        raise Refused("a name that is not escaped as it should be")
    return name
