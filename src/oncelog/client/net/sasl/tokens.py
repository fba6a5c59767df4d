"""Sources of OAUTHBEARER's tokens: the application, an identity provider (OIDC), or, for tests, thin air.

A token is used until four fifths of its life are over, as in librdkafka; then the next connection, or the next proof on
an old one, gets a new one.
"""

import asyncio
import base64
import json
import ssl
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from oncelog.client.errors import KafkaError, KafkaException, invalid_argument
from oncelog.clock import Clock, SystemClock

if TYPE_CHECKING:
    from oncelog.client.properties import ClientSettings

FETCH_TIMEOUT_S = 20
MOST_ANSWER_BYTES = 1 << 20
USED_UNTIL = 0.8  # of a token's life
_SIGNATURE = "oauth_cb must return (token, expiry in seconds of the epoch[, principal[, extensions]])"


class Token(NamedTuple):
    value: str
    expires_s: float  # of the epoch
    extensions: dict[str, str]


class TokenSource:
    def __init__(self, settings: "ClientSettings", clock: Clock | None = None) -> None:
        self._settings = settings
        self._clock: Clock = clock or SystemClock()
        self._token: Token | None = None
        self._renew_s = 0.0
        self._making: asyncio.Future[Token] | None = None
        self._make = self._maker()

    def _wall_s(self) -> float:
        """Tokens expire by the wall clock."""
        return self._clock.now().wall_ms / 1000

    async def token(self) -> Token:
        if self._token is not None and self._wall_s() < self._renew_s:
            return self._token
        if self._making is None:
            self._making = asyncio.ensure_future(asyncio.to_thread(self._make))
            self._making.add_done_callback(self._made)
        return await asyncio.shield(self._making)

    def _made(self, done: "asyncio.Future[Token]") -> None:
        self._making = None
        if done.cancelled() or done.exception() is not None:
            return
        self._token = done.result()
        now_s = self._wall_s()
        self._renew_s = now_s + (self._token.expires_s - now_s) * USED_UNTIL

    def _maker(self) -> Callable[[], Token]:
        settings = self._settings
        if settings.oauth_cb is not None:
            return self._from_callback
        if settings.sasl_oauthbearer_method == "oidc":
            return self._from_provider
        if settings.enable_sasl_oauthbearer_unsecure_jwt:
            claims = unsecured_config(settings.sasl_oauthbearer_config or "")
            return lambda: unsecured_token(claims, self._wall_s())
        raise invalid_argument(
            "OAUTHBEARER needs tokens: set `oauth_cb`, or `sasl.oauthbearer.method=oidc`, "
            "or in tests `enable.sasl.oauthbearer.unsecure.jwt`"
        )

    def _from_callback(self) -> Token:
        """confluent-kafka's signature: (token, expiry) and, where wanted, principal and extensions."""
        callback = self._settings.oauth_cb
        assert callback is not None
        try:
            said = callback(self._settings.sasl_oauthbearer_config or "")
        except Exception as error:
            raise _no_token(f"oauth_cb raised {type(error).__name__}: {error}") from error
        if not isinstance(said, tuple) or not 2 <= len(said) <= 4 or not isinstance(said[0], str):
            raise _no_token(_SIGNATURE)
        try:
            token = Token(said[0], float(said[1]), dict((said[3] if len(said) == 4 else None) or {}))
        except (TypeError, ValueError):
            raise _no_token(_SIGNATURE) from None
        return self._checked(token)

    def _from_provider(self) -> Token:
        settings = self._settings
        answer = _post(settings)
        value = answer.get("access_token")
        if not isinstance(value, str):
            raise _no_token(f"{settings.sasl_oauthbearer_token_endpoint_url} answered without an access_token")
        claims = _claims(value)
        if settings.sasl_oauthbearer_sub_claim_name not in claims:
            raise _no_token(f"the token has no claim {settings.sasl_oauthbearer_sub_claim_name!r}")
        return self._checked(
            Token(value, float(claims["exp"]), extensions_of(settings.sasl_oauthbearer_extensions or ""))
        )

    def _checked(self, token: Token) -> Token:
        if token.expires_s <= self._wall_s():
            raise _no_token("the token has expired already; is the clock of this machine right?")
        return token


