"""How an experiment gets into a Kafka of the user's that wants passwords or TLS: the properties that say so, for each
of its clients.

They are librdkafka's, as everywhere; Kafka's Java client has other names for the same.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

Properties = Mapping[str, str]

_BEGINNINGS: Final = ("security.protocol", "sasl.", "ssl.", "enable.ssl.", "enable.sasl.", "https.ca.")
_OF_TLS: Final = ("ssl.", "enable.ssl.")
_SAME_IN_JAVA: Final = ("ssl.cipher.suites",)
_MODULES: Final = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}


class NotForJava(ValueError):
    """The words name the property that Java's client cannot be told."""


@dataclass(frozen=True, slots=True)
class Kafka:
    """Where the log is, and how one gets in."""

    servers: str
    login: Properties = field(default_factory=dict, repr=False)

    @property
    def client(self) -> dict[str, str]:
        """Properties of a client of ours, or of librdkafka."""
        return {**self.login, "bootstrap.servers": self.servers}


def is_of_login(name: str) -> bool:
    return name.startswith(_BEGINNINGS)


def behind_proxy(login: Properties) -> dict[str, str]:
    """For clients of the proxy, which itself speaks TLS to the brokers."""
    if not login:
        return {}
    found = {name: value for name, value in login.items() if not name.startswith(_OF_TLS)}
    protocol = found.pop("security.protocol", "plaintext").lower()
    return found | {"security.protocol": "sasl_plaintext" if protocol.startswith("sasl") else "plaintext"}


def for_java(login: Properties) -> dict[str, str]:
    """By the names of Kafka's Java client, which gets the text of files. Passwords and keys are among the values."""
    if not login:
        return {}
    protocol = login.get("security.protocol", "plaintext").upper()
    found = {"security.protocol": protocol}
    if protocol.startswith("SASL"):
        found |= _sasl(login)
    if protocol.endswith("SSL"):
        found |= _tls(login)
    return found


def _sasl(login: Properties) -> dict[str, str]:
    mechanism = login.get("sasl.mechanisms", login.get("sasl.mechanism", "")).upper()
    module = _MODULES.get(mechanism)
    if module is None:
        raise NotForJava(f"sasl.mechanisms={mechanism}: Java's client is told of {', '.join(_MODULES)} only")
    user, password = (_quoted(login.get(f"sasl.{each}", "")) for each in ("username", "password"))
    return {
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": f"{module} required username={user} password={password};",
    }


def _quoted(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _tls(login: Properties) -> dict[str, str]:
    if login.get("enable.ssl.certificate.verification", "true").lower() != "true":
        raise NotForJava("enable.ssl.certificate.verification: Java's client always checks certificates")
    if "ssl.crl.location" in login:
        raise NotForJava("ssl.crl.location: Java's client is told of revoked certificates in other ways")
    found = {name: login[name] for name in _SAME_IN_JAVA if name in login}
    authority = _text(login, "ssl.ca")
    if authority:
        found |= {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": authority}
    chain = _text(login, "ssl.certificate")
    if chain:
        key = _text(login, "ssl.key") or chain  # one file may hold both
        found |= {"ssl.keystore.type": "PEM", "ssl.keystore.certificate.chain": chain, "ssl.keystore.key": key}
        if "ssl.key.password" in login:
            found["ssl.key.password"] = login["ssl.key.password"]
    if login.get("ssl.endpoint.identification.algorithm") == "none":
        found["ssl.endpoint.identification.algorithm"] = ""
    return found


def _text(login: Properties, name: str) -> str:
    location = login.get(f"{name}.location")
    return Path(location).read_text(encoding="utf-8") if location else login.get(f"{name}.pem", "")
