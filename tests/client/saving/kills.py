"""The copy job of examples/, killed again and again with kill -9, and what its destination holds in the end.

    python -m tests.client.saving.kills --kills 200 --server kafka

The source is fed all the while. Each life of the job ends at a moment that the seed chooses, while it starts, resumes,
copies or saves; now and then two of them run at once. The last life copies to the end. Then every record of the source
must stand in the destination once, in its partition, in its order, with its key, value, headers and time.
"""

import argparse
import random
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from confluent_kafka import Producer

from oncelog.chaos.life import Life
from tests.client.saving.stored import stored
from tests.peers.apache import ApacheKafka
from tests.peers.oncelog_process import SOURCES, OncelogProcess
from tests.peers.server_process import ServerProcess
from tests.raw import RawConnection

JOB = Path(__file__).parents[3] / "examples" / "copy_job.py"
PARTITIONS = 3
FED_A_SECOND = 2_000
FORGETFUL = {"producer.id.expiration.ms": "3000", "producer.id.expiration.check.interval.ms": "300"}
SHORT_LEASES = {"oncelog.lease.lifetime.ms": "6000", "group.initial.rebalance.delay.ms": "0"}
TWIN_CHANCE = 0.2
OLD_CHANCE = 0.1  # of a record's time lying days back
LONGEST_LIFE_S = 2.5
LAST_LIFE_S = 180
LAST_LIVES = 5
WARM_RECORDS = 5_000
TAKEN_OVER = 3