def unsecured_config(text: str) -> dict[str, str]:
    """librdkafka's `principal=... scope=... lifeSeconds=...`."""
    known = {
        "principalClaimName": "sub",
        "scopeClaimName": "scope",
        "lifeSeconds": "3600",
        "principal": "",
        "scope": "",
    }
    for pair in text.split():
        name, sign, value = pair.partition("=")
        if not sign or (name not in known and not name.startswith("extension_")):
            raise invalid_argument(f"`sasl.oauthbearer.config`: {pair!r} is not understood")
        known[name] = value
    if not known["principal"]:
        raise invalid_argument("Invalid sasl.oauthbearer.config: no principal=<value>")
    if not known["lifeSeconds"].isdigit() or not int(known["lifeSeconds"]):
        raise invalid_argument("`sasl.oauthbearer.config`: lifeSeconds must be a number above 0")
    return known


def unsecured_token(config: dict[str, str], now_s: float) -> Token:
    expires_s = now_s + int(config["lifeSeconds"])
    issued_s = int(now_s * 1000) / 1000  # Kafka rounds to milliseconds, and refuses what is of the next one
    claims: dict[str, Any] = {config["principalClaimName"]: config["principal"], "iat": issued_s, "exp": expires_s}
    if config["scope"]:
        claims[config["scopeClaimName"]] = config["scope"].split(",")
    extensions = {
        name.removeprefix("extension_"): value for name, value in config.items() if name.startswith("extension_")
    }
    return Token(f"{_base64({'alg': 'none'})}.{_base64(claims)}.", expires_s, extensions)


def _base64(value: dict[str, Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


def _post(settings: "ClientSettings") -> dict[str, Any]:
    """The grant of client credentials (RFC 6749, section 4.4)."""
    url = settings.sasl_oauthbearer_token_endpoint_url or ""
    name, secret = settings.sasl_oauthbearer_client_id or "", settings.sasl_oauthbearer_client_secret or ""
    fields = {"grant_type": "client_credentials"}
    if settings.sasl_oauthbearer_scope:
        fields["scope"] = settings.sasl_oauthbearer_scope
    basic = base64.b64encode(f"{name}:{secret}".encode()).decode()
    headers = {"Authorization": f"Basic {basic}", "Accept": "application/json"}
    if urllib.parse.urlsplit(url).scheme not in ("http", "https"):
        raise _no_token(f"`sasl.oauthbearer.token.endpoint.url` must begin with http:// or https://, not {url!r}")
    request = urllib.request.Request(url, urllib.parse.urlencode(fields).encode(), headers)
    try:
        with urllib.request.urlopen(request, timeout=FETCH_TIMEOUT_S, context=_https(settings)) as answer:
            said = json.loads(answer.read(MOST_ANSWER_BYTES))
    except urllib.error.HTTPError as error:
        with error:
            words = error.read(300).decode(errors="replace")
        raise _no_token(f"{url} answers {error.code}: {words}; are client id and secret right?") from None
    except (OSError, ValueError) as error:
        raise _no_token(f"{url}: {error}") from None
    if not isinstance(said, dict):
        raise _no_token(f"{url} answered no JSON object")
    return said


def _https(settings: "ClientSettings") -> ssl.SSLContext:
    return ssl.create_default_context(cafile=settings.https_ca_location, cadata=settings.https_ca_pem)


def _claims(token: str) -> dict[str, Any]:
    parts = token.split(".")
    try:
        padded = parts[1] + "=" * (-len(parts[1]) % 4)
        claims = json.loads(base64.urlsafe_b64decode(padded))
        float(claims["exp"])
    except (IndexError, ValueError, TypeError, KeyError):
        raise _no_token("the provider's token is no JWT with a claim `exp`") from None
    found: dict[str, Any] = claims
    return found


def extensions_of(text: str) -> dict[str, str]:
    """librdkafka's `name=value,name=value`."""
    return dict(pair.split("=", 1) for pair in text.split(",") if "=" in pair)


def _no_token(why: str) -> KafkaException:
    return KafkaException(KafkaError(KafkaError._AUTHENTICATION, f"no OAUTHBEARER token: {why}"))
