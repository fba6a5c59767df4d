"""Tokens that somebody else has signed (JWTs), and the keys by which that is checked: a JWKS, read now and then.

PyJWT checks signature, times, issuer and audience; it is asked in a thread. A token of a key that is not known makes
the keys be read again, once a minute at the most. One that was good is remembered by its hash until it ends, or its key
is no longer among those that were read last: who shows it again, as clients do on every connection, does not wait
behind those who show bad ones.
"""

import asyncio
import json
import logging
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from http.client import HTTPException
from pathlib import Path
from typing import Any, NamedTuple
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener, url2pathname

from oncelog.clock import Clock
from oncelog.security.oauthbearer import ALGORITHMS, Bearer, Wanted, bearer_of
from oncelog.security.scram import Refused
from oncelog.server.aside import Aside
from oncelog.server.endpoints import endpoints
from oncelog.server.settings import Settings
from oncelog.settings import SettingsError

logger = logging.getLogger(__name__)

MECHANISM = "OAUTHBEARER"
MOST_KEYS = 100
MOST_BYTES = 2**20
MOST_HEAD_BYTES = 8192  # of a token: it is read before the signature is looked at
MOST_REMEMBERED = 1_000
READ_WITHIN_MS, SILENCE_S = 15_000, 5
UNKNOWN_KEY_MS = 60_000
FAILED_MS = 10_000  # after which it is tried again where reading them failed
EXTRA = "pip install 'oncelog[oauth]'"

_ALGORITHMS_OF = {
    "RSA": [each for each in ALGORITHMS if each[:2] in ("RS", "PS")],
    "EC": [each for each in ALGORITHMS if each.startswith("ES")],
    "OKP": ["EdDSA"],
}


class Unreadable(Exception):
    """The keys could not be read."""


@dataclass(frozen=True, slots=True)
class Key:
    public: Any
    algorithms: list[str]


Keys = Mapping[str, Key]  # by their ids; one without an id has none


class Good(NamedTuple):
    bearer: Bearer
    key_id: str | None
    key: Key


class SignedTokens:
    def __init__(self, settings: Settings, clock: Clock, threads: Aside) -> None:
        assert settings.sasl_oauthbearer_jwks_endpoint_url is not None
        self._settings = settings
        self._url = settings.sasl_oauthbearer_jwks_endpoint_url
        self._wanted = Wanted(
            name_claim=settings.sasl_oauthbearer_sub_claim_name,
            scope_claim=settings.sasl_oauthbearer_scope_claim_name,
        )
        self._clock = clock
        self._threads = threads
        self._keys: Keys = {}
        self._next_ms: int | None = None  # when they are read again
        self._unknown_ms: int | None = None  # when they were last read for a key that was not known
        self._reading: asyncio.Task[None] | None = None
        self._good: OrderedDict[bytes, Good] = OrderedDict()  # by their hashes

    async def check(self, token: str) -> Bearer:
        """Raises Refused."""
        digest = sha256(token.encode()).digest()
        remembered = self._remembered(digest)
        if remembered is not None:
            return remembered
        key_id = await self._threads.run(_key_id, token)
        key = await self._key(key_id)
        if key is None:
            raise Refused("a token of a key that is not known")
        claims = await self._threads.run(_claims, token, key, self._settings)
        bearer = bearer_of(claims, self._wanted)
        self._good[digest] = Good(bearer, key_id, key)
        if len(self._good) > MOST_REMEMBERED:
            self._good.popitem(last=False)
        return bearer

    def _remembered(self, digest: bytes) -> Bearer | None:
        """The bearer of a token that need not be looked at: neither is it over, nor has its key been taken away."""
        found = self._good.get(digest)
        if found is None:
            return None
        now = self._clock.now()
        ends_ms = (found.bearer.expires_s + self._settings.sasl_oauthbearer_clock_skew_seconds) * 1000
        if self._found(found.key_id) is not found.key or now.wall_ms >= ends_ms:
            del self._good[digest]
            return None
        if self._is_due(now.monotonic_ms):
            self._begin_reading()
        self._good.move_to_end(digest)
        return found.bearer

    def remembers(self, token: str) -> bool:
        """Whether `check` would know it at once."""
        return self._remembered(sha256(token.encode()).digest()) is not None

    async def until_read(self) -> None:
        """Wait until the keys are there that are being read."""
        if self._reading is not None:
            await self._reading

    async def _key(self, key_id: str | None) -> Key | None:
        now_ms = self._clock.now().monotonic_ms
        if self._is_due(now_ms):
            if self._keys:
                self._begin_reading()  # and go by those that are known, meanwhile
            else:
                await self._read()
        found = self._found(key_id)
        may_look_again = self._unknown_ms is None or now_ms - self._unknown_ms >= UNKNOWN_KEY_MS
        if found is None and may_look_again:
            self._unknown_ms = now_ms
            await self._read()
            found = self._found(key_id)
        return found

    def _is_due(self, now_ms: int) -> bool:
        return self._next_ms is None or self._next_ms <= now_ms

    def _found(self, key_id: str | None) -> Key | None:
        if key_id is not None:
            return self._keys.get(key_id)
        return next(iter(self._keys.values())) if len(self._keys) == 1 else None

    async def _read(self) -> None:
        await asyncio.shield(self._begin_reading())

    def _begin_reading(self) -> asyncio.Task[None]:
        if self._reading is None:
            self._reading = asyncio.get_running_loop().create_task(self._read_once())
        return self._reading

    async def _read_once(self) -> None:
        pause_ms = self._settings.sasl_oauthbearer_jwks_endpoint_refresh_ms
        try:
            found = await self._threads.run(read_keys, self._url, self._clock)
            self._keys = {key_id: known_as(key, self._keys.get(key_id)) for key_id, key in found.items()}
        except Exception as error:
            pause_ms = FAILED_MS
            logger.warning("the keys of tokens could not be read from %s: %s", self._url, error)
        finally:
            self._next_ms = self._clock.now().monotonic_ms + pause_ms
            self._reading = None


