"""A real Apache Kafka (KRaft, one node) from its published jars."""

import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from oncelog.chaos.life import free_ports
from tests.peers.jars import BROKER_JVM, MissingPeer, kafka_jars, kafka_java, need_or_skip
from tests.peers.server_process import ServerProcess
from tests.raw import RawConnection

CLUSTER_ID = "b25jZWxvZy1wZWVyLTAwMA"
ABORTS_EVERY = "transaction.abort.timed.out.transaction.cleanup.interval.ms"  # ten seconds, without it
QUICK_BROKER = ("-Xmx512m", "-XX:TieredStopAtLevel=1")


class ApacheKafka(ServerProcess):
    """Kafka's defaults, except what one node needs and that a new group does not wait three seconds for company."""

    called = "Apache Kafka"
    start_seconds = 240.0  # eight of them beside each other take their time; one that ends is noticed at once

    def __init__(
        self, folder: Path, *, settings: dict[str, str] | None = None, jvm: tuple[str, ...] = BROKER_JVM
    ) -> None:
        port, controller_port = free_ports(2)
        super().__init__(folder, port)
        self._jvm = jvm
        self._controller = f"127.0.0.1:{controller_port}"
        self._config = folder / "server.properties"
        self.settings = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@{self._controller}",
            "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://{self._controller}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "log.dirs": str(self.data),
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "group.initial.rebalance.delay.ms": "0",
            **(settings or {}),
        }

    def join(self, others: Sequence["ApacheKafka"]) -> None:
        """Before it is started: it is one of these, numbered from 1 in their order; each is broker and controller."""
        voters = ",".join(f"{number}@{each._controller}" for number, each in enumerate(others, 1))
        self.settings |= {"node.id": str(others.index(self) + 1), "controller.quorum.voters": voters}

    def command(self) -> list[str]:
        return kafka_java("kafka.Kafka", str(self._config), jvm=self._jvm)

    def prepare(self) -> None:
        self._config.write_text("".join(f"{key}={value}\n" for key, value in self.settings.items()))
        if (self.data / "meta.properties").exists():
            return
        order = kafka_java("kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(self._config))
        subprocess.run(order, check=True, capture_output=True, timeout=self.start_seconds)

    def ready(self, connection: RawConnection) -> bool:
        """A fresh broker answers before it can grant a producer id; only then is it of use."""
        if not super().ready(connection):
            return False
        connection.init_producer_id()
        return True


@contextmanager
def quick_kafka(folder: Path, settings: dict[str, str] | None = None) -> Iterator[ApacheKafka]:
    """One that is up soon and small; the test that asks for it is left out where a machine has no Kafka."""
    try:
        kafka_jars()
    except MissingPeer as missing:
        need_or_skip(missing)
    with ApacheKafka(folder, settings=settings, jvm=QUICK_BROKER) as server:
        yield server
