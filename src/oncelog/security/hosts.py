"""Hosts, as sockets and people name them: one spelling for each address, and what counts as one host."""

from ipaddress import IPv6Address, ip_address, ip_network
from typing import Final

IPV6_HOST_BITS: Final = 64  # the bits of the addresses that one customer has at least


def plain_host(host: str) -> str:
    """One spelling for each address: sockets and people write those of IPv6 in several."""
    if ":" not in host:
        return host
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(address)


def place_of(host: str) -> str:
    """The address that counts as one host, where anybody may have many addresses."""
    plain = plain_host(host)
    try:
        return str(ip_network((plain, IPV6_HOST_BITS), strict=False)) if ":" in plain else plain
    except ValueError:
        return plain
