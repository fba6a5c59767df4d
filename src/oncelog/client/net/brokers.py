"""All brokers of one cluster, as one client sees them: who leads what, and a connection to each."""

import asyncio
import random as chance
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from oncelog.client.errors import KafkaError, KafkaException, error_of, exception_of, is_retriable
from oncelog.client.net.connection import Build, Connection, Endpoint
from oncelog.client.net.metadata import UNKNOWN_TOPIC, BrokerAddress, Metadata
from oncelog.client.net.opening import open_connection
from oncelog.client.net.pool import Open, Pool
from oncelog.wire.requests import RequestSchema

if TYPE_CHECKING:
    from oncelog.client.properties import ClientSettings

LEADER_NOT_AVAILABLE = 5
SETTLE_ATTEMPTS = 6
GROUP = 0
GROUP_KEYS_FROM = 4  # the version of FindCoordinator that asks for many keys at once


class Brokers:
    """`start` makes it ready and does not wait for the network; the first thing that needs a broker looks for one."""

    def __init__(
        self,
        settings: "ClientSettings",
        *,
        random: Callable[[], float] = chance.random,
        open_one: Open = open_connection,
    ) -> None:
        self.settings = settings
        self.metadata = Metadata()
        self._random = random
        # Kafka without ZooKeeper calls a topic unknown that it is about to create.
        self._being_made = {LEADER_NOT_AVAILABLE} | ({UNKNOWN_TOPIC} if settings.allow_auto_create_topics else set())
        self._pool = Pool(settings, open_one, random)
        self._wanted: set[str] = set()
        self._refreshes: dict[frozenset[str] | None, asyncio.Task[None]] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self._is_closed = False

    async def start(self) -> None:
        self._spawn(self._refresh_now_and_then())

    async def close(self) -> None:
        """Everything that waits fails with `_DESTROY`; when this returns no connection, task or timer is left."""
        self._is_closed = True
        tasks = [*self._tasks, *self._refreshes.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._pool.close()

    # --- metadata

    async def refresh(self, topics: Iterable[str] | None = None) -> Metadata:
        """Ask for these topics, for all that there are (None), or for the brokers alone (an empty list).

        Topics named here are kept up to date from then on, until `forget`. A topic without leaders that is being
        made is asked for again a few times.
        """
        names = None if topics is None else frozenset(topics)
        if names:
            self._wanted |= names
        running = self._refreshes.get(names)
        if running is None:
            running = self._refreshes[names] = asyncio.create_task(self._refresh(names))
            running.add_done_callback(lambda done: self._refreshed(names, done))
        await asyncio.shield(running)
        return self.metadata

    def forget(self, topics: Iterable[str]) -> None:
        gone = frozenset(topics)
        self._wanted -= gone
        self.metadata = self.metadata.without_topics(gone)

    async def _refresh(self, names: frozenset[str] | None) -> None:
        for attempt in range(SETTLE_ATTEMPTS):
            await self._ask_metadata(names)
            topics = self.metadata.topics
            if not any(topics[name].error_code in self._being_made for name in names or () if name in topics):
                return
            await self._pause(attempt)

    async def _ask_metadata(self, names: frozenset[str] | None) -> None:
        def build(spoken: RequestSchema) -> Any:
            wanted = None if names is None else tuple(map(spoken_topic(spoken), sorted(names)))
            return spoken.new(
                "MetadataRequest",
                topics=() if names is None and spoken.version == 0 else wanted,
                allow_auto_topic_creation=self.settings.allow_auto_create_topics,
                include_cluster_authorized_operations=False,
                include_topic_authorized_operations=False,
            )

        connection = await self.connection(None)
        answer = await connection.request("metadata", build)
        self.metadata = self.metadata.updated(answer, is_everything=names is None)
        self._follow_addresses()

    def _refreshed(self, names: frozenset[str] | None, done: "asyncio.Task[None]") -> None:
        self._refreshes.pop(names, None)
        if not done.cancelled():
            done.exception()

    async def _refresh_now_and_then(self) -> None:
        interval_ms = self.settings.topic_metadata_refresh_interval_ms
        while interval_ms > 0:
            await asyncio.sleep(interval_ms / 1000 * (0.9 + 0.1 * self._random()))
            try:
                await self.refresh(tuple(self._wanted))
            except KafkaException:
                continue  # whoever needs a broker asks by himself, and is told

    # --- connections

    async def connection(self, node_id: int | None, purpose: str = "") -> Connection:
        """An open connection to this broker, or to any. What waits long (a join) takes a `purpose` of its own."""
        if node_id is not None:
            return await self._pool.connection(await self._endpoint(node_id), purpose)
        opened = self._pool.open_connections()
        if opened:
            return min(opened, key=lambda each: each.in_flight)
        return await self._any_connection()

    async def _endpoint(self, node_id: int) -> Endpoint:
        known = self.metadata.brokers.get(node_id)
        if known is None:
            await self.refresh(())
            known = self.metadata.brokers.get(node_id)
        if known is None:
            words = f"broker {node_id} is not part of the cluster (known: {sorted(self.metadata.brokers)})"
            raise KafkaException(KafkaError(KafkaError._UNKNOWN_BROKER, words, retriable=True))
        return _endpoint_of(known)

    async def _any_connection(self) -> Connection:
        """Try the brokers that are known, then the addresses that the user gave."""
        known = [_endpoint_of(each) for each in self.metadata.brokers.values()]
        given = [Endpoint(host, port) for host, port in self.settings.bootstrap_servers]
        last: KafkaException | None = None
        for endpoint in (*self._in_turn(known), *self._in_turn(given)):
            try:
                return await self._pool.connection(endpoint)
            except KafkaException as error:
                last = error
        raise self._none_answers(last)

    def _in_turn(self, endpoints: list[Endpoint]) -> list[Endpoint]:
        """In random order, those first that have failed the fewest times."""
        return sorted(endpoints, key=lambda each: (self._pool.failures(each), self._random()))

    def _none_answers(self, last: KafkaException | None) -> KafkaException:
        given = ",".join(f"{host}:{port}" for host, port in self.settings.bootstrap_servers)
        if last is None:
            return KafkaException(KafkaError(KafkaError._INVALID_ARG, "no `bootstrap.servers` configured"))
        words = f"no broker can be reached; `bootstrap.servers` is {given}; the last error: {last.error.str()}"
        return KafkaException(KafkaError(KafkaError._ALL_BROKERS_DOWN, words, retriable=True))

    def _follow_addresses(self) -> None:
        """Close what leads to where no broker is any more, and learn which broker a bootstrap address was."""
        brokers = self.metadata.brokers
        for endpoint in self._pool.endpoints():
            if endpoint.node_id is not None and (
                endpoint.node_id not in brokers or _endpoint_of(brokers[endpoint.node_id]) != endpoint
            ):
                self._pool.drop(endpoint, "the broker has left, or has another address now")
        for connection in self._pool.open_connections():
            if connection.node_id is None:
                for each in map(_endpoint_of, brokers.values()):
                    if (each.host, each.port) == (connection.endpoint.host, connection.endpoint.port):
                        self._pool.adopt(connection, each)
                        break

    # --- requests

    async def request(
        self,
        node_id: int | None,
        name: str,
        build: Build,
        *,
        versions: tuple[int, int] | None = None,
        timeout_ms: int | None = None,
        purpose: str = "",
    ) -> Any:
        """Asked once: whether it may be asked again after a failure only the caller knows."""
        connection = await self.connection(node_id, purpose)
        return await connection.request(name, build, versions=versions, timeout_ms=timeout_ms)

    async def controller(self) -> int:
        await self.refresh(())
        if self.metadata.controller_id < 0:
            raise exception_of(KafkaError.NOT_CONTROLLER, "the cluster has no controller now")
        return self.metadata.controller_id

    async def coordinator(self, group_id: str) -> int:
        """The node that coordinates this group. Asked for again while it is being found."""
        for attempt in range(SETTLE_ATTEMPTS):
            answer = await self.request(None, "find_coordinator", lambda spoken: _find_coordinator(spoken, group_id))
            found = answer.coordinators[0] if hasattr(answer, "coordinators") else answer
            code = int(found.error_code)
            if code == 0:
                node_id = int(found.node_id)
                if node_id not in self.metadata.brokers:
                    address = BrokerAddress(node_id, found.host, int(found.port))
                    self.metadata = self.metadata.with_brokers((address,))
                return node_id
            error = error_of(code, getattr(found, "error_message", None))
            if not is_retriable(code):
                break
            await self._pause(attempt)
        raise KafkaException(error)

    async def _pause(self, attempt: int) -> None:
        settings = self.settings
        pause_ms = min(settings.retry_backoff_ms * 2**attempt, settings.retry_backoff_max_ms)
        await asyncio.sleep(pause_ms * (0.8 + 0.4 * self._random()) / 1000)

    def _spawn(self, coroutine: Any) -> None:
        task = asyncio.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def spoken_topic(spoken: RequestSchema) -> Callable[[str], Any]:
    return lambda name: spoken.new("MetadataRequestTopic", topic_id=None, name=name)


def _find_coordinator(spoken: RequestSchema, group_id: str) -> Any:
    return spoken.new("FindCoordinatorRequest", key=group_id, key_type=GROUP, coordinator_keys=(group_id,))


def _endpoint_of(address: BrokerAddress) -> Endpoint:
    return Endpoint(address.host, address.port, address.node_id)
