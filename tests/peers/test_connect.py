"""Kafka Connect's exactly-once source (KIP-618) on our server, and on three brokers: a distributed worker carries the
lines of a file, and both are killed. The offsets of the file are committed in the transactions that the lines are in.

A worker that is started reads the topic of offsets to its end, and so waits for the minute that the transaction of the
killed one has left, as it does on Kafka."""

import json
import urllib.request
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from oncelog import Server
from oncelog.chaos.life import Life, free_ports
from tests.peers.committed import all_committed, committed
from tests.peers.jars import MissingPeer, connect_jars, kafka_java, need_or_skip
from tests.peers.oncelog_process import OncelogProcess
from tests.waiting import until

PATIENCE_S = 180.0
LINES = 2_000
AT_ONCE = 20  # lines of a transaction
TOPIC = "carried"


class Worker(Life):
    def __init__(self, folder: Path, servers: str, copies: int = 1) -> None:
        super().__init__("Connect", folder / "connect.log")
        self.url = f"http://127.0.0.1:{free_ports(1)[0]}"
        self._file = folder / "connect.properties"
        self._folder = folder
        settings = {
            "bootstrap.servers": servers,
            "group.id": "connect",
            "exactly.once.source.support": "enabled",
            "key.converter": "org.apache.kafka.connect.storage.StringConverter",
            "value.converter": "org.apache.kafka.connect.storage.StringConverter",
            "plugin.discovery": "service_load",
            "listeners": self.url,
            "session.timeout.ms": "6000",
            "heartbeat.interval.ms": "1000",
            "scheduled.rebalance.max.delay.ms": "0",  # who was killed is not waited for
            "offset.storage.partitions": "1",
            "status.storage.partitions": "1",
            **{f"{kind}.storage.topic": f"connect-{kind}" for kind in ("config", "offset", "status")},
            **{f"{kind}.storage.replication.factor": str(copies) for kind in ("config", "offset", "status")},
        }
        self._file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))

    def begin(self) -> None:
        main = "org.apache.kafka.connect.cli.ConnectDistributed"
        self.launch(kafka_java(main, str(self._file), beside=(connect_jars(),)), cwd=self._folder, env=None)

    def restart(self) -> None:
        self.kill()
        self.begin()

    def carry(self, file: Path, topic: str) -> None:
        """From now on, also after a restart."""
        config = {
            "connector.class": "org.apache.kafka.connect.file.FileStreamSourceConnector",
            "exactly.once.support": "required",
            "tasks.max": "1",
            "file": str(file),
            "topic": topic,
            "batch.size": str(AT_ONCE),
        }
        asked = urllib.request.Request(
            f"{self.url}/connectors/lines/config",
            json.dumps(config).encode(),
            {"Content-Type": "application/json"},
            method="PUT",
        )

        def ask() -> bool:
            try:
                with urllib.request.urlopen(asked, timeout=30):
                    return True
            except OSError:  # it is not up, or not yet one of its group
                return False

        self.await_ready(ask, PATIENCE_S, 0.2)


class Carrying:
    """Lines from a file into a topic, half of which come to be while the rest is read, and what happens meanwhile."""

    def __init__(self, folder: Path, servers: str, copies: int = 1) -> None:
        # Long ones: those that stand in the buffer behind a full transaction wait there until the file grows.
        self.lines = [b"%01000d" % number for number in range(LINES)]
        self._source = folder / "source.txt"
        self._source.write_bytes(b"".join(line + b"\n" for line in self.lines[: LINES // 2]))
        self._servers = servers
        self.worker = Worker(folder, servers, copies)

    def run(self, at: Mapping[int, Callable[[], object]]) -> None:
        """`at`: what is done once so many are there."""
        try:
            self.worker.begin()
        except MissingPeer as missing:
            need_or_skip(missing)
        try:
            self.worker.carry(self._source, TOPIC)
            for number, _ in enumerate(committed(self._servers, TOPIC, 1, LINES)):
                if number == LINES // 4:
                    with self._source.open("ab") as file:
                        file.write(b"".join(line + b"\n" for line in self.lines[LINES // 2 :]))
                if number in at:
                    at[number]()
        except AssertionError as failure:
            failure.add_note(self.worker.last_words())
            raise
        finally:
            self.worker.kill()

    def check(self) -> None:
        assert [each.value() for each in all_committed(self._servers, TOPIC, 1)] == self.lines


@pytest.mark.thorough
@pytest.mark.timeout(600)
def test_a_files_lines_are_carried_exactly_once_though_worker_and_server_are_killed(tmp_path: Path) -> None:
    with OncelogProcess(tmp_path / "server") as server:
        carrying = Carrying(tmp_path, server.bootstrap_servers)

        def restart() -> None:
            server.kill()
            server.start()

        again = carrying.worker.restart
        carrying.run({100: again, LINES // 4: restart, LINES // 2 + 100: again, LINES * 3 // 4: restart})
        carrying.check()


@pytest.mark.thorough
@pytest.mark.timeout(900)
def test_a_files_lines_are_carried_exactly_once_though_worker_and_leaders_are_killed(tmp_path: Path) -> None:
    """Of what is carried, of the transactions, and of the topic in which the file's offsets are."""
    with Server(brokers=3) as server:
        admin = AdminClient({"bootstrap.servers": server.bootstrap_servers})
        down: list[int] = []

        def all_are_in_sync() -> bool:
            topics = admin.list_topics(timeout=10).topics.values()
            return all(len(part.isrs) == 3 for topic in topics for part in topic.partitions.values())

        def kill_leader(topic: str) -> None:
            leader = admin.list_topics(topic, timeout=10).topics[topic].partitions[0].leader
            server.kill(leader)
            down.append(leader)

        def bring_back() -> None:
            server.start(down[-1])
            until(all_are_in_sync, "all in sync", give_up_seconds=PATIENCE_S)

        carrying = Carrying(tmp_path, server.bootstrap_servers, copies=3)
        killed = (TOPIC, "__transaction_state", "connect-offset")
        at: dict[int, Callable[[], object]] = {100: carrying.worker.restart, LINES // 2 + 100: carrying.worker.restart}
        for begin, topic in zip((LINES // 8, LINES * 3 // 8, LINES * 6 // 8), killed, strict=True):
            at |= {begin: partial(kill_leader, topic), begin + LINES // 8: bring_back}
        carrying.run(at)
        assert len(down) == 3
        carrying.check()