class TokensOfListeners:
    """Each has keys of its own, and what was good by them."""

    def __init__(self, settings: Settings, clock: Clock, threads: Aside) -> None:
        self._settings = settings
        self._clock = clock
        self._threads = threads
        self._found: dict[str, SignedTokens] = {}

    def of(self, listener: str) -> SignedTokens:
        if listener not in self._found:
            settings = self._settings.of_listener(listener)
            self._found[listener] = SignedTokens(settings, self._clock, self._threads)
        return self._found[listener]

    def first(self) -> SignedTokens | None:
        """The tokens of the first listener that asks for them, where one does."""
        guarded = (each.name for each in endpoints(self._settings) if each.is_sasl)
        names = (each for each in guarded if MECHANISM in self._settings.of_listener(each).sasl_enabled_mechanisms)
        return next(map(self.of, names), None)


def known_as(read: Key, before: Key | None) -> Key:
    """The same one where it is equal: what was good by it goes on to be."""
    return before if before == read else read


def check_possible(settings: Settings) -> None:
    """Raises SettingsError where tokens could never be checked."""
    url = settings.sasl_oauthbearer_jwks_endpoint_url
    if url is None:
        raise SettingsError(
            "sasl.enabled.mechanisms has OAUTHBEARER, but sasl.oauthbearer.jwks.endpoint.url does not say where the "
            "keys are"
        )
    if "@" in urlsplit(url).netloc:
        raise SettingsError(
            "sasl.oauthbearer.jwks.endpoint.url: leave name and password out of the address; nothing here sends them"
        )
    if urlsplit(url).scheme not in ("https", "file"):
        raise SettingsError(
            f"sasl.oauthbearer.jwks.endpoint.url={url}: expected https://... or file:///...: anyone who can "
            "change the keys on their way can log in as anybody"
        )
    try:
        import jwt  # noqa: F401
        from cryptography.hazmat.primitives import hashes  # noqa: F401
    except ImportError:
        raise SettingsError(f"OAUTHBEARER needs PyJWT and cryptography: {EXTRA}") from None


