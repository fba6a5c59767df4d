"""Proofs of who somebody is, by mechanism: messages of a client, and what is answered to each.

What takes milliseconds is done in threads of their own (`passwords.py`), so that guessing holds up nobody but guessers.
"""

import secrets
from collections.abc import Callable
from typing import Protocol

from oncelog.security import brokers, oauthbearer, plain
from oncelog.security.oauthbearer import INVALID_TOKEN, Bearer
from oncelog.security.scram import HASHES, Exchange, Found, Refused
from oncelog.security.users import Users
from oncelog.server.passwords import Passwords

NONCE_BYTES = 24


class Proof(Protocol):
    @property
    def name(self) -> str:
        """The user that the proof is of, or is said to be of."""

    @property
    def principal(self) -> str:
        """The user whose proof is over."""

    @property
    def is_over(self) -> bool: ...

    @property
    def is_refused(self) -> bool:
        """Though the client has still something to say."""

    @property
    def expires_wall_ms(self) -> int | None: ...

    async def evaluate(self, message: bytes) -> bytes:
        """Raises Refused."""


class Tokens(Protocol):
    async def check(self, token: str) -> Bearer:
        """Raises Refused."""


class OfUser:
    """A proof of a user's."""

    name: str

    @property
    def principal(self) -> str:
        return f"User:{self.name}"


class ScramProof(OfUser):
    is_refused = False
    expires_wall_ms: int | None = None

    def __init__(self, mechanism: str, users: Users) -> None:
        nonce = secrets.token_urlsafe(NONCE_BYTES)
        self._exchange = Exchange(mechanism, nonce, lambda name: users.find(mechanism, name))

    @property
    def name(self) -> str:  # type: ignore[override]
        return self._exchange.name

    @property
    def is_over(self) -> bool:
        return self._exchange.is_over

    async def evaluate(self, message: bytes) -> bytes:
        return self._exchange.evaluate(message)


class BrokerProof(ScramProof):
    def __init__(self, secret: str) -> None:
        found = Found(credential=brokers.credential(secret))
        self._exchange = Exchange(brokers.SCRAM, secrets.token_urlsafe(NONCE_BYTES), lambda name: found)

    @property
    def principal(self) -> str:
        return f"{brokers.PRINCIPAL}{self.name}"


class PlainProof(OfUser):
    is_refused = False
    expires_wall_ms: int | None = None

    def __init__(self, passwords: Passwords) -> None:
        self._passwords = passwords
        self.name = ""
        self.is_over = False

    async def evaluate(self, message: bytes) -> bytes:
        shown = plain.read(message)
        self.name = shown.name
        is_right, found = await self._passwords.look(shown.name, shown.password)
        if not is_right:
            raise Refused("nobody has this name" if found.is_made_up else "a wrong password", plain.WRONG)
        self.is_over = True
        return b""


class TokenProof(OfUser):
    def __init__(self, tokens: Tokens) -> None:
        self._tokens = tokens
        self._why = ""
        self.name = ""
        self.is_over = False
        self.is_refused = False
        self.expires_wall_ms: int | None = None

    async def evaluate(self, message: bytes) -> bytes:
        if self.is_refused:
            raise Refused(self._why, INVALID_TOKEN)
        shown = oauthbearer.read(message)
        try:
            bearer = await self._tokens.check(shown.token)
        except Refused as refused:
            self._why, self.is_refused = str(refused), True
            return INVALID_TOKEN.encode()
        if shown.authorization not in ("", bearer.name):
            raise Refused("another authorization id", _other(shown.authorization, bearer.name))
        self.name, self.expires_wall_ms = bearer.name, int(bearer.expires_s * 1000)
        self.is_over = True
        return b""


def _other(wanted: str, name: str) -> str:
    return (
        f"Authentication failed: Client requested an authorization id ({wanted}) that is different from the token's "
        f"principal name ({name})"
    )


def new_proof(mechanism: str, users: Users, passwords: Passwords, tokens: Callable[[], Tokens]) -> Proof:
    if mechanism in HASHES:
        return ScramProof(mechanism, users)
    if mechanism == "PLAIN":
        return PlainProof(passwords)
    return TokenProof(tokens())
