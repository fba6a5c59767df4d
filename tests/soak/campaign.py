"""A server is killed again and again at random moments, while clients write; then everything is read back."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random

from tests.peers.oncelog_process import OncelogProcess
from tests.raw import RawConnection
from tests.soak.audit import audit
from tests.soak.workers import (
    KEYED,
    PARTITIONS,
    RECORDS,
    SHORT,
    Committer,
    Granter,
    KeyWriter,
    LeasedProducer,
    Ledger,
    StockProducer,
    TopicMaker,
    Worker,
)

# Everything that happens rarely happens all the time: segments roll every few batches, retention and compaction run
# without pause, so that a kill at a random moment often falls into one of them.
SETTINGS = {
    "log.segment.bytes": "20000",
    "offsets.topic.segment.bytes": "8000",
    "log.index.interval.bytes": "512",
    "log.retention.check.interval.ms": "50",
    "log.cleaner.backoff.ms": "20",
    "log.cleaner.min.cleanable.ratio": "0.01",
    "group.initial.rebalance.delay.ms": "0",
}
SHORTEST_LIFE_S = 0.02
LONGEST_LIFE_S = 0.9
# librdkafka needs its time to come back; every so many lives the server lives until it has, or the soak fails.
LIVES_WITHOUT_A_BREATH = 4
BREATH_S = 30


@dataclass(frozen=True, slots=True)
class Result:
    kills: int
    acknowledged: int
    leases: int
    commits: int
    restart_s: float  # the longest
    wrong: list[str]

    def __str__(self) -> str:
        return (
            f"{self.kills} kills: {self.acknowledged:,} records acknowledged, {self.commits:,} offsets committed, "
            f"{self.leases:,} pids leased, longest restart {self.restart_s:.2f} s, {len(self.wrong)} wrong"
        )


def soak(folder: Path, *, kills: int, seed: int, say: Callable[[str], None] = lambda text: None) -> Result:
    random = Random(seed)
    server = OncelogProcess(folder, settings=SETTINGS)
    ledger = Ledger()
    longest, done = 0.0, 0
    with server:
        make_topics(server.port)
        crew = workers(server.port, ledger, seed)
        for worker in crew:
            worker.start()
        for number in range(kills):
            if number % LIVES_WITHOUT_A_BREATH == 0:
                await_deliveries(crew, ledger)
            time.sleep(random.uniform(SHORTEST_LIFE_S, LONGEST_LIFE_S))
            server.kill()
            started = time.monotonic()
            server.start()
            longest = max(longest, time.monotonic() - started)
            done += 1
            if number % 10 == 9:
                say(f"{number + 1} kills, {ledger.acknowledged_count():,} records, {ledger.complaints[:3]}")
            if ledger.complaints:
                break
        for worker in crew:
            worker.stopping.set()
        for worker in crew:
            worker.join()
        server.kill()
        server.start()
        wrong = audit(server.port, ledger)
        if "Traceback" in server.log_text():
            wrong.append(f"the server's log has a traceback:\n{server.log_text().partition('Traceback')[2][:2000]}")
    return Result(done, ledger.acknowledged_count(), len(ledger.leased), ledger.committed, longest, wrong)


def await_deliveries(crew: list[Worker], ledger: Ledger) -> None:
    stock = [worker for worker in crew if isinstance(worker, StockProducer)]
    for worker in stock:
        worker.delivered.clear()
    for worker in stock:
        if not worker.delivered.wait(BREATH_S):
            ledger.complaints.append(f"{worker.name} delivered nothing for {BREATH_S} s to a server that lives")


def make_topics(port: int) -> None:
    with RawConnection(port) as connection:
        connection.create_topic(RECORDS, PARTITIONS)
        connection.create_topic(SHORT, PARTITIONS, {"retention.bytes": "60000"})
        connection.create_topic(KEYED, 1, {"cleanup.policy": "compact"})


def workers(port: int, ledger: Ledger, seed: int) -> list[Worker]:
    return [
        StockProducer(port, ledger, seed, RECORDS, "none"),
        StockProducer(port, ledger, seed, RECORDS, "lz4"),
        StockProducer(port, ledger, seed, SHORT, "none"),
        *(LeasedProducer(port, ledger, seed, partition) for partition in range(2)),
        KeyWriter(port, ledger, seed),
        Committer(port, ledger, seed),
        Granter(port, ledger, seed),
        TopicMaker(port, ledger, seed),
    ]