def read_keys(url: str, clock: Clock) -> Keys:
    """Waits for a disk or another machine. Raises Unreadable."""
    parts = urlsplit(url)
    try:
        text = _of_file(url2pathname(parts.path)) if parts.scheme == "file" else _of_web(url, clock)
        return keys_in(json.loads(text))
    except HTTPError as error:
        with error:
            raise Unreadable(f"it answers {error.code}") from None
    except (OSError, ValueError, RecursionError, HTTPException) as error:
        raise Unreadable(str(error) or type(error).__name__) from None


def keys_in(document: Any) -> Keys:
    """The keys of a JWKS. Those that are for something else are passed over. Raises Unreadable."""
    from jwt import PyJWK
    from jwt.exceptions import PyJWTError

    listed = document.get("keys") if isinstance(document, dict) else None
    if not isinstance(listed, list) or len(listed) > MOST_KEYS:
        raise Unreadable(f"expected a JWKS of at most {MOST_KEYS} keys")
    found: dict[str, Key] = {}
    for each in listed:
        if not isinstance(each, dict) or each.get("use", "sig") != "sig":
            continue
        algorithms = _ALGORITHMS_OF.get(str(each.get("kty")), [])
        if "alg" in each:
            algorithms = [name for name in algorithms if name == each["alg"]]
        if not algorithms:
            continue
        try:
            public = PyJWK.from_dict(each).key
        except (PyJWTError, ValueError, TypeError, KeyError) as error:
            logger.warning("a key of the JWKS is passed over: %s", error)
            continue
        found[str(each.get("kid", ""))] = Key(public, algorithms)
    if not found:
        raise Unreadable("no key in it can be used")
    return found


def _key_id(token: str) -> str | None:
    from jwt import get_unverified_header
    from jwt.exceptions import PyJWTError

    head = token.partition(".")[0]
    if len(head) > MOST_HEAD_BYTES:
        raise Refused("a token with too large a head")
    try:
        key_id = get_unverified_header(f"{head}..").get("kid")  # what else it has is read when it is looked at
    except (PyJWTError, ValueError, RecursionError):
        raise Refused("no token of three parts") from None
    return key_id if isinstance(key_id, str) else None


def _claims(token: str, key: Key, settings: Settings) -> dict[str, Any]:
    from jwt import decode
    from jwt.exceptions import InvalidAudienceError, PyJWTError

    audiences = settings.sasl_oauthbearer_expected_audience
    try:
        claims: dict[str, Any] = decode(
            token,
            key.public,
            algorithms=key.algorithms,
            audience=None if audiences is None else list(audiences),
            issuer=settings.sasl_oauthbearer_expected_issuer,
            leeway=settings.sasl_oauthbearer_clock_skew_seconds,
            options={"require": ["exp", "iat"]},
        )
    except (PyJWTError, ValueError, TypeError, OverflowError, RecursionError) as error:
        why = type(error).__name__
        if isinstance(error, InvalidAudienceError):
            why = "sasl.oauthbearer.expected.audience " + (
                "is not set, and it has aud" if not audiences else "has not its aud"
            )
        raise Refused(f"a token that does not count: {why}") from None
    return claims


def _of_file(path: str) -> bytes:
    with Path(path).open("rb") as file:
        return _bounded(file.read(MOST_BYTES + 1))


class _ToHttpsOnly(HTTPRedirectHandler):
    def redirect_request(self, req: Request, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Request | None:
        if urlsplit(newurl).scheme != "https":
            raise Unreadable("it points to an address that is not https")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _of_web(url: str, clock: Clock) -> bytes:
    until_ms = clock.now().monotonic_ms + READ_WITHIN_MS
    request = Request(url, headers={"Accept": "application/json"})
    with build_opener(_ToHttpsOnly).open(request, timeout=SILENCE_S) as answer:
        read = b""
        while more := answer.read1(65_536):
            read = _bounded(read + more)
            if clock.now().monotonic_ms > until_ms:
                raise Unreadable(f"it was not there within {READ_WITHIN_MS // 1000} s")
    return read


def _bounded(text: bytes) -> bytes:
    if len(text) > MOST_BYTES:
        raise Unreadable(f"it has more than {MOST_BYTES:,} bytes")
    return text
