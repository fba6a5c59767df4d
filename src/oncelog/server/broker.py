"""The server: what it owns, how it starts, what it does from time to time, how it stops."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from random import SystemRandom

from oncelog.clock import Clock, SystemClock
from oncelog.log.config import Flush
from oncelog.log.disk import Disk, RealDisk
from oncelog.producers import ProducerLimits, ProducerMap
from oncelog.producers.leases import KafkaPidIssuer, LeaseIssuer
from oncelog.server.call import Call
from oncelog.server.connections import Connections
from oncelog.server.flusher import Flusher
from oncelog.server.groups.coordinator import GroupCoordinator
from oncelog.server.listener import endpoints, listen
from oncelog.server.ports import Cluster, PidKind
from oncelog.server.settings import Settings
from oncelog.server.topics import Topics

logger = logging.getLogger(__name__)

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
        self.groups = GroupCoordinator(
            settings, self.topics, self.clock, asyncio.get_running_loop().call_later, self.flusher.request
        )
        self.connections = Connections(self)
        self.ports: dict[str, int] = {}
        self._endpoints = endpoints(settings)
        self._servers: list[asyncio.Server] = []
        self._tasks: list[asyncio.Task[None]] = []

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
            f"{_bracketed(each.advertised_host or '127.0.0.1')}:{each.advertised_port or self.ports[each.name]}"
            for each in self._endpoints
        )

    async def start(self) -> None:
        self.groups.start()
        self._servers, self.ports = await listen(self._endpoints, self.connections)
        self._every(self.settings.log_retention_check_interval_ms, self._maintain)
        self._every(min(self.settings.connections_max_idle_ms, 10_000) / 2, self._close_idle)

    async def stop(self) -> None:
        """Stop listening, let answers leave, put everything on the disk."""
        for server in self._servers:
            server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self.groups.stop()
        await self.connections.close_all(STOP_GRACE_S)
        await self.flusher.close()
        self.topics.close()
        self.cluster.close()

    def _every(self, interval_ms: float, work: Callable[[], Awaitable[None]]) -> None:
        async def repeat() -> None:
            while True:
                await asyncio.sleep(interval_ms / 1000)
                try:
                    await work()
                except Exception:
                    logger.exception("%s failed; it will be tried again", getattr(work, "__name__", "work"))

        self._tasks.append(asyncio.get_running_loop().create_task(repeat()))

    async def _maintain(self) -> None:
        for log in list(self.topics.logs()):
            log.maintain(self.clock.now())
            await asyncio.sleep(0)

    async def _close_idle(self) -> None:
        self.connections.close_idle()


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
