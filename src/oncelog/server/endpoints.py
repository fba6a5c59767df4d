"""The addresses that a server is to listen on, and what clients are told to connect to."""

from collections.abc import Iterable
from dataclasses import dataclass

from oncelog.server.listeners import parse_listeners, parse_protocols
from oncelog.server.settings import Settings
from oncelog.settings import SettingsError

WILDCARDS = ("", "0.0.0.0", "::")


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One listener. Its protocol says how bytes become requests, and whether clients first say who they are."""

    name: str
    protocol: str
    host: str
    port: int
    advertised_host: str | None = None  # None: the address by which a client reached us
    advertised_port: int | None = None  # None: the port that was bound

    @property
    def is_encrypted(self) -> bool:
        return self.protocol in ("SSL", "SASL_SSL")

    @property
    def is_sasl(self) -> bool:
        return self.protocol.startswith("SASL_")


def endpoints(settings: Settings) -> list[Endpoint]:
    protocols = parse_protocols(settings.listener_security_protocol_map)
    advertised = (
        {each.name: each for each in parse_listeners("advertised.listeners", settings.advertised_listeners, protocols)}
        if settings.advertised_listeners
        else {}
    )
    found = []
    for each in parse_listeners("listeners", settings.listeners, protocols):
        told = advertised.get(each.name)
        own_host = None if each.host in WILDCARDS else each.host
        found.append(
            Endpoint(
                each.name,
                protocols.get(each.name, each.name),
                each.host,
                each.port,
                told.host if told else own_host,
                told.port if told else None,
            )
        )
    return found


def check_reach(found: Iterable[Endpoint]) -> None:
    """Check the endpoints of a broker on a machine of its own. Others learn where it is from what it writes down for
    them, and do not see, as a client does, by which address they have reached it."""
    for each in found:
        if each.advertised_host is None:
            raise SettingsError(
                f"listeners={each.name}://{each.host}:{each.port}: neither other brokers nor clients that they send "
                f"here can connect to '{each.host}'; set advertised.listeners"
            )
