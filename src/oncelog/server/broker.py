"""The server: what it owns, how it starts, what it does from time to time, how it stops."""

import asyncio
from random import SystemRandom
from typing import TYPE_CHECKING

from oncelog.clock import Clock, SystemClock
from oncelog.log.config import Flush
from oncelog.log.disk import Disk, RealDisk
from oncelog.producers import ProducerLimits, ProducerMap
from oncelog.producers.leases import KafkaPidIssuer, LeaseIssuer
from oncelog.server.call import Call
from oncelog.server.connections import Connections
from oncelog.server.flusher import Flusher
from oncelog.server.groups.coordinator import GroupCoordinator
from oncelog.server.housekeeping import Housekeeping
from oncelog.server.listener import WILDCARDS, endpoints, listen
from oncelog.server.listeners import parse_address
from oncelog.server.metrics import Metrics
from oncelog.server.ports import Cluster, PidKind
from oncelog.server.settings import Settings
from oncelog.server.topics import Topics
from oncelog.settings import SettingsError

if TYPE_CHECKING:
    from oncelog.server.metrics_http import MetricsServer

STOP_GRACE_S = 5.0


class Broker:
    def __init__(
        self, settings: Settings, cluster: Cluster, *, clock: Clock | None = None, disk: Disk | None = None
    ) -> None:
        self.settings = settings
        self.cluster = cluster
        self.clock: Clock = clock or SystemClock()
        self.leases = LeaseIssuer(
            lambda count: cluster.reserve_pids(PidKind.LEASED, count),
            lifetime_ms=settings.oncelog_lease_lifetime_ms,
            random=SystemRandom(),
            earlier=cluster.lease_periods(),
        )
        self.producer_ids = KafkaPidIssuer(lambda count: cluster.reserve_pids(PidKind.KAFKA, count))
        self.flush = Flush(settings.oncelog_flush)
        self.flusher = Flusher()
        self.topics = Topics(settings, disk or RealDisk(), self._new_producers, self.clock.now())
        self.metrics = Metrics()
        self.groups = GroupCoordinator(settings, self.topics, self.clock, request_flush=self.flusher.request)
        self.housekeeping = Housekeeping(self)
        self.connections = Connections(self)
        self.ports: dict[str, int] = {}
        self.metrics_port: int | None = None
        self._endpoints = endpoints(settings)
        self._servers: list[asyncio.Server] = []
        self._metrics_server: MetricsServer | None = None

    @property
    def node_id(self) -> int:
        return self.cluster.node_id

    @property
    def cluster_id(self) -> str:
        return self.cluster.cluster_id

    def _new_producers(self) -> ProducerMap:
        settings = self.settings
        limits = ProducerLimits(
            lease_lifetime_ms=settings.oncelog_lease_lifetime_ms,
            lease_entries=settings.oncelog_producer_ring_entries,
            kafka_expiration_ms=settings.producer_id_expiration_ms,
            kafka_entries=settings.oncelog_producer_kafka_entries,
        )
        return ProducerMap(self.leases, limits)

    def advertised(self, call: Call) -> tuple[str, int]:
        """Where this client shall connect to: what its listener advertises, or the address that it used."""
        endpoint = next(each for each in self._endpoints if each.name == call.listener)
        host = endpoint.advertised_host or call.local_host
        return host, endpoint.advertised_port or self.ports[endpoint.name]

    def addresses(self) -> str:
        """Where clients can connect, as bootstrap.servers wants it."""
        return ",".join(
            f"{bracketed(each.advertised_host or '127.0.0.1')}:{each.advertised_port or self.ports[each.name]}"
            for each in self._endpoints
        )

    def bound_addresses(self) -> str:
        """Where it listens, and how to get there from here where that is not the same. For people."""
        bound = ",".join(f"{bracketed(each.host) or '*'}:{self.ports[each.name]}" for each in self._endpoints)
        if any(each.host in WILDCARDS for each in self._endpoints):
            return f"{bound} (every interface; clients connect to {self.addresses()})"
        return bound if bound == self.addresses() else f"{bound} (clients connect to {self.addresses()})"

    async def start(self) -> None:
        self.groups.start()
        self._servers, self.ports = await listen(self._endpoints, self.connections)
        self.housekeeping.start()
        if self.settings.oncelog_metrics_listener is not None:
            await self._serve_metrics(self.settings.oncelog_metrics_listener)

    async def _serve_metrics(self, listener: str) -> None:
        # Imported here, since most servers never need it and each start would pay.
        from oncelog.server.exposition import exposition
        from oncelog.server.metrics_http import MetricsServer

        self._metrics_server = MetricsServer(lambda: exposition(self))
        host, port = parse_address("oncelog.metrics.listener", listener)
        try:
            self.metrics_port = await self._metrics_server.start(host, port)
        except OSError as error:
            raise SettingsError(f"cannot serve metrics on {host}:{port}: {error.strerror or error}") from error

    async def stop(self) -> None:
        """Stop listening, let answers leave, put everything on the disk."""
        for server in self._servers:
            server.close()
        self.groups.stop()
        await self.connections.close_all(STOP_GRACE_S)
        if self._metrics_server is not None:
            await self._metrics_server.stop()
        await self.housekeeping.stop()
        await self.flusher.close()
        try:
            self.topics.close()
        finally:
            self.cluster.close()


def bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
