"""Three brokers of each kind side by side, with the same settings of topics, and what the rows need of them."""

import itertools
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

from bench.arena import KAFKA, ONCELOG
from bench.process import ROOT, cpu_seconds
from oncelog.chaos.life import HOST, free_ports
from oncelog.cluster.parent import copies
from oncelog.server.errors import ErrorCode
from tests.cluster.zookeeper import ZooKeeper
from tests.peers.apache import ApacheKafka
from tests.peers.oncelog_process import SOURCES, OncelogProcess
from tests.peers.server_process import ServerProcess
from tests.raw import RawConnection

ZOOKEEPER = "oncelog on ZooKeeper"
BROKERS = 3
PARTITIONS = 3
NODES = range(1, BROKERS + 1)
PATIENCE_S = 240
LOOK_S = 0.005
Leaders = list[tuple[int, int, int]]  # of each partition: leader, its epoch, how many are in sync


class Three(ABC):
    """Three brokers, numbered from 1, all on this machine."""

    ports: list[int]

    @abstractmethod
    def begin(self) -> None:
        """Starts all of it; returns before it can be used."""

    @abstractmethod
    def await_up(self) -> None: ...

    @abstractmethod
    def pid(self, node: int) -> int: ...

    @abstractmethod
    def start(self, node: int) -> None:
        """Again, where it was before; returns when it is up."""

    @abstractmethod
    def stop(self, node: int) -> None:
        """In an orderly way."""

    @abstractmethod
    def kill(self, node: int) -> None: ...

    @abstractmethod
    def end(self) -> None:
        """Whatever state it is in."""

    @property
    def pids(self) -> list[int]:
        """Of everything that belongs to it."""
        return [self.pid(node) for node in NODES]

    @property
    def servers(self) -> str:
        return ",".join(f"{HOST}:{port}" for port in self.ports)

    def pause(self, node: int) -> None:
        os.kill(self.pid(node), signal.SIGSTOP)

    def resume(self, node: int) -> None:
        os.kill(self.pid(node), signal.SIGCONT)

    # What they say

    def leaders(self, topic: str, without: int = 0) -> list[Leaders]:
        """As each broker tells it, but for one that is away."""
        told = []
        for port in (port for node, port in zip(NODES, self.ports, strict=True) if node != without):
            with RawConnection(port, timeout_s=10) as raw:
                named = {"topic_id": None, "name": topic}
                (answer,) = raw.call("metadata", 12, topics=[named], allow_auto_topic_creation=False).topics
            partitions = sorted(answer.partitions, key=lambda each: each.partition_index)
            told.append([(each.leader_id, each.leader_epoch, len(each.isr_nodes)) for each in partitions])
        return told

    def leader(self, topic: str) -> int:
        return self.leaders(topic)[0][0][0]

    def await_in_sync(self, topic: str, partitions: int) -> None:
        """Until every broker says the same: who leads, and that all have everything."""

        def is_so() -> bool:
            told = self.leaders(topic)
            whole = len(told[0]) == partitions and all(lead > 0 and count == BROKERS for lead, _, count in told[0])
            return whole and all(each == told[0] for each in told)

        until(is_so, f"{topic} to be in sync")

    def create(self, topic: str, partitions: int) -> None:
        """As soon as the brokers take it, and know of each other."""

        def is_made() -> bool:
            wanted = {"name": topic, "num_partitions": partitions, "replication_factor": BROKERS}
            with RawConnection(self.ports[0], timeout_s=30) as raw:
                answer = raw.call(
                    "create_topics",
                    5,
                    topics=[wanted | {"assignments": [], "configs": []}],
                    timeout=20_000,
                    validate_only=False,
                )
            return answer.topics[0].error_code in (ErrorCode.none, ErrorCode.topic_already_exists)

        until(is_made, f"{topic} to be created")

    @contextmanager
    def topic(self, name: str, partitions: int = PARTITIONS) -> Iterator[str]:
        """One that all have everything of; deleted afterwards, so that disks do not fill up."""
        self.create(name, partitions)
        try:
            self.await_in_sync(name, partitions)
            yield name
        finally:
            with RawConnection(self.ports[0], timeout_s=30) as raw:
                raw.delete_topic(name)


def until(is_so: Callable[[], bool], what: str) -> None:
    """What is asked may be away for now."""
    give_up_s = time.monotonic() + PATIENCE_S
    while True:
        try:
            if is_so():
                return
        except OSError:
            pass
        if time.monotonic() > give_up_s:
            raise TimeoutError(f"waited {PATIENCE_S} s for {what}")
        time.sleep(LOOK_S)


class Processes(Three):
    """Brokers that are started one by one."""

    def __init__(self, brokers: Sequence[ServerProcess]) -> None:
        self._brokers = brokers
        self.ports = [each.port for each in brokers]

    def begin(self) -> None:
        for each in self._brokers:
            each.begin()

    def await_up(self) -> None:
        for each in self._brokers:
            each.await_first_answer()

    def pid(self, node: int) -> int:
        return self._brokers[node - 1].pid

    def start(self, node: int) -> None:
        self._brokers[node - 1].start()

    def stop(self, node: int) -> None:
        self._brokers[node - 1].stop(PATIENCE_S)

    def kill(self, node: int) -> None:
        self._brokers[node - 1].kill()

    def end(self) -> None:
        for each in self._brokers:
            each.kill()


