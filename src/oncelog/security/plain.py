"""PLAIN (RFC 4616): name and password as they are, so only where TLS is around them."""

from dataclasses import dataclass, field

from oncelog.security.scram import OTHER_AUTHORIZATION, Refused


@dataclass(frozen=True, slots=True)
class NameAndPassword:
    name: str
    password: str = field(repr=False)


def read(message: bytes) -> NameAndPassword:
    """Raises Refused, in Kafka's words where it has some."""
    try:
        parts = message.decode().split("\0")
    except UnicodeDecodeError:
        raise Refused("a message that is no text") from None
    if len(parts) != 3:
        raise Refused("a message of other than three parts")
    authorization, name, password = parts
    if not name:
        raise Refused("no name", "Authentication failed: username not specified")
    if not password:
        raise Refused("no password", "Authentication failed: password not specified")
    if authorization not in ("", name):
        raise Refused("another authorization id", OTHER_AUTHORIZATION)
    return NameAndPassword(name, password)


WRONG = "Authentication failed: Invalid username or password"
