"""All connections of one client: one for each broker and purpose, opened when first asked for, again after a loss.

Whoever asks for the same connection at the same time shares one attempt. After a failure the next attempt waits
(`backoff.py`), for each address by itself.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from oncelog.client.errors import KafkaError, KafkaException
from oncelog.client.net.backoff import Backoff
from oncelog.client.net.connection import Connection, Endpoint

if TYPE_CHECKING:
    from oncelog.client.properties import ClientSettings

Open = Callable[[Endpoint, "ClientSettings", Callable[[Connection], None]], Awaitable[Connection]]
Key = tuple[Endpoint, str]


class Pool:
    def __init__(self, settings: "ClientSettings", open_one: Open, random: Callable[[], float]) -> None:
        self._settings = settings
        self._open_one = open_one
        self._random = random
        self._open: dict[Key, Connection] = {}
        self._opening: dict[Key, asyncio.Task[Connection]] = {}
        self._backoffs: dict[tuple[str, int], Backoff] = {}
        self._leaving: set[Connection] = set()
        self._is_closed = False

    def open_connections(self, purpose: str = "") -> list[Connection]:
        return [each for (_, its_purpose), each in self._open.items() if its_purpose == purpose]

    def is_open(self, endpoint: Endpoint, purpose: str = "") -> bool:
        return (endpoint, purpose) in self._open

    def failures(self, endpoint: Endpoint) -> int:
        """How often in a row it could not be reached."""
        backoff = self._backoffs.get((endpoint.host, endpoint.port))
        return 0 if backoff is None else backoff.failures

    def wait_ms(self, endpoint: Endpoint) -> float:
        backoff = self._backoffs.get((endpoint.host, endpoint.port))
        return 0.0 if backoff is None else backoff.wait_ms(self._now_ms())

    async def connection(self, endpoint: Endpoint, purpose: str = "") -> Connection:
        if self._is_closed:
            raise KafkaException(KafkaError(KafkaError._DESTROY, "the client is closed"))
        key = (endpoint, purpose)
        found = self._open.get(key)
        if found is not None:
            return found
        attempt = self._opening.get(key)
        if attempt is None:
            attempt = self._opening[key] = asyncio.create_task(self._attempt(key))
            attempt.add_done_callback(lambda done: self._attempted(key, done))
        # Whoever gives up waiting does not end what others wait for.
        return await asyncio.shield(attempt)

    def adopt(self, connection: Connection, endpoint: Endpoint) -> None:
        """It turned out which broker listens at this address: what is open need not be opened again."""
        key = (endpoint, "")
        if key in self._open or self._open.pop((connection.endpoint, ""), None) is None:
            return
        connection.endpoint = endpoint
        self._open[key] = connection

    def drop(self, endpoint: Endpoint, why: str) -> None:
        """The broker is not there any more: close what leads there."""
        for key in [key for key in self._open if key[0] == endpoint]:
            self._open[key].close(KafkaError(KafkaError._TRANSPORT, f"{endpoint}: {why}", retriable=True))
        self._backoffs.pop((endpoint.host, endpoint.port), None)

    def endpoints(self) -> set[Endpoint]:
        return {endpoint for endpoint, _ in (*self._open, *self._opening)}

    async def close(self) -> None:
        self._is_closed = True
        attempts = list(self._opening.values())
        for attempt in attempts:
            attempt.cancel()
        await asyncio.gather(*attempts, return_exceptions=True)
        for connection in list(self._open.values()):
            connection.close(KafkaError(KafkaError._DESTROY, "the client was closed meanwhile"))
        await asyncio.gather(*(each.closed() for each in list(self._leaving)))

    async def _attempt(self, key: Key) -> Connection:
        endpoint, _ = key
        backoff = self._backoff(endpoint)
        wait_ms = backoff.wait_ms(self._now_ms())
        if wait_ms:
            await asyncio.sleep(wait_ms / 1000)
        try:
            connection = await self._open_one(endpoint, self._settings, self._lost)
        except KafkaException:
            backoff.failed(self._now_ms())
            raise
        if connection.is_closed:
            backoff.failed(self._now_ms())
            assert connection.lost_by is not None
            raise KafkaException(connection.lost_by)
        connection.answered_count = 0
        self._open[key] = connection
        return connection

    def _attempted(self, key: Key, done: "asyncio.Task[Connection]") -> None:
        self._opening.pop(key, None)
        if not done.cancelled():
            done.exception()  # those who asked were told; where nobody waits any more, nobody need be

    def _lost(self, connection: Connection) -> None:
        for key, each in list(self._open.items()):
            if each is connection:
                del self._open[key]
                self._judge(connection)
        self._leaving.add(connection)
        gone = asyncio.ensure_future(connection.closed())
        gone.add_done_callback(lambda _: self._leaving.discard(connection))

    def _judge(self, connection: Connection) -> None:
        """A connection that was of use may be opened again at once; one that never answered must wait."""
        backoff = self._backoff(connection.endpoint)
        if connection.answered_count:
            backoff.succeeded()
        else:
            backoff.failed(self._now_ms())

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
