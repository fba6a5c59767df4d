"""The listeners of a server, and what they tell clients: `NAME://HOST:PORT`, as in Kafka."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from oncelog.settings import SettingsError

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_LISTENER = re.compile(r"(?P<name>[A-Za-z0-9_-]+)://(?P<host>\[[0-9A-Fa-f:.%a-z]+\]|[^\[\]:/\s]*):(?P<port>[0-9]{1,5})")


@dataclass(frozen=True, slots=True)
class Listener:
    name: str
    host: str  # "" for every interface
    port: int  # 0 for any free one


def parse_listeners(setting: str, texts: Sequence[str], protocols: Mapping[str, str]) -> list[Listener]:
    found: list[Listener] = []
    for each in texts:
        match = _LISTENER.fullmatch(each)
        if match is None or int(match["port"]) > 65535:
            raise SettingsError(f"{setting}={each}: expected NAME://HOST:PORT, such as PLAINTEXT://127.0.0.1:9092")
        name = match["name"].upper()
        if protocols.get(name, name) not in PROTOCOLS:
            raise SettingsError(
                f"{setting}={each}: {name} is no protocol. Name one ({', '.join(PROTOCOLS)}), or say what {name} "
                f"speaks: listener.security.protocol.map={name}:SASL_SSL"
            )
        if name in (other.name for other in found):
            raise SettingsError(f"{setting}: the listener {name} is there twice. Give each a name of its own")
        found.append(Listener(name, match["host"].strip("[]"), int(match["port"])))
    if not found:
        raise SettingsError(f"{setting}: expected at least one NAME://HOST:PORT, such as PLAINTEXT://127.0.0.1:9092")
    ports = [(listener.host, listener.port) for listener in found if listener.port]
    if setting == "listeners" and len(set(ports)) < len(ports):
        raise SettingsError(
            f"{setting}: two listeners share an address. Give each a port of its own (0: any that is free)"
        )
    return found


def parse_protocols(texts: Sequence[str]) -> dict[str, str]:
    """The protocols, by the names of listeners."""
    protocols: dict[str, str] = {}
    for each in texts:
        name, colon, protocol = each.partition(":")
        if not colon or not name or protocol.upper() not in PROTOCOLS:
            raise SettingsError(
                f"listener.security.protocol.map={each}: expected NAME:PROTOCOL, of {', '.join(PROTOCOLS)}"
            )
        if protocols.get(name.upper(), protocol.upper()) != protocol.upper():
            raise SettingsError(
                f"listener.security.protocol.map: {name.upper()} speaks two protocols. Leave one of them out"
            )
        protocols[name.upper()] = protocol.upper()
    return protocols


def check_advertised(listening: Sequence[Listener], advertised: Sequence[Listener]) -> None:
    names = {listener.name for listener in listening}
    for each in advertised:
        if each.name not in names:
            raise SettingsError(
                f"advertised.listeners names {each.name}, which listeners does not name. Add it there, or leave it out"
            )
        if each.host in ("", "0.0.0.0", "::"):
            raise SettingsError(f"advertised.listeners: clients cannot connect to '{each.host}'; name a host")
        if each.port == 0:
            raise SettingsError("advertised.listeners: clients cannot connect to port 0; name the port that they reach")
