"""Kafka Connect's exactly-once source (KIP-618) on our server: a distributed worker carries the lines of a file, and
both are killed. The offsets of the file are committed in the transactions that the lines are in.

A worker that is started reads the topic of offsets to its end, and so waits for the minute that the transaction of the
killed one has left, as it does on Kafka."""

import json
import urllib.request
from pathlib import Path

import pytest

from oncelog.chaos.life import Life, free_ports
from tests.peers.committed import all_committed, committed
from tests.peers.jars import MissingPeer, connect_jars, kafka_java, need_or_skip
from tests.peers.oncelog_process import OncelogProcess

PATIENCE_S = 180.0
LINES = 2_000
AT_ONCE = 20  # lines of a transaction


class Worker(Life):
    def __init__(self, folder: Path, servers: str) -> None:
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
            **{f"{kind}.storage.replication.factor": "1" for kind in ("config", "offset", "status")},
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


@pytest.mark.thorough
@pytest.mark.timeout(600)
def test_a_files_lines_are_carried_exactly_once_though_worker_and_server_are_killed(tmp_path: Path) -> None:
    # Long ones: those that stand in the connector's buffer behind a full transaction wait there until the file grows.
    lines = [b"%01000d" % number for number in range(LINES)]
    source = tmp_path / "source.txt"
    source.write_bytes(b"".join(line + b"\n" for line in lines[: LINES // 2]))
    with OncelogProcess(tmp_path / "server") as server:
        try:
            worker = Worker(tmp_path, server.bootstrap_servers)
            worker.begin()
        except MissingPeer as missing:
            need_or_skip(missing)
        try:
            worker.carry(source, "carried")
            for number, _ in enumerate(committed(server.bootstrap_servers, "carried", 1, LINES)):
                if number == LINES // 4:
                    with source.open("ab") as file:
                        file.write(b"".join(line + b"\n" for line in lines[LINES // 2 :]))
                if number in (100, LINES // 2 + 100):
                    worker.restart()
                if number in (LINES // 4, LINES * 3 // 4):
                    server.kill()
                    server.start()
        except AssertionError as failure:
            failure.add_note(worker.last_words())
            raise
        finally:
            worker.kill()
        found = all_committed(server.bootstrap_servers, "carried", 1)
        assert [each.value() for each in found] == lines
