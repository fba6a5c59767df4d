"""The two servers side by side, and what every row of the table needs from them."""

import itertools
import shutil
import ssl
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from bench.load import ProduceLoad
from bench.process import cpu_seconds
from oncelog.chaos.life import free_ports
from oncelog.server.secure import AUTHORIZER
from tests.client.net.certificates import Authority
from tests.peers.apache import ApacheKafka
from tests.peers.oncelog_process import OncelogProcess
from tests.peers.server_process import ServerProcess
from tests.raw import RawConnection

KAFKA = "kafka"
ONCELOG = "oncelog"

# Deleted topics give their disk space back at once; all else stands at each server's own defaults.
KAFKA_SETTINGS = {"log.segment.delete.delay.ms": "1000", "log.retention.check.interval.ms": "300000"}
ONCELOG_SETTINGS: dict[str, str] = {}

MECHANISM = "SCRAM-SHA-256"
SCRAM_LOGIN = "org.apache.kafka.common.security.scram.ScramLoginModule"

FIRST_WARM_UP_S = 8.0


@dataclass(frozen=True, slots=True)
class Filled:
    topic: str
    end_offset: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Encrypted:
    server: ServerProcess
    port: int  # with TLS
    context: ssl.SSLContext


class Arena:
    def __init__(
        self,
        *,
        seconds: float,
        fill_gb: float,
        restart_gb: float,
        folder: Path | None = None,
        before: Path | None = None,
    ) -> None:
        self.seconds = seconds
        self.fill_gb = fill_gb
        self.restart_gb = restart_gb
        self._before = before  # a checkout of oncelog whose server stands where Kafka's does
        self.folder = Path(tempfile.mkdtemp(prefix="oncelog-bench-", dir=folder))
        self._servers: dict[str, ServerProcess] = {}
        self._encrypted: dict[str, Encrypted] = {}
        self._guarded: dict[str, tuple[ServerProcess, int]] = {}
        self._filled: dict[str, Filled] = {}
        self._warm: set[tuple[str, int]] = set()
        self._numbers = itertools.count()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for server in self._servers.values():
            server.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def new_server(self, peer: str, **settings: str) -> ServerProcess:
        """One that is not started yet, in a folder of its own."""
        folder = self.folder / f"{peer}-{next(self._numbers)}"
        given = {key.replace("_", "."): value for key, value in settings.items()}
        if peer == KAFKA and self._before is not None:
            return OncelogProcess(folder, settings=ONCELOG_SETTINGS | given, sources=self._before / "src")
        if peer == KAFKA:
            return ApacheKafka(folder, settings=KAFKA_SETTINGS | given)
        return OncelogProcess(folder, settings=ONCELOG_SETTINGS | given)

    def encrypted(self, peer: str) -> Encrypted:
        """One that listens with TLS as well; the rows of TLS share it."""
        if peer not in self._encrypted:
            authority = self.folder / "authority"
            if not authority.exists():
                authority.mkdir()
                Authority(authority).signs("server")
            pem = authority / "keystore.pem"
            pem.write_text((authority / "server.key").read_text() + (authority / "server.pem").read_text())
            settings = {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(pem)}
            server, port = self._with_second_door(peer, "SSL", settings)
            context = ssl.create_default_context(cafile=str(authority / "authority.pem"))
            self._encrypted[peer] = Encrypted(server, port, context)
        return self._encrypted[peer]

    def guarded(self, peer: str) -> tuple[ServerProcess, int]:
        """One that asks for a proof behind the port that is told, and for rights at each request; its first port may
        do everything."""
        if peer not in self._guarded:
            settings = {"authorizer.class.name": AUTHORIZER, "super.users": "User:ANONYMOUS"}
            if peer == KAFKA:
                settings["sasl.enabled.mechanisms"] = MECHANISM
                door = f"listener.name.sasl_plaintext.{MECHANISM.lower()}"
                settings[f"{door}.sasl.jaas.config"] = f"{SCRAM_LOGIN} required;"
            self._guarded[peer] = self._with_second_door(peer, "SASL_PLAINTEXT", settings)
        return self._guarded[peer]

    def _with_second_door(self, peer: str, protocol: str, settings: dict[str, str]) -> tuple[ServerProcess, int]:
        port = free_ports(1)[0]
        server = self.new_server(peer)
        listeners = f"PLAINTEXT://{server.bootstrap_servers},{protocol}://127.0.0.1:{port}"
        if isinstance(server, ApacheKafka):
            known = server.settings
            protocols = f"{known['listener.security.protocol.map']},{protocol}:{protocol}"
            settings |= {"listener.security.protocol.map": protocols, "advertised.listeners": listeners}
            listeners += f",CONTROLLER{known['listeners'].partition('CONTROLLER')[2]}"
        assert isinstance(server, ApacheKafka | OncelogProcess)
        server.settings = {**server.settings, **settings, "listeners": listeners}
        server.start()
        self._servers[f"{peer} with {protocol}"] = server
        return server, port

    def server(self, peer: str) -> ServerProcess:
        """The one that most rows share."""
        if peer not in self._servers:
            self._servers[peer] = server = self.new_server(peer)
            server.start()
        return self._servers[peer]

    def warm_up_seconds(self, peer: str, records_per_batch: int) -> float:
        """Kafka is compiled while it runs: the first time with a size of batches it is given longer. `peer` may be any
        name of a server."""
        if (peer, records_per_batch) in self._warm:
            return self.seconds / 4
        self._warm.add((peer, records_per_batch))
        return FIRST_WARM_UP_S

    @contextmanager
    def topic(self, peer: str, partitions: int = 1, *, server: ServerProcess | None = None) -> Iterator[str]:
        """A topic of its own, deleted afterwards so that disks do not fill up."""
        name = f"bench-{next(self._numbers)}"
        with RawConnection((server or self.server(peer)).port, timeout_s=120) as connection:
            connection.create_topic(name, partitions, patience_s=120)
            try:
                yield name
            finally:
                connection.delete_topic(name)

    def filled(self, peer: str) -> Filled:
        """A topic of `fill_gb` in batches of 16 KB, written once."""
        if peer not in self._filled:
            name = f"filled-{next(self._numbers)}"
            port = self.server(peer).port
            with RawConnection(port) as connection:
                connection.create_topic(name)
            self._filled[peer] = fill(port, name, self.fill_gb)
        return self._filled[peer]

    def segment(self, peer: str, topic: str) -> Path:
        """The first segment file of its partition 0."""
        found = sorted(self.server(peer).data.rglob(f"{topic}-0/*.log"))
        if not found:
            found = sorted(path for path in self.server(peer).data.rglob("*.log") if topic in str(path.parent))
        return found[0]


def fill(port: int, topic: str, gb: float, *, partition: int = 0, records_per_batch: int = 150) -> Filled:
    load = ProduceLoad(port, topic, records_per_batch, partition=partition)
    size_bytes, records = 0, records_per_batch
    while size_bytes < gb * 1e9:
        done = load.run(max(1, min(5_000, int(gb * 1e9 / (records_per_batch * 109)))), 4)
        size_bytes += done.size_bytes
        records += done.records
    load.close()
    return Filled(topic, records, size_bytes)


@contextmanager
def processor_time(server: ServerProcess) -> Iterator[list[float]]:
    """The server's processor seconds within the block, as the list's only member."""
    spent: list[float] = []
    before = cpu_seconds(server.pid)
    yield spent
    spent.append(cpu_seconds(server.pid) - before)
