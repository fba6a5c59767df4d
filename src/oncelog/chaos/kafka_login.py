"""The login of an experiment to a Kafka of the user's that wants passwords or TLS: its properties, for each
of its clients.

They are librdkafka's, as everywhere; Kafka's Java client has other names for the same.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from oncelog.client.net.sasl.tokens import extensions_of, unsecured_config

Properties = Mapping[str, str]

_BEGINNINGS: Final = ("security.protocol", "sasl.", "ssl.", "enable.ssl.", "enable.sasl.", "https.ca.")
_OF_TLS: Final = ("ssl.", "enable.ssl.")
_SAME_IN_JAVA: Final = ("ssl.cipher.suites",)
_MODULES: Final = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}
_OF_TOKENS: Final = "org.apache.kafka.common.security.oauthbearer"
_TOKENS_FROM: Final = "sasl.oauthbearer.token.endpoint.url"
_SAME_OF_TOKENS: Final = (_TOKENS_FROM, "sasl.oauthbearer.sub.claim.name")
_ALLOWED: Final = "org.apache.kafka.sasl.oauthbearer.allowed.urls"  # Java asks nobody else for tokens
_ESCAPES: Final = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r"})


class NotForJava(ValueError):
    """The words name the property that Java's client cannot be told."""


@dataclass(frozen=True, slots=True)
class Kafka:
    """The address of the log, and how one gets in."""

    servers: str
    login: Properties = field(default_factory=dict, repr=False)

    @property
    def client(self) -> dict[str, str]:
        """Properties of a client of ours, or of librdkafka."""
        return {**self.login, "bootstrap.servers": self.servers}


def is_of_login(name: str) -> bool:
    return name.startswith(_BEGINNINGS)


def behind_proxy(login: Properties) -> dict[str, str]:
    """The login for clients of the proxy, which itself speaks TLS to the brokers."""
    if not login:
        return {}
    found = {name: value for name, value in login.items() if not name.startswith(_OF_TLS)}
    protocol = found.pop("security.protocol", "plaintext").lower()
    return found | {"security.protocol": "sasl_plaintext" if protocol.startswith("sasl") else "plaintext"}


def for_java(login: Properties) -> dict[str, str]:
    """The login by the names of Kafka's Java client, which gets the text of files. Passwords and keys are among the
    values."""
    if not login:
        return {}
    protocol = login.get("security.protocol", "plaintext").upper()
    found = {"security.protocol": protocol}
    if protocol.startswith("SASL"):
        found |= _sasl(login)
    if protocol.endswith("SSL"):
        found |= _tls(login)
    return found


def jvm_for_java(login: Properties) -> list[str]:
    """The options of the tool's own command line; no secret is in them."""
    return [f"-D{_ALLOWED}={login[_TOKENS_FROM]}"] if _asks_for_tokens(login) else []


def _sasl(login: Properties) -> dict[str, str]:
    mechanism = login.get("sasl.mechanisms", login.get("sasl.mechanism", "")).upper()
    if mechanism == "OAUTHBEARER":
        return {"sasl.mechanism": mechanism, **_oauth(login)}
    module = _MODULES.get(mechanism)
    if module is None:
        raise NotForJava(
            f"sasl.mechanisms={mechanism}: for Java's client it may be {', '.join(_MODULES)} or OAUTHBEARER"
        )
    named = {each: login.get(f"sasl.{each}", "") for each in ("username", "password")}
    return {"sasl.mechanism": mechanism, "sasl.jaas.config": _jaas(module, named)}


def _oauth(login: Properties) -> dict[str, str]:
    module = f"{_OF_TOKENS}.OAuthBearerLoginModule"
    if not _asks_for_tokens(login):
        return {"sasl.jaas.config": _jaas(module, _unsecured(login))}
    named = {"clientId": _id_or_secret(login, "id"), "clientSecret": _id_or_secret(login, "secret")}
    scope = login.get("sasl.oauthbearer.scope")
    if scope:
        named["scope"] = scope
    extensions = extensions_of(login.get("sasl.oauthbearer.extensions", ""))
    named |= {f"extension_{name}": value for name, value in extensions.items()}
    authority = _text(login, "https.ca")
    if authority:
        named |= _trusting(authority)
    return {
        "sasl.jaas.config": _jaas(module, named),
        "sasl.login.callback.handler.class": f"{_OF_TOKENS}.OAuthBearerLoginCallbackHandler",
        **{name: login[name] for name in _SAME_OF_TOKENS if name in login},
    }


def _asks_for_tokens(login: Properties) -> bool:
    return login.get("sasl.oauthbearer.method") == "oidc" and _TOKENS_FROM in login


def _id_or_secret(login: Properties, which: str) -> str:
    short = login.get(f"sasl.oauthbearer.client.{which}", "")
    return short or login.get(f"sasl.oauthbearer.client.credentials.client.{which}", "")


def _unsecured(login: Properties) -> dict[str, str]:
    """The token without a signature, of tests."""
    said = unsecured_config(login.get("sasl.oauthbearer.config", ""))
    named = {
        f"unsecuredLoginStringClaim_{said['principalClaimName']}": said["principal"],
        "unsecuredLoginPrincipalClaimName": said["principalClaimName"],
        "unsecuredLoginLifetimeSeconds": said["lifeSeconds"],
    }
    if said["scope"]:
        named[f"unsecuredLoginListClaim_{said['scopeClaimName']}"] = f",{said['scope']}"
    extensions = {name: value for name, value in said.items() if name.startswith("extension_")}
    return named | {
        f"unsecuredLoginExtension_{name.removeprefix('extension_')}": value for name, value in extensions.items()
    }


def _jaas(module: str, named: Mapping[str, str]) -> str:
    words = "".join(f' {name}="{value.translate(_ESCAPES)}"' for name, value in named.items())
    return f"{module} required{words};"


def _tls(login: Properties) -> dict[str, str]:
    if login.get("enable.ssl.certificate.verification", "true").lower() != "true":
        raise NotForJava("enable.ssl.certificate.verification: Java's client always checks certificates")
    if "ssl.crl.location" in login:
        raise NotForJava("ssl.crl.location: Java's client is told of revoked certificates in other ways")
    found = {name: login[name] for name in _SAME_IN_JAVA if name in login}
    authority = _text(login, "ssl.ca")
    if authority:
        found |= _trusting(authority)
    chain = _text(login, "ssl.certificate")
    if chain:
        key = _text(login, "ssl.key") or chain  # one file may hold both
        found |= {"ssl.keystore.type": "PEM", "ssl.keystore.certificate.chain": chain, "ssl.keystore.key": key}
        if "ssl.key.password" in login:
            found["ssl.key.password"] = login["ssl.key.password"]
    if login.get("ssl.endpoint.identification.algorithm") == "none":
        found["ssl.endpoint.identification.algorithm"] = ""
    return found


def _trusting(authority: str) -> dict[str, str]:
    return {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": authority}


def _text(login: Properties, name: str) -> str:
    location = login.get(f"{name}.location")
    return Path(location).read_text(encoding="utf-8") if location else login.get(f"{name}.pem", "")
