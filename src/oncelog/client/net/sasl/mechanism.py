"""A SASL mechanism, as the exchange sees it: a first message, then an answer to each challenge. No I/O."""

from typing import Protocol

from oncelog.security.scram_client import AuthenticationRefused


class Mechanism(Protocol):
    name: str

    def first(self) -> bytes: ...

    def answer(self, challenge: bytes) -> bytes | None:
        """The next message; None when nothing more is to be said. Raises `AuthenticationRefused`."""


class Plain:
    """RFC 4616: name and password as they are, so TLS should be around them."""

    name = "PLAIN"

    def __init__(self, username: str, password: str) -> None:
        self._message = b"\0".join((b"", username.encode(), password.encode()))

    def first(self) -> bytes:
        return self._message

    def answer(self, challenge: bytes) -> bytes | None:
        return None


class OAuthBearer:
    """RFC 7628: a token. A broker that refuses it says why in JSON and wants one more byte before it says no."""

    name = "OAUTHBEARER"

    def __init__(self, token: str, extensions: dict[str, str]) -> None:
        pairs = [("auth", f"Bearer {token}"), *extensions.items()]
        for name, value in pairs:
            if not name.isalpha() or "\x01" in value:
                raise AuthenticationRefused(f"an extension may be letters only, and its value without \\x01: {name!r}")
        self._message = ("n,,\x01" + "".join(f"{name}={value}\x01" for name, value in pairs) + "\x01").encode()
        self.refusal = ""

    def first(self) -> bytes:
        return self._message

    def answer(self, challenge: bytes) -> bytes | None:
        if not challenge:
            return None
        self.refusal = challenge.decode(errors="replace")
        return b"\x01"
