"""Three brokers as the Compose file has them, beside a real ZooKeeper, and what docs/replication.md does with them."""

import json
import os
import shutil
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from oncelog.chaos.life import Life, free_ports
from oncelog.client import NewTopic, Producer
from oncelog.client.admin import Admin
from tests.cluster.writing import PARTITIONS, Writing, check
from tests.cluster.zookeeper import running_zookeeper
from tests.repo.compose import Here, services
from tests.waiting import until

pytestmark = [pytest.mark.thorough, pytest.mark.peers]
AT_ONCE = 300
START_S = 60


class Machines:
    """Each is a process here."""

    def __init__(self, folder: Path) -> None:
        names = sorted(services("broker"))
        inner, outer = (dict(zip(names, free_ports(len(names)), strict=True)) for _ in range(2))
        zookeeper = f"127.0.0.1:{running_zookeeper().port}/{uuid.uuid4()}"
        self.here = Here(zookeeper, inner, outer, {name: str(folder / name) for name in names})
        self.lives = {name: Life(name, folder / f"{name}.log") for name in names}
        self.servers = ",".join(f"127.0.0.1:{port}" for port in outer.values())

    def start(self, name: str, **variables: str) -> None:
        order = [sys.executable, "-m", "oncelog", *self.here.command(name)]
        environment = os.environ | self.here.environment(name) | variables
        self.lives[name].launch(order, stdin=subprocess.DEVNULL, env=environment)

    def describe(self) -> dict[str, Any]:
        order = [sys.executable, "-m", "oncelog", "cluster", "describe", "-b", self.servers, "-J"]
        done = subprocess.run(order, capture_output=True, text=True, check=False)
        found: dict[str, Any] = json.loads(done.stdout) if done.returncode == 0 else {"brokers": [], "counts": {}}
        return found

    def is_whole(self) -> bool:
        """What the page says to wait for."""
        found = self.describe()
        are_up = [row["state"] for row in found["brokers"]] == ["up"] * len(self.lives)
        return are_up and found["counts"]["under_replicated"] == 0

    def until_whole(self) -> None:
        until(self.is_whole, "all brokers up, and nothing under-replicated", give_up_seconds=START_S)


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[Machines]:
    found = Machines(tmp_path)
    try:
        for name in found.lives:
            found.start(name)
        found.until_whole()
        yield found
    finally:
        for life in found.lives.values():
            life.kill()


def test_brokers_are_upgraded_one_by_one_and_a_lost_machine_is_replaced(machines: Machines) -> None:
    with Admin({"bootstrap.servers": machines.servers}) as admin:
        admin.create_topics([NewTopic("orders", PARTITIONS)])["orders"].result()
    with Producer({"bootstrap.servers": machines.servers, "enable.idempotence": True}) as producer:
        writing = Writing(producer)
        for name, life in machines.lives.items():
            writing.send(AT_ONCE)
            life.stop()
            assert life.process.returncode == 0, life.last_words()
            machines.start(name)
            machines.until_whole()
        writing.send(AT_ONCE)
        writing.end()

        lost = next(iter(machines.lives))
        machines.lives[lost].kill()
        shutil.rmtree(machines.here.data[lost])
        writing.send(AT_ONCE)
        writing.end()
        machines.start(lost, ONCELOG_CLUSTER_FOLDER_LOST="true")
        machines.until_whole()
        machines.lives[lost].stop()
        machines.start(lost)
        machines.until_whole()
        writing.send(AT_ONCE)
        writing.end()
    check(machines.servers, writing)
