"""Addresses that cannot be reached, in the log: a line when that changes, none for each attempt.

Only what may pass by itself is said here, since nothing else would say it for as long as it is tried again; any other
failure is raised where it was asked.
"""

import logging
from typing import TYPE_CHECKING, Final

from oncelog.client.errors import KafkaError
from oncelog.client.net.connection import Endpoint
from oncelog.client.properties.addresses import Address

if TYPE_CHECKING:
    from oncelog.client.properties import ClientSettings

_log: Final = logging.getLogger("oncelog.client.reach")

SLOW_S: Final = 3.0  # a host that drops packets fails only after `socket.connection.setup.timeout.ms`


class OutOfReach:
    def __init__(self, settings: "ClientSettings") -> None:
        self._setup_s = settings.socket_connection_setup_timeout_ms / 1000
        self._pause_s = max(settings.reconnect_backoff_ms, settings.reconnect_backoff_max_ms) / 1000
        self._away: dict[Address, int] = {}  # by what: the number of the error
        self._reached: set[Address] = set()  # at some time

    def failed(self, endpoint: Endpoint, error: KafkaError) -> None:
        if error.retriable() and self._is_news(endpoint, error.code()):
            _log.warning(
                "%s. It is tried again until it answers, at most %g s apart (`reconnect.backoff.max.ms`)",
                error.str(),
                self._pause_s,
            )

    def is_slow(self, endpoint: Endpoint) -> None:
        """An attempt has gone on for `SLOW_S`."""
        if self._is_news(endpoint, KafkaError._TIMED_OUT):
            _log.warning(
                "%s: nothing answers so far. An attempt is given up after %g s (`socket.connection.setup.timeout.ms`), "
                "and made again until one is answered",
                endpoint,
                self._setup_s,
            )

    def reached(self, endpoint: Endpoint) -> None:
        self._reached.add((endpoint.host, endpoint.port))
        if self._away.pop((endpoint.host, endpoint.port), None) is not None:
            _log.info("%s: reached", endpoint)

    def has_been(self, endpoint: Endpoint) -> bool:
        """A connection to this endpoint has been of use: if it ends without an answer, that is no refusal of this
        client."""
        return (endpoint.host, endpoint.port) in self._reached

    def forget_others(self, addresses: set[Address]) -> None:
        self._away = {address: code for address, code in self._away.items() if address in addresses}
        self._reached &= addresses

    def _is_news(self, endpoint: Endpoint, code: int) -> bool:
        address = endpoint.host, endpoint.port
        is_news = self._away.get(address) != code
        self._away[address] = code
        return is_news
