"""All connections of one client: one for each broker and purpose, opened when first asked for, again after a loss.

All that ask for the same connection at the same time share one attempt. After a failure the next attempt waits
(`backoff.py`), for each address by itself.
"""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING

from oncelog.client.errors import KafkaError, KafkaException
from oncelog.client.net.backoff import Backoff
from oncelog.client.net.connection import Connection, Endpoint
from oncelog.client.net.reach import SLOW_S, OutOfReach
from oncelog.client.net.shared_work import Shared, closed_meanwhile
from oncelog.client.statistics.traffic import Traffic

if TYPE_CHECKING:
    from oncelog.client.properties import ClientSettings

Open = Callable[[Endpoint, Callable[[Connection], None]], Awaitable[Connection]]
Key = tuple[Endpoint, str]


class Pool:
    def __init__(
        self,
        settings: "ClientSettings",
        open_one: Open,
        random: Callable[[], float],
        on_error: Callable[[KafkaError], None],
    ) -> None:
        self._settings = settings
        self._open_one = open_one
        self._random = random
        self._on_error = on_error
        self._reach = OutOfReach(settings)
        self._open: dict[Key, Connection] = {}
        self._opening: Shared[Key, Connection] = Shared()
        self._backoffs: dict[tuple[str, int], Backoff] = {}
        self._leaving: set[Connection] = set()  # closed, but their transports are not gone yet
        self._traffic: dict[tuple[str, int], Traffic] = {}
        self._is_counted = bool(settings.statistics_interval_ms and settings.stats_cb)

    def traffic(self, host: str, port: int) -> Traffic | None:
        """The counters of an address; None where statistics are off."""
        if not self._is_counted:
            return None
        found = self._traffic.get((host, port))
        if found is None:
            found = self._traffic[host, port] = Traffic(asyncio.get_running_loop().time())
        return found

    def connections_to(self, host: str, port: int) -> list[Connection]:
        return [each for (endpoint, _), each in self._open.items() if (endpoint.host, endpoint.port) == (host, port)]

    def is_open(self, endpoint: Endpoint) -> bool:
        return (endpoint, "") in self._open

    def open_connections(self, purpose: str = "") -> list[Connection]:
        return [each for (_, its_purpose), each in self._open.items() if its_purpose == purpose]

    def endpoints(self) -> set[Endpoint]:
        """The endpoints that connections lead to, or are about to."""
        return {endpoint for endpoint, _ in (*self._open, *self._opening.keys())}

    def failures(self, endpoint: Endpoint) -> int:
        """The number of failed attempts in a row."""
        backoff = self._backoffs.get((endpoint.host, endpoint.port))
        return 0 if backoff is None else backoff.failures

    async def connection(self, endpoint: Endpoint, purpose: str = "") -> Connection:
        key = (endpoint, purpose)
        found = self._open.get(key)
        return found or await self._opening.do(key, lambda: self._attempt(key))

    def adopt(self, connection: Connection, endpoint: Endpoint) -> None:
        """Take over a connection whose broker is known now: it need not be opened again. Where another
        connection leads there, or soon will, this one stays where it is, or one of the two would be forgotten open."""
        key = (endpoint, "")
        is_taken = key in self._open or key in self._opening
        if is_taken or self._open.pop((connection.endpoint, ""), None) is None:
            return
        connection.endpoint = endpoint
        self._open[key] = connection

    def drop(self, endpoint: Endpoint, why: str) -> None:
        """The broker is not there any more: close what leads there."""
        error = KafkaError(KafkaError._TRANSPORT, f"{endpoint}: {why}", retriable=True)
        for key, connection in list(self._open.items()):
            if key[0] == endpoint:
                connection.close(error)

    def forget_others(self, addresses: set[tuple[str, int]]) -> None:
        """Forget the failures and counters of all other addresses: no broker is there any more."""
        self._backoffs = {address: each for address, each in self._backoffs.items() if address in addresses}
        self._traffic = {address: each for address, each in self._traffic.items() if address in addresses}
        self._reach.forget_others(addresses)

    def close_idle(self, idle_s: float) -> None:
        """Close what has carried nothing for so long and waits for nothing."""
        since_s = asyncio.get_running_loop().time() - idle_s
        for connection in list(self._open.values()):
            if not connection.in_flight and connection.active_s <= since_s:
                # Requests that were about to be sent on it may be sent on another one.
                words = f"{connection.endpoint}: closed, since it carried nothing for {idle_s:g} s"
                connection.close(KafkaError(KafkaError._TRANSPORT, words, retriable=True))

    async def close(self) -> None:
        await self._opening.close()
        for connection in list(self._open.values()):
            connection.close(closed_meanwhile())
        await asyncio.gather(*(each.gone for each in self._leaving))

    async def _attempt(self, key: Key) -> Connection:
        endpoint, _ = key
        backoff = self._backoff(endpoint)
        wait_ms = backoff.wait_ms(self._now_ms())
        if wait_ms:
            await asyncio.sleep(wait_ms / 1000)
        traffic = self.traffic(endpoint.host, endpoint.port)
        if traffic is not None:
            traffic.attempts += 1
        slow = asyncio.get_running_loop().call_later(SLOW_S, self._reach.is_slow, endpoint)
        try:
            connection = await self._open_one(endpoint, self._lost)
            if connection.lost_by is not None:
                raise KafkaException(connection.lost_by)
        except KafkaException as error:
            backoff.failed(self._now_ms())
            if traffic is not None:
                traffic.failures += 1
            self._reach.failed(endpoint, error.error)
            self._on_error(error.error)
            raise
        finally:
            slow.cancel()
        if connection.hint:  # a listener that wants another protocol has answered as well, until here
            connection.on_first_answer = partial(self._reach.reached, endpoint)
        else:
            self._reach.reached(endpoint)
        if traffic is not None:
            connection.traffic = traffic
            traffic.connected(self._now_ms() / 1000)
        connection.answered_count = 0
        self._open[key] = connection
        return connection

    def _lost(self, connection: Connection) -> None:
        for key, each in list(self._open.items()):
            if each is connection:
                del self._open[key]
                self._judge(connection)
        if connection.traffic is not None:
            connection.traffic.lost(self._now_ms() / 1000)
        self._leaving.add(connection)
        connection.gone.add_done_callback(lambda _: self._leaving.discard(connection))

    def _judge(self, connection: Connection) -> None:
        """A connection that was of use may be opened again at once; one that never answered must wait."""
        backoff = self._backoff(connection.endpoint)
        if connection.answered_count:
            backoff.succeeded()
        else:
            backoff.failed(self._now_ms())
        if connection.is_refused and not self._reach.has_been(connection.endpoint):
            assert connection.lost_by is not None
            self._reach.failed(connection.endpoint, connection.lost_by)
            self._on_error(connection.lost_by)

    def _backoff(self, endpoint: Endpoint) -> Backoff:
        address = (endpoint.host, endpoint.port)
        found = self._backoffs.get(address)
        if found is None:
            settings = self._settings
            found = self._backoffs[address] = Backoff(
                settings.reconnect_backoff_ms, settings.reconnect_backoff_max_ms, self._random
            )
        return found

    def _now_ms(self) -> float:
        return asyncio.get_running_loop().time() * 1000
