"""A flow on a cluster of two hosts: executors die, one host goes and comes back, and others take every slot."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from oncelog.chaos.life import Life
from tests.peers.oncelog_process import OncelogProcess
from tests.repo.tree import ROOT
from tests.runner.flows import Billing
from tests.spark.cluster import StandaloneCluster
from tests.spark.flows.cluster_driver import LEFT
from tests.waiting import until

WAITS_S = 120.0
DRIVER = Path(__file__).with_name("cluster_driver.py")
QUICK_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
SETTINGS = {
    "spark.executor.memory": "512m",
    "spark.executor.cores": "2",
    "spark.executor.extraJavaOptions": QUICK_JVM,
    "spark.driver.extraJavaOptions": QUICK_JVM,
    "spark.driver.host": "127.0.0.1",
    "spark.locality.wait": "0s",
    "spark.ui.enabled": "false",
}

Start = Callable[[Billing], Life]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[StandaloneCluster]:
    paths = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    variables = {"PYTHONPATH": paths, "PYSPARK_PYTHON": sys.executable}
    with StandaloneCluster(tmp_path / "cluster", workers=2, cores=2, variables=variables) as cluster:
        yield cluster


@pytest.fixture
def start(cluster: StandaloneCluster, tmp_path: Path) -> Iterator[Start]:
    life = Life("the driver", tmp_path / "driver.log")

    def started(billing: Billing) -> Life:
        conf = tmp_path / "conf"
        conf.mkdir()
        (conf / "spark-defaults.conf").write_text("".join(f"{name} {value}\n" for name, value in SETTINGS.items()))
        paths = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
        variables: dict[str, Any] = {"PYTHONPATH": paths, "SPARK_CONF_DIR": str(conf), "SPARK_LOCAL_IP": "127.0.0.1"}
        order = [sys.executable, str(DRIVER), cluster.url, billing.servers, billing.name]
        life.launch(order, cwd=tmp_path, env=os.environ | variables, stdin=subprocess.PIPE)
        life.await_words("(it is at work)", WAITS_S)
        return life

    yield started
    life.stop()


@pytest.mark.thorough
def test_executors_that_die_come_back_and_are_full_repeat_nothing(
    oncelog_server: OncelogProcess, cluster: StandaloneCluster, start: Start, topic: str, tmp_path: Path
) -> None:
    billing = Billing(topic, oncelog_server.bootstrap_servers)
    billing.make_topics()
    driver, sent = start(billing), 0

    def goes_on(what: str) -> None:
        nonlocal sent
        billing.send(range(sent, sent + 200))
        sent += 200
        until(lambda: billing.count() >= sent, f"{sent} sums {what}", give_up_seconds=WAITS_S)

    goes_on("at first")
    for number in (0, 1):
        executors = cluster.executor_pids(number)
        cluster.kill_executor(number)
        goes_on(f"without executor {number}")
        until(lambda: cluster.executor_pids(number) not in ([], executors), "another executor")
    cluster.kill_worker(0)
    goes_on("with one host")
    cluster.start_worker(0)
    goes_on("with both again")
    stdin = driver.process.stdin
    assert stdin is not None
    released = tmp_path / "released"
    stdin.write(f"{released}\n".encode())
    stdin.flush()
    until(lambda: len([*tmp_path.glob("released-*")]) == LEFT, "others in every slot", give_up_seconds=WAITS_S)
    goes_on("where all is full")
    released.touch()
    goes_on("with room again")
    stdin.close()
    driver.await_words("(it has ended: None)", WAITS_S)
    billing.flow().run(billing.properties, until="end")
    billing.check(sent)
    assert billing.state() == billing.totals(sent)
