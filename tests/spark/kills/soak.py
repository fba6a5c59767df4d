"""Integers through two queries in a row, while drivers and executors are killed at random; then every row is counted.

    in -> none, one or many rows of each -> middle -> none, one or many of each -> out

Both queries run in one driver, on a cluster of two hosts. Where the next kill falls is a number of rows drawn from the
seed: it comes when so many more have arrived in both outputs, so almost always in the middle of batches.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from tests.lives.processes import await_end, kill
from tests.lives.stored import end_offsets
from tests.peers.server_process import ServerProcess
from tests.spark.cluster import StandaloneCluster
from tests.spark.kills.audit import Audit, audit
from tests.spark.kills.driver import QUICK_JVM, Driver, DriverEnded, QueryFailed, Request
from tests.spark.kills.inputs import expected_from, make_topics, write_integers
from tests.spark.kills.queries import Query

IN, MIDDLE, OUT = "in", "middle", "out"
PARTITIONS = 4
STEP_S = 900.0  # without a kill, a query that takes longer than this stands still
LOOK_S = 0.02
CONF = {
    "spark.executor.memory": "768m",
    "spark.executor.cores": "1",
    "spark.executor.extraJavaOptions": QUICK_JVM,
    "spark.executor.heartbeatInterval": "1s",
    "spark.network.timeout": "10s",
    "spark.network.timeoutInterval": "1s",
    "spark.task.maxFailures": "20",
    "spark.scheduler.mode": "FAIR",
}


@dataclass(frozen=True, slots=True)
class Plan:
    integers: int
    kills: int
    seed: int
    rows_a_batch: int
    format: str = "oncelog"  # of source and sink; "kafka" is Spark's own connector

    def moments(self) -> Iterator[tuple[int, str]]:
        """After how many rows in both outputs together which process dies, spread over the whole run."""
        random = Random(self.seed)
        each = 2 * self.integers / (self.kills + 1)
        for number in range(self.kills):
            yield int(each * (number + random.uniform(0.3, 1.0))), random.choice(("driver", "executor"))


@dataclass
class Outcome:
    plan: Plan
    killed: dict[str, int] = field(default_factory=lambda: {"driver": 0, "executor": 0})
    restarts: int = 0  # of queries that failed without their driver being killed
    seconds: float = 0.0
    audits: dict[str, Audit] = field(default_factory=dict)

    @property
    def is_right(self) -> bool:
        return all(found.is_right for found in self.audits.values())

    def lines(self) -> list[str]:
        kills = ", ".join(f"{process} {count}" for process, count in self.killed.items())
        head = f"{self.plan.integers:,} integers, seed {self.plan.seed}, format {self.plan.format}: killed {kills}; "
        head += f"queries started again {self.restarts} times besides; {self.seconds:.0f} s"
        return [head, *(f"  {topic}: {found}" for topic, found in self.audits.items())]


class Soak:
    def __init__(self, folder: Path, server: ServerProcess, plan: Plan, say: Callable[[str], None]) -> None:
        self.folder = folder
        self.address = server.bootstrap_servers
        self.plan = plan
        self.outcome = Outcome(plan)
        self._say = say

    def run(self) -> Outcome:
        make_topics(self.address, {IN: PARTITIONS, MIDDLE: PARTITIONS, OUT: PARTITIONS - 1})
        write_integers(self.address, IN, PARTITIONS, 0, self.plan.integers)
        started = time.monotonic()
        with StandaloneCluster(self.folder / "cluster") as cluster:
            driver = Driver(self.folder / "driver", master=cluster.url, conf=CONF)
            try:
                self._work(driver, cluster)
            finally:
                driver.kill()
        self.outcome.seconds = time.monotonic() - started
        for read, written in ((IN, MIDDLE), (MIDDLE, OUT)):
            self.outcome.audits[written] = audit(self.address, written, expected_from(self.address, read, "many"))
        return self.outcome

    def _work(self, driver: Driver, cluster: StandaloneCluster) -> None:
        """Until both queries are through: killed at each moment, started again after each end that came too early."""
        moments = list(self.plan.moments())
        while True:
            driver.start()
            request = self._start(driver)
            while moments and self._await(moments[0][0], request):
                rows, process = moments.pop(0)
                self._kill(process, driver, cluster, rows)
                if process == "driver":
                    break
            else:
                if self._is_through(request, kills_left=len(moments)):
                    return
            driver.kill()

    def _start(self, driver: Driver) -> Request:
        for name, read, written in (("first", IN, MIDDLE), ("second", MIDDLE, OUT)):
            driver.ask("start", name=name, query=self._query(name, read, written).to_json()).wait()
        return driver.ask("process", names=["first", "second"])

    def _query(self, name: str, read: str, written: str) -> Query:
        return Query(
            self.address, read, written, str(self.folder / f"checkpoint-{name}"), self.plan.format, self.plan.format,
            rows_a_batch=self.plan.rows_a_batch, middle="many",
        )  # fmt: skip

    def _await(self, rows: int, request: Request) -> bool:
        """Until so many rows are there; False where the queries ended before that, be it well or not."""
        give_up = time.monotonic() + STEP_S
        while self._arrived() < rows:
            if request.is_answered:
                return False
            if time.monotonic() > give_up:
                raise AssertionError(f"{self._arrived():,} rows of {rows:,} after {STEP_S:g} s")
            time.sleep(LOOK_S)
        return True

    def _arrived(self) -> int:
        return sum(sum(end_offsets(self.address, topic)) for topic in (MIDDLE, OUT))

    def _kill(self, process: str, driver: Driver, cluster: StandaloneCluster, rows: int) -> None:
        if process == "driver":
            driver.kill()
        else:
            pids = cluster.executor_pids()
            assert pids, "there is no executor to kill"
            kill(pids[rows % len(pids)])
            await_end(pids[rows % len(pids)])
        self.outcome.killed[process] += 1
        self._say(f"{self._arrived():,} rows written, {process} killed ({sum(self.outcome.killed.values())})")

    def _is_through(self, request: Request, kills_left: int) -> bool:
        try:
            request.wait(STEP_S)
        except (QueryFailed, DriverEnded) as failed:
            self.outcome.restarts += 1
            self._say(f"a query ended: {str(failed)[-1500:]}")
            assert self.outcome.restarts < 20, "queries end again and again"
            return False
        assert not kills_left, f"all was through with {kills_left} kills to come"
        return True
