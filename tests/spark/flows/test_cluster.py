"""A flow on a cluster of two hosts: executors and workers of Python die, a host is lost, another one comes, and others
take every slot. What dies, when and in which order, is drawn from the seed; what stands in the end is counted."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest

from tests.lives.processes import await_end, kill
from tests.peers.oncelog_process import OncelogProcess
from tests.runner.flows import Billing
from tests.spark.cluster import StandaloneCluster
from tests.spark.flows import on_cluster
from tests.spark.kills.driver import QUICK_JVM, Driver, Request
from tests.waiting import until

SEEDS = [int(each) for each in os.environ.get("KILLS_SEEDS", "7").split(",")]
HOSTS, CORES = 2, 2
TENURE_S = 6.0  # so that tenants follow one another meanwhile
EACH = 200  # orders, before something happens and after it
PATIENCE_S = 240.0
CONF = {
    "spark.executor.memory": "512m",
    "spark.executor.cores": str(CORES),
    "spark.executor.extraJavaOptions": QUICK_JVM,
    "spark.locality.wait": "0s",
}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[StandaloneCluster]:
    variables = {"SPARK_DAEMON_JAVA_OPTS": QUICK_JVM}
    with StandaloneCluster(tmp_path / "cluster", workers=HOSTS, cores=CORES, variables=variables) as cluster:
        yield cluster


@pytest.fixture
def driver(tmp_path: Path, cluster: StandaloneCluster) -> Iterator[Driver]:
    with Driver(tmp_path / "driver", master=cluster.url, conf=CONF) as driver:
        yield driver


class Work:
    """Orders come while something happens, and each has its sum afterwards."""

    def __init__(self, billing: Billing, random: Random) -> None:
        self.billing = billing
        self.random = random
        self.sent = 0

    def goes_on(self, what: str, happens: Callable[[], object] = lambda: None) -> None:
        self._send()
        self._await(self.random.randrange(1, EACH), what)
        happens()
        self._send()
        self._await(0, what)

    def _send(self) -> None:
        self.billing.send(range(self.sent, self.sent + EACH))
        self.sent += EACH

    def _await(self, left: int, what: str) -> None:
        wanted = self.sent - left
        until(lambda: self.billing.count() >= wanted, f"{wanted} sums {what}", give_up_seconds=PATIENCE_S)


def call(driver: Driver, what: str, **values: object) -> Request:
    return driver.ask("call", what=f"{on_cluster.__name__}:{what}", **values)


@pytest.mark.thorough
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", SEEDS)
def test_executors_die_come_and_are_full_and_nothing_is_lost_or_twice(
    oncelog_server: OncelogProcess, cluster: StandaloneCluster, driver: Driver, topic: str, tmp_path: Path, seed: int
) -> None:
    billing, random = Billing(topic, oncelog_server.bootstrap_servers), Random(seed)
    billing.make_topics()
    work = Work(billing, random)

    def executor(host: int) -> int:
        return until(lambda: cluster.executor_pids(host), f"an executor on host {host}", give_up_seconds=PATIENCE_S)[0]

    def executor_dies(host: int) -> None:
        """With its Python workers: some time later they would see that it is gone."""
        pid = executor(host)
        orphans = cluster.python_pids(pid)
        for each in (pid, *orphans):
            kill(each)
            await_end(each)

    def executor_leaves_orphans(host: int) -> None:
        kill(executor(host))

    def worker_dies() -> None:
        every = [each for pid in cluster.executor_pids() for each in cluster.python_pids(pid)[1:]]
        if every:
            kill(random.choice(every))

    def host_is_lost() -> None:
        lost = random.randrange(HOSTS)
        cluster.kill_worker(lost)

    kills: list[tuple[str, Callable[[], object]]] = [
        ("without the executor of the first host", lambda: executor_dies(0)),
        ("without that of the second, whose workers go on", lambda: executor_leaves_orphans(1)),
        ("without a worker", worker_dies),
    ]
    random.shuffle(kills)
    call(driver, "begin", servers=billing.servers, flow=billing.name, tenure_s=TENURE_S).wait(PATIENCE_S)
    work.goes_on("at first")
    for what, happens in kills:
        work.goes_on(what, happens)
    work.goes_on("without a host", host_is_lost)
    work.goes_on("with another one", cluster.add_worker)
    executor(HOSTS)

    slots = HOSTS * CORES
    others = call(driver, "take_slots", slots=slots, folder=str(tmp_path))
    full = f"others in all {slots} slots"
    until(lambda: len([*tmp_path.glob("taken-*")]) == slots, full, give_up_seconds=PATIENCE_S)
    (tmp_path / "let-go").touch()
    work.goes_on("with room again")
    others.wait(PATIENCE_S)

    call(driver, "end", flow=billing.name).wait(PATIENCE_S)
    billing.flow().run(billing.properties, until="end")  # without Spark, from the same journals
    billing.check(work.sent)
    assert billing.state() == billing.totals(work.sent)
