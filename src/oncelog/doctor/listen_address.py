"""The address at which `oncelog serve` would listen: free, or who is there?"""

import errno
import socket
from collections.abc import Iterator, Sequence
from typing import Any, Final

from oncelog.client.net.connection import Endpoint
from oncelog.client.net.opening import Opener
from oncelog.client.properties import admin_settings
from oncelog.doctor.broker_answer import Answer, ask
from oncelog.doctor.finding import Finding, missing, note, ok
from oncelog.server.listeners import Listener

ANSWER_S: Final = 1.0
ANYWHERE: Final = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}


async def check_listeners(listeners: Sequence[Listener]) -> list[Finding]:
    return [await _check(each.host, each.port) for each in listeners if each.port]


async def _check(host: str, port: int) -> Finding:
    name, address = f"port {port}", f"{host or '*'}:{port}"
    refusal = _refusal_to_listen(host, port)
    if refusal is None:
        return ok(name, f"{address} is free", answers=None)
    if refusal.errno != errno.EADDRINUSE:
        return missing(
            name,
            f"{address} cannot be listened at: {(refusal.strerror or str(refusal)).lower()}",
            "name an address of this machine and a port above 1023: oncelog serve --listen HOST:PORT",
        )
    remedy = f"end it, or take another port: oncelog serve --listen {host or '0.0.0.0'}:{port + 1}"
    opener = Opener(admin_settings({"bootstrap.servers": f"127.0.0.1:{port}"}))
    answer = await ask(opener, Endpoint(ANYWHERE.get(host, host), port), ANSWER_S)
    if not isinstance(answer, Answer):
        words = f"{address} is taken, by something that does not answer as a Kafka does (or wants TLS)"
        return missing(name, words, remedy, answers="unknown")
    if answer.is_oncelog:
        return ok(name, f"an oncelog server answers at {address}", answers="oncelog")
    return note(name, f"another Kafka answers at {address}", remedy, answers="kafka")


def _refusal_to_listen(host: str, port: int) -> OSError | None:
    """Bound as the server does it, and given back at once: nothing is listened for."""
    try:
        for family, kind, protocol, _, address in _addresses(host, port):
            with socket.socket(family, kind, protocol) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if family == socket.AF_INET6:
                    probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                probe.bind(address)
    except OSError as refusal:  # also of a name that cannot be resolved
        return refusal
    return None


def _addresses(host: str, port: int) -> Iterator[tuple[int, int, int, str, Any]]:
    """The addresses of families that this machine has; a container often has no IPv6."""
    for each in socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE):
        if each[0] != socket.AF_INET6 or host or _has_ipv6():
            yield each


def _has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True
