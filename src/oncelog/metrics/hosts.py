"""The names by which a browser or a scraper may ask.

A page elsewhere can have a name of its own that suddenly points here (DNS rebinding), and then read what is answered.
It cannot have an address, `localhost`, a name without a dot, or one below what nobody can buy.
"""

from collections.abc import Collection
from ipaddress import ip_address
from typing import Final

NOT_FOR_SALE: Final = (".localhost", ".local", ".internal", ".home.arpa")


def without_port(host: str) -> str:
    host = host.casefold()
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0]


def is_ours(host: str, own_names: Collection[str]) -> bool:
    """`host` is what a request names, without the port."""
    if host == "localhost" or host in own_names:
        return True
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def is_loopback(host: str) -> bool:
    """Whether who listens there is reached from this machine alone."""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def is_for_another_page(site: str | None, mode: str | None) -> bool:
    """Whether a browser says (`Sec-Fetch-Site`, `Sec-Fetch-Mode`) that neither a person asks, nor our own page.
    A link may lead here from anywhere. A client that says nothing is no browser of today."""
    return site not in (None, "none", "same-origin") and mode != "navigate"


def is_nobody_elses(host: str, own_names: Collection[str]) -> bool:
    """Whether the host is nobody else's. Machines ask, too, by names of their own network."""
    return is_ours(host, own_names) or (bool(host) and "." not in host) or host.endswith(NOT_FOR_SALE)
