"""OAUTHBEARER (RFC 7628): a signed token that names its user. What the message and its claims must be.

That the signature is good is checked before anything here looks at a claim.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from oncelog.security.scram import Refused

MOST_EXPIRES_S = 253_402_300_799  # the end of the year 9999: what is later was written in milliseconds, or is none
TRIMMED = "".join(map(chr, range(0x21)))  # around a name, as Java's `trim()`; any other space makes another name
INVALID_TOKEN = '{"status":"invalid_token"}'
# What anybody could sign with a key that everybody may read, and what nobody signed, are no signatures.
ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")

_FIRST = re.compile(r"n,(?:a=(?P<authorization>[^,\x01]+))?,\x01(?P<pairs>(?:[A-Za-z]+=[\x21-\x7e \t\r\n]*\x01)*)\x01")
_BEARER = re.compile(r"bearer +(?P<token>[-_.A-Za-z0-9=]+)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Shown:
    token: str = field(repr=False)
    authorization: str  # whom the client wants to be; empty where it does not say


def read(message: bytes) -> Shown:
    """Raises Refused. Extensions are passed over, as Kafka does with those that it was not told to understand."""
    try:
        first = _FIRST.fullmatch(message.decode())
    except UnicodeDecodeError:
        first = None
    if first is None:
        raise Refused("a malformed first message")
    pairs = [pair.partition("=") for pair in first["pairs"].split("\x01") if pair]
    said = {name: value for name, _, value in pairs}
    token = token_in(said.get("auth", ""))
    if token is None or len(said) < len(pairs):
        raise Refused("a first message without a token")
    return Shown(token, (first["authorization"] or "").replace("=2C", ",").replace("=3D", "="))


def token_in(authorization: str) -> str | None:
    """The token of `Bearer TOKEN`, as in HTTP (RFC 6750)."""
    bearer = _BEARER.fullmatch(authorization.strip())
    return None if bearer is None else bearer["token"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """The claims that a token must have."""

    name_claim: str
    scope_claim: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Bearer:
    name: str
    expires_s: float  # of the epoch
    scopes: frozenset[str]


def bearer_of(claims: Mapping[str, Any], wanted: Wanted) -> Bearer:
    """Raises Refused."""
    name, expires_s = claims.get(wanted.name_claim), claims.get("exp")
    if not isinstance(name, str) or not (name := name.strip(TRIMMED)):
        raise Refused(f"a token without a claim {wanted.name_claim} that names somebody")
    if isinstance(expires_s, bool) or not isinstance(expires_s, int | float):
        raise Refused("a token that never expires")
    if not expires_s <= MOST_EXPIRES_S:
        raise Refused("a token that expires after the year 9999: exp counts seconds")
    scopes = claims.get(wanted.scope_claim, "")
    if isinstance(scopes, str):
        scopes = scopes.split()
    if not isinstance(scopes, list) or not all(isinstance(each, str) for each in scopes):
        raise Refused(f"a token whose claim {wanted.scope_claim} is no text and no list of texts")
    return Bearer(name=name, expires_s=float(expires_s), scopes=frozenset(scopes))
