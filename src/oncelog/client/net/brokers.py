"""All brokers of one cluster, as one client sees them: who leads what, and a connection to each."""

import asyncio
import random as chance
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any
from uuid import UUID

from oncelog.client.errors import KafkaError, KafkaException, error_of, exception_of, is_retriable
from oncelog.client.net.connection import Build, Connection, Endpoint
from oncelog.client.net.coordinators import GROUP, Coordinators
from oncelog.client.net.metadata import BrokerAddress, Metadata
from oncelog.client.net.opening import Opener
from oncelog.client.net.pool import Open, Pool
from oncelog.client.net.refreshing import ATTEMPTS, Refresher
from oncelog.client.net.shared_work import Shared
from oncelog.client.net.tasks import Tasks
from oncelog.client.statistics.traffic import Traffic
from oncelog.wire.requests import RequestSchema

if TYPE_CHECKING:
    from oncelog.client.properties import ClientSettings

BOOTSTRAP = -1  # the node id of an address at which nobody has said who he is
IDLE_CHECKS = 4  # in the time after which a connection counts as idle


class Brokers:
    """`start` makes it ready and does not wait for the network; the first thing that needs a broker looks for one.

    Settings that cannot be used (certificates, mechanisms) are told when it is made. `on_error` hears what belongs to
    no one call: a broker that cannot be reached, all that cannot.
    """

    def __init__(
        self,
        settings: "ClientSettings",
        *,
        on_error: Callable[[KafkaError], None] | None = None,
        random: Callable[[], float] = chance.random,
        open_one: Open | None = None,
    ) -> None:
        self.settings = settings
        self._on_error = on_error or (lambda error: None)
        self._random = random
        self.pool = Pool(settings, open_one or Opener(settings, random).open, random, self._on_error)
        self._refresher = Refresher(settings, lambda: self.connection(None), self._follow_addresses, random)
        self._bootstrapping: Shared[None, Connection] = Shared()
        self._tasks = Tasks()
        self.coordinators = Coordinators(lambda key, kind: self.coordinator(key, kind))

    async def start(self) -> None:
        self._tasks.begin(self._refresher.now_and_then())
        if self.settings.connections_max_idle_ms:
            self._tasks.begin(self._close_idle_now_and_then())

    async def close(self) -> None:
        """Everything that waits fails with `_DESTROY`; when this returns no connection, task or timer is left."""
        await self._tasks.close()
        await self._refresher.close()
        await self._bootstrapping.close()
        await self.pool.close()

    # --- metadata

    @property
    def metadata(self) -> Metadata:
        """The newest metadata; a value that does not change, so any thread may look at it."""
        return self._refresher.metadata

    async def refresh(self, topics: Iterable[str | UUID] | None = None) -> Metadata:
        """Ask for these topics, for all that there are (None), or for the brokers alone (an empty list).

        Topics named here are kept up to date from then on, until `forget`; those asked for by their ids are not. A
        topic that is being made is asked for again a few times.
        """
        return await self._refresher.refresh(topics)

    def forget(self, topics: Iterable[str]) -> None:
        self._refresher.forget(topics)

    def learn(self, leaders: Iterable[tuple[str, int, int, int]], brokers: Iterable[BrokerAddress] = ()) -> None:
        """Leaders (topic, partition, node, epoch) and brokers that an answer to Produce or Fetch named."""
        self._refresher.metadata = self.metadata.with_brokers(brokers).with_leaders(leaders)
        self._follow_addresses()

    # --- statistics

    def traffic(self, node_id: int) -> Traffic | None:
        """The counters of a broker; None where statistics are off, or the broker is not known."""
        address = self.metadata.brokers.get(node_id)
        return None if address is None else self.pool.traffic(address.host, address.port)

    def statistics(self) -> list[dict[str, Any]]:
        """Statistics of each broker, and of each bootstrap address at which none of these listens, as librdkafka has
        them."""
        known = {(each.host, each.port): each.node_id for each in self.metadata.brokers.values()}
        addresses = {**dict.fromkeys(self.settings.bootstrap_servers, BOOTSTRAP), **known}
        return [self._told_of(*address, node_id) for address, node_id in addresses.items()]

    def _told_of(self, host: str, port: int, node_id: int) -> dict[str, Any]:
        traffic = self.pool.traffic(host, port)
        connections = self.pool.connections_to(host, port)
        return {
            "name": f"{host}:{port}/{'bootstrap' if node_id == BOOTSTRAP else node_id}",
            "nodeid": node_id,
            "nodename": f"{host}:{port}",
            "source": "configured" if node_id == BOOTSTRAP else "learned",
            "outbuf_cnt": sum(each.held for each in connections),
            "waitresp_cnt": sum(each.in_flight for each in connections),
            **(traffic.fields(asyncio.get_running_loop().time()) if traffic is not None else {}),
            "toppars": {},
        }

    # --- connections

    async def connection(self, node_id: int | None, purpose: str = "") -> Connection:
        """An open connection to this broker, or to any. What waits long (a join) takes a `purpose` of its own."""
        if node_id is not None:
            return await self.pool.connection(await self._endpoint(node_id), purpose)
        opened = self.pool.open_connections()
        if opened:
            return min(opened, key=lambda each: each.in_flight)
        return await self._bootstrapping.do(None, self._any_connection)

    def is_connected(self, node_id: int) -> bool:
        """Whether a connection to this broker is open already."""
        known = self.metadata.brokers.get(node_id)
        return known is not None and self.pool.is_open(_endpoint_of(known))

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
        settings = self.settings
        known = [_endpoint_of(each) for each in self.metadata.brokers.values()]
        given = [Endpoint(host, port) for host, port in settings.bootstrap_servers]
        if known and settings.metadata_recovery_strategy == "none":
            given = []
        failures: list[KafkaError] = []
        for endpoint in (*self._in_turn(known), *self._in_turn(given)):
            try:
                return await self.pool.connection(endpoint)
            except KafkaException as failure:
                failures.append(failure.error)
        error = self._none_answers(failures)
        self._on_error(error)
        raise KafkaException(error)

    def _in_turn(self, endpoints: list[Endpoint]) -> list[Endpoint]:
        """The endpoints in random order, those first that have failed the fewest times."""
        return sorted(endpoints, key=lambda each: (self.pool.failures(each), self._random()))

    def _none_answers(self, failures: list[KafkaError]) -> KafkaError:
        lasting = [error for error in failures if not error.retriable()]
        if lasting:
            return lasting[0]  # a wrong password stays wrong, and says more than that no broker answers
        given = ",".join(f"{host}:{port}" for host, port in self.settings.bootstrap_servers)
        words = f"no broker can be reached (`bootstrap.servers` is {given}); the last one: {failures[-1].str()}"
        return KafkaError(KafkaError._ALL_BROKERS_DOWN, words, retriable=True)

    def _follow_addresses(self) -> None:
        """Close what leads to where no broker is any more, and learn which broker a bootstrap address was."""
        endpoints = {node_id: _endpoint_of(each) for node_id, each in self.metadata.brokers.items()}
        for endpoint in self.pool.endpoints():
            if endpoint.node_id is not None and endpoints.get(endpoint.node_id) != endpoint:
                self.pool.drop(endpoint, "the broker has left, or has another address now")
        by_address = {(each.host, each.port): each for each in endpoints.values()}
        self.pool.forget_others({*by_address, *self.settings.bootstrap_servers})
        for connection in self.pool.open_connections():
            found = by_address.get((connection.endpoint.host, connection.endpoint.port))
            if connection.node_id is None and found is not None:
                self.pool.adopt(connection, found)

    async def _close_idle_now_and_then(self) -> None:
        idle_s = self.settings.connections_max_idle_ms / 1000
        while True:
            await asyncio.sleep(idle_s / IDLE_CHECKS)
            self.pool.close_idle(idle_s)

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

    async def coordinator(self, key: str, kind: int = GROUP) -> int:
        """The node that coordinates this group, or this transactional id. Asked for again while it is being found.
        `coordinators` keeps it."""
        for attempt in range(ATTEMPTS):
            answer = await self.request(None, "find_coordinator", lambda spoken: _find_coordinator(spoken, key, kind))
            found = answer.coordinators[0] if hasattr(answer, "coordinators") else answer
            code = int(found.error_code)
            if code == 0:
                node_id = int(found.node_id)
                if node_id not in self.metadata.brokers:
                    self.learn((), (BrokerAddress(node_id, found.host, int(found.port)),))
                return node_id
            if not is_retriable(code) or attempt == ATTEMPTS - 1:
                break
            await self._refresher.pause(attempt)
        raise KafkaException(error_of(code, getattr(found, "error_message", None)))


def _find_coordinator(spoken: RequestSchema, key: str, kind: int) -> Any:
    return spoken.new("FindCoordinatorRequest", key=key, key_type=kind, coordinator_keys=(key,))


def _endpoint_of(address: BrokerAddress) -> Endpoint:
    return Endpoint(address.host, address.port, address.node_id)