class KafkaThree(Processes):
    """Each is broker and controller; with the JVM settings of Kafka's own start script."""

    def __init__(self, folder: Path) -> None:
        given = {
            **copies(BROKERS),
            "transaction.state.log.replication.factor": str(BROKERS),
            "transaction.state.log.min.isr": "2",
            "log.segment.delete.delay.ms": "1000",  # deleted topics give their disk space back at once
        }
        brokers = [ApacheKafka(folder / str(node), settings=given) for node in NODES]
        for each in brokers:
            each.join(brokers)
        super().__init__(brokers)

    def prepare(self) -> None:
        """The folders are formatted, which is no part of a start."""
        for each in self._brokers:
            each.prepare_folder()


class OnZooKeeper(Processes):
    def __init__(self, folder: Path, sources: Path) -> None:
        folder.mkdir(parents=True)
        self._tree = ZooKeeper(folder)
        where = f"zk://{HOST}:{self._tree.port}/bench"
        super().__init__(
            [
                OncelogProcess(
                    folder / str(node),
                    settings=copies(BROKERS) | {"node.id": str(node), "oncelog.cluster": where},
                    sources=sources,
                )
                for node in NODES
            ]
        )

    @property
    def pids(self) -> list[int]:
        return [self._tree.pid, *super().pids]

    def begin(self) -> None:
        self._tree.start()
        super().begin()

    def end(self) -> None:
        super().end()
        self._tree.kill()


class OncelogThree(Three):
    """Brokers on one machine with the process that serves their tree, as `oncelog cluster start` has them."""

    def __init__(self, folder: Path, sources: Path) -> None:
        self._folder = folder
        self._sources = sources
        self.ports = free_ports(BROKERS)
        self._pids: dict[int, int] = {}
        self._parent: subprocess.Popen[str] | None = None

    def begin(self) -> None:
        self._folder.mkdir(parents=True)
        command = [sys.executable, "-m", "bench.cluster_parent", str(self._folder), *self.servers.split(",")]
        variables = os.environ | {"PYTHONPATH": os.pathsep.join((str(self._sources), str(ROOT)))}
        with open(self._folder / "parent.log", "ab") as log:
            self._parent = subprocess.Popen(
                command,
                cwd=ROOT,
                env=variables,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            )

    def await_up(self) -> None:
        self._pids = dict(zip(NODES, self._heard(), strict=True))

    def _heard(self) -> list[int]:
        parent = self._running()
        assert parent.stdout is not None
        line = parent.stdout.readline()
        if not line:
            raise RuntimeError(f"the parent ended: {(self._folder / 'parent.log').read_text()[-2000:]}")
        return [int(word) for word in line.split()]

    def _running(self) -> "subprocess.Popen[str]":
        if self._parent is None:
            raise RuntimeError("it was never started")
        return self._parent

    def _order(self, what: str, node: int) -> None:
        parent = self._running()
        assert parent.stdin is not None
        print(what, node, file=parent.stdin, flush=True)
        (self._pids[node],) = self._heard()

    @property
    def pids(self) -> list[int]:
        return [self._running().pid, *super().pids]

    def pid(self, node: int) -> int:
        return self._pids[node]

    def start(self, node: int) -> None:
        self._order("start", node)

    def stop(self, node: int) -> None:
        self._order("stop", node)

    def kill(self, node: int) -> None:
        self._order("kill", node)

    def end(self) -> None:
        """Brokers end with their parent's pipe, also those that hang."""
        if self._parent is None:
            return
        for pid in self._pids.values():
            if pid:
                os.kill(pid, signal.SIGKILL)
        self._parent.kill()
        self._parent.communicate()


class ClusterArena:
    """`before`: a checkout of oncelog whose brokers stand where Kafka's do."""

    def __init__(
        self, *, seconds: float, kills: int, pauses: int, folder: Path | None = None, before: Path | None = None
    ) -> None:
        self.seconds = seconds
        self.kills = kills
        self.pauses = pauses
        self._before = before
        self.folder = Path(tempfile.mkdtemp(prefix="oncelog-bench-", dir=folder))
        self._shared: dict[str, Three] = {}
        self._numbers = itertools.count()
        self._warm: set[tuple[str, str]] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for three in self._shared.values():
            three.end()
        shutil.rmtree(self.folder, ignore_errors=True)

    def new(self, peer: str) -> Three:
        """Not started yet, in a folder of its own."""
        folder = self.folder / f"{next(self._numbers)}"
        if peer == ONCELOG:
            return OncelogThree(folder, SOURCES)
        if peer == ZOOKEEPER:
            return OnZooKeeper(folder, SOURCES)
        if self._before is not None:
            return OncelogThree(folder, self._before / "src")
        kafka = KafkaThree(folder)
        kafka.prepare()
        return kafka

    def three(self, peer: str) -> Three:
        """Those that most rows share."""
        if peer not in self._shared:
            self._shared[peer] = three = self.new(peer)
            three.begin()
            three.await_up()
        return self._shared[peer]

    def new_name(self) -> str:
        return f"bench-{next(self._numbers)}"

    def warm_up_seconds(self, peer: str, row: str) -> float:
        """Kafka is compiled while it runs: the first time with a size of batches it is given longer."""
        if peer != KAFKA or (peer, row) in self._warm:
            return self.seconds / 3
        self._warm.add((peer, row))
        return self.seconds * 2


@contextmanager
def processor_time(three: Three) -> Iterator[list[float]]:
    """Processor seconds of all its processes within the block, as the list's only member."""
    spent: list[float] = []
    before = sum(map(cpu_seconds, three.pids))
    yield spent
    spent.append(sum(map(cpu_seconds, three.pids)) - before)