class Feed(threading.Thread):
    """Fills the source, by another client than ours."""

    def __init__(self, servers: str, topic: str, seed: int) -> None:
        super().__init__(name="feed", daemon=True)
        self._producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True})
        self._topic = topic
        self._random = random.Random(seed)
        self._stopped = threading.Event()
        self._began_ms = time.time_ns() // 1_000_000
        self.fed = 0
        self.failures = 0

    def run(self) -> None:
        while not self._stopped.wait(0.05):
            self.feed(FED_A_SECOND // 20)

    def feed(self, count: int) -> None:
        for _ in range(count):
            age_ms = 172_800_000 if self._random.random() < OLD_CHANCE else 0
            self._producer.produce(
                self._topic,
                b"record %d" % self.fed,
                key=b"%d" % (self.fed % 100) if self.fed % 3 else None,
                partition=self._random.randrange(PARTITIONS),
                headers=[("number", b"%d" % self.fed)],
                timestamp=self._began_ms + self.fed % 1_000 - age_ms,
                on_delivery=self._told,
            )
            self.fed += 1
        self._producer.poll(0)

    def _told(self, error: object, message: object) -> None:
        self.failures += error is not None

    def stop(self) -> None:
        self._stopped.set()
        self.join()
        self.flush()

    def flush(self) -> None:
        if self._producer.flush(60) or self.failures:
            raise AssertionError(f"the source could not be filled: {self.failures} records failed")


@dataclass
class Tally:
    seed: int
    kills: int = 0
    twins: int = 0
    ended_by_themselves: dict[int, int] = field(default_factory=dict)  # by exit code
    copied: int = 0

    def __str__(self) -> str:
        return (
            f"seed {self.seed}: {self.kills} kills, {self.twins} lives of two at once, ended by themselves "
            f"{self.ended_by_themselves}, {self.copied} records, every one of them once"
        )


class Campaign:
    def __init__(self, server: ServerProcess, folder: Path, seed: int) -> None:
        self._servers = server.bootstrap_servers
        self._folder = folder
        self._random = random.Random(seed)
        self._lives: list[Life] = []
        self.tally = Tally(seed)
        self.source, self.destination = f"source-{seed}", f"destination-{seed}"
        with RawConnection(server.port) as raw:
            for topic in (self.source, self.destination):
                assert raw.create_topic(topic, PARTITIONS) == 0
        self._feed = Feed(self._servers, self.source, seed)

    def __enter__(self) -> Self:
        self._warm_up()
        self._feed.start()
        return self

    def _warm_up(self) -> None:
        """Where the loops were never compiled, a job compiles them first: for longer than any life, or lease, lasts."""
        source, destination = f"warm-{self.source}", f"warm-{self.destination}"
        with RawConnection(self._servers) as raw:
            for topic in (source, destination):
                assert raw.create_topic(topic, PARTITIONS) == 0
        feed = Feed(self._servers, source, self.tally.seed)
        feed.feed(WARM_RECORDS)
        feed.flush()
        life = self._start("--until-end", source=source, destination=destination)
        assert life.process.wait(LAST_LIFE_S) in (0, TAKEN_OVER), life.last_words()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for life in self._lives:
            life.kill()

    def run(self, kills: int) -> Tally:
        while self.tally.kills < kills:
            self._one_life()
        self._feed.stop()
        self._last_life()
        self._audit()
        return self.tally

    def _one_life(self) -> None:
        lives = [self._start()]
        if self._random.random() < TWIN_CHANCE:
            lives.append(self._start())
            self.tally.twins += 1
        for life in lives:
            if life.has_ended_within(self._random.uniform(0.4, LONGEST_LIFE_S)):
                self._ended(life)
            else:
                life.kill()
                self.tally.kills += 1

    def _ended(self, life: Life) -> None:
        """One of two that run at once is told that it was taken over; anything else is a failure."""
        code = life.process.returncode
        self.tally.ended_by_themselves[code] = self.tally.ended_by_themselves.get(code, 0) + 1
        assert code == TAKEN_OVER, f"seed {self.tally.seed}: a life ended with {code}:\n{life.last_words()}"

    def _last_life(self) -> None:
        """To the end. A job whose lease is over before it could save, on a machine that is busy with other things, says
        so and ends, and goes on from its last save when it is started again; any other end is a failure."""
        for _ in range(LAST_LIVES):
            life = self._start("--until-end")
            if not life.has_ended_within(LAST_LIFE_S):
                raise AssertionError(f"seed {self.tally.seed}: the last life does not end:\n{life.last_words()}")
            if life.process.returncode == 0:
                return
            self._ended(life)
        said = life.last_words()
        raise AssertionError(f"seed {self.tally.seed}: {LAST_LIVES} lives did not come to the end:\n{said}")

    def _start(self, *more: str, source: str = "", destination: str = "") -> Life:
        source, destination = source or self.source, destination or self.destination
        order = [sys.executable, str(JOB), "--servers", self._servers, "--source", source]
        order += ["--destination", destination, "--group", source, "--save-every", "0.1", *more]
        life = Life("the job", self._folder / "jobs.log")
        life.launch(order, env={"PYTHONPATH": str(SOURCES), "PATH": ""})
        self._lives.append(life)
        return life

    def _audit(self) -> None:
        port = int(self._servers.rpartition(":")[2])
        with RawConnection(port) as raw:
            wanted = stored(raw, self.source, PARTITIONS)
            found = stored(raw, self.destination, PARTITIONS)
        assert wanted.total == self._feed.fed, f"{self._feed.fed} were fed, and {wanted.total} are there"
        for partition in range(PARTITIONS):
            expected = [record._replace(offset=0) for at, record in wanted.records if at == partition]
            actual = [record._replace(offset=0) for at, record in found.records if at == partition]
            if expected != actual:
                at = next(
                    (at for at, (one, other) in enumerate(zip(expected, actual, strict=False)) if one != other), -1
                )
                raise AssertionError(
                    f"seed {self.tally.seed}: partition {partition} has {len(actual)} records of {len(expected)}; the "
                    f"first difference is at {at}: {actual[at : at + 3]} where {expected[at : at + 3]} should be"
                )
        self.tally.copied = found.total


def server_of(kind: str, folder: Path) -> ServerProcess:
    """Leases of six seconds and a Kafka that forgets after three: what else happens once a day happens all the time."""
    if kind == "oncelog":
        return OncelogProcess(folder, settings=SHORT_LEASES)
    return ApacheKafka(folder, settings=FORGETFUL)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--server", choices=("oncelog", "kafka"), default="oncelog")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="kills-") as name:
        folder = Path(name)
        with server_of(options.server, folder) as server, Campaign(server, folder, options.seed) as campaign:
            began_s = time.monotonic()
            tally = campaign.run(options.kills)
            sys.stdout.write(f"{options.server}: {tally}; {time.monotonic() - began_s:.0f} s\n")


if __name__ == "__main__":
    main()
