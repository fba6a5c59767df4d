"""A broker at work: where it listens, what it does from time to time, how it stops."""

import asyncio
from typing import TYPE_CHECKING

from oncelog.server.broker import Broker
from oncelog.server.connections import Connections
from oncelog.server.listener import listen
from oncelog.server.tls import LOOK_MS
from oncelog.settings import parse_address

if TYPE_CHECKING:
    from oncelog.server.metrics_port import MetricsPort

STOP_GRACE_S = 5.0


class Service:
    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.connections = Connections(broker)
        self.metrics_port: int | None = None
        self._servers: list[asyncio.Server] = []
        self._metrics_port: MetricsPort | None = None

    async def start(self) -> None:
        broker = self.broker
        broker.groups.start()
        broker.transactions.start()
        self._servers, ports = await listen(broker.endpoints, self.connections)
        broker.listens(ports)
        broker.housekeeping.start(self.connections.close_idle)
        if broker.tls:
            broker.housekeeping.every(LOOK_MS, broker.look_at_certificates)
        if broker.settings.oncelog_metrics_listener is not None:
            await self._serve_metrics(broker.settings.oncelog_metrics_listener)

    async def _serve_metrics(self, listener: str) -> None:
        from oncelog.server.metrics_port import MetricsPort  # most servers never need it, and each start would pay

        self._metrics_port = port = MetricsPort(self.broker, *parse_address("oncelog.metrics.listener", listener))
        await port.start()
        self.metrics_port = port.port

    async def stop(self) -> None:
        """Stop listening, let answers leave, put everything on the disk."""
        broker = self.broker
        for server in self._servers:
            server.close()
        broker.groups.stop()
        broker.transactions.stop()
        await self.connections.close_all(STOP_GRACE_S)
        if self._metrics_port is not None:
            await self._metrics_port.stop()
        await broker.close()
