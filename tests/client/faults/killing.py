"""A producer under load while servers are killed with -9 and come back, keyed to what was confirmed, not to the clock.

    python -m tests.client.faults.killing --server kafka --kills 5
    python -m tests.client.faults.killing --server oncelog --flush every --kills 20

On Kafka three brokers replicate (acks=all, min.insync.replicas=2) and the leader of a partition is killed; our own
server is one process, which is killed and started again on its folder.
"""

import itertools
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import click

from oncelog.client.producer.producer import Producer
from tests.client.faults.audit import Audit, audit, read_partition
from tests.client.faults.case import KAFKA, ONCELOG, PATIENCE_S, SERVERS, Case
from tests.client.faults.kafka_cluster import BROKERS, KafkaCluster
from tests.client.faults.sending import Told, value_of
from tests.lives.stored import Stored
from tests.peers.oncelog_process import OncelogProcess
from tests.raw import RawConnection
from tests.waiting import until

TOPIC: Final = "killed"
WAIT_S: Final = 120.0

Kill = Callable[[], None]  # kill something that leads, and see to it that it is back


@dataclass(frozen=True, slots=True)
class Result:
    audit: Audit
    told: Told
    kills: int
    records: int
    hit_work: int  # kills while records were under way
    seconds: float

    @property
    def is_exact(self) -> bool:
        return self.audit.is_exact and not self.told.errors and not self.told.left and self.hit_work == self.kills

    def __str__(self) -> str:
        return (
            f"{self.kills} kills and moves, {self.hit_work} with records under way, {self.records:,} records, "
            f"{self.audit}, left {self.told.left}, errors {self.told.errors[:3]}, {self.seconds:.0f} s"
        )


class Killer(threading.Thread):
    """Kills whenever so many more records were confirmed. The load goes on until it is done."""

    def __init__(self, kill: Kill, kills: int, between: int) -> None:
        super().__init__(name="killer", daemon=True)
        self._kill, self._kills, self._between = kill, kills, between
        self._progress = threading.Condition()
        self._confirmed = 0
        self.under_way: Callable[[], int] = int
        self.done = threading.Event()
        self.hit_work = 0
        self.failure: BaseException | None = None

    def confirmed(self) -> None:
        self._confirmed += 1

    def look(self) -> None:
        """Now is a moment to see whether enough was confirmed: called by the load, which has just handed in records."""
        with self._progress:
            self._progress.notify()

    def _is_time(self, wanted: int) -> bool:
        """Enough is confirmed and work is under way: a kill between two requests would show nothing."""
        return self._confirmed >= wanted and self.under_way() > 0

    def run(self) -> None:
        try:
            for _ in range(self._kills):
                wanted = self._confirmed + self._between
                with self._progress:
                    if not self._progress.wait_for(partial(self._is_time, wanted), WAIT_S):
                        raise TimeoutError(f"nothing was confirmed for {WAIT_S} s beyond {self._confirmed}")
                self.hit_work += self.under_way() > 0
                self._kill()
        except BaseException as failure:
            self.failure = failure
        finally:
            self.done.set()


def load(case: Case, servers: str, killer: Killer) -> Told:
    """Numbers without an end, until the killer is done."""
    told = Told.about(case.records)

    def note(error: Any, message: Any) -> None:
        told.note(error, message)
        killer.confirmed()

    properties = {**case.properties(servers), "socket.timeout.ms": 10_000, "queue.buffering.max.messages": 5_000}
    producer = Producer(properties)
    killer.under_way = producer.__len__
    number = 0
    try:
        killer.start()
        while number < case.records and not killer.done.is_set():
            producer.produce(TOPIC, value_of(number), partition=number % case.partitions, on_delivery=note)
            number += 1
            if not number & 0xFF:
                killer.look()
                producer.poll(0)
        told.left = producer.flush(PATIENCE_S)
    finally:
        producer.close(0)
    killer.done.wait(WAIT_S)
    if killer.failure is not None:
        raise killer.failure
    told.partition, told.offset, told.reports = told.partition[:number], told.offset[:number], told.reports[:number]
    return told


def experiment(case: Case, servers: str, kill: Kill, kills: int, between: int) -> Result:
    started = time.monotonic()
    killer = Killer(kill, kills, between)
    told = load(case, servers, killer)
    seconds = time.monotonic() - started
    records = len(told.reports)
    sent = Case(server=case.server, way="by hand", partitions=case.partitions, records=records)
    found = audit(sent, read_log_anywhere(servers, case.partitions), told)
    return Result(found, told, kills, records, killer.hit_work, seconds)


def read_log_anywhere(servers: str, partitions: int) -> list[Stored]:
    """Each partition from whoever leads it by now."""
    with one_that_lives(servers) as raw:
        answer = raw.call("metadata", 9, topics=[{"name": TOPIC}], allow_auto_topic_creation=False)
    brokers = {broker.node_id: f"{broker.host}:{broker.port}" for broker in answer.brokers}
    leaders = {each.partition_index: brokers[each.leader_id] for each in answer.topics[0].partitions}
    logs = []
    for index in range(partitions):
        with RawConnection(leaders[index], timeout_s=60) as raw:
            logs.append(read_partition(raw, TOPIC, index))
    return logs


def one_that_lives(servers: str) -> RawConnection:
    *others, last = servers.split(",")
    for server in others:
        try:
            return RawConnection(server, timeout_s=60)
        except ConnectionRefusedError:
            continue
    return RawConnection(last, timeout_s=60)


def kill_our_server(server: OncelogProcess) -> Kill:
    def kill() -> None:
        server.kill()
        server.start()

    return kill


def kill_a_leader(cluster: KafkaCluster, *, comes_back: bool = True) -> Kill:
    """Of partition 0, whoever that is. It is back in the in-sync set of every partition before the next kill."""

    def kill() -> None:
        leader = partitions_of(cluster)[0].leader_id
        cluster.broker(leader).kill()
        await_all(cluster, lambda each: each.leader_id not in (-1, leader))
        if comes_back:
            cluster.broker(leader).begin()
            await_all(cluster, lambda each: len(each.isr_nodes) == BROKERS)

    return kill


def move_leaders(cluster: KafkaCluster) -> Kill:
    """Every partition to another replica, in an orderly way: the old leader answers that it is none any more."""

    def move() -> None:
        wanted = {each.partition_index: _others_first(each) for each in partitions_of(cluster)}
        moves = [{"partition_index": index, "replicas": nodes} for index, nodes in wanted.items()]
        with RawConnection(one_broker(cluster), timeout_s=30) as raw:
            topics = [{"name": TOPIC, "partitions": moves}]
            raw.call("alter_partition_reassignments", 0, timeout=20_000, topics=topics)
            await_all(cluster, lambda each: list(each.replica_nodes) == wanted[each.partition_index])
            places = [{"topic": TOPIC, "partitions": list(wanted)}]
            raw.call("elect_leaders", 2, election_type=0, topic_partitions=places, timeout=20_000)
        await_all(cluster, lambda each: each.leader_id == wanted[each.partition_index][0])

    return move


def _others_first(partition: Any) -> list[int]:
    """The replicas, so that one that does not lead is preferred."""
    nodes = list(partition.replica_nodes)
    at = (nodes.index(partition.leader_id) + 1) % len(nodes)
    return nodes[at:] + nodes[:at]


def one_broker(cluster: KafkaCluster) -> int:
    """Any broker passes these requests on to the controller."""
    return next(broker.port for broker in cluster.brokers if broker.is_running)


def await_all(cluster: KafkaCluster, is_so: Callable[[Any], bool]) -> None:
    until(lambda: all(map(is_so, partitions_of(cluster))), "every partition to get there", give_up_seconds=WAIT_S)


def partitions_of(cluster: KafkaCluster) -> list[Any]:
    """As any broker that lives sees them."""
    for broker in cluster.brokers:
        if not broker.is_running:
            continue
        try:
            with RawConnection(broker.port, timeout_s=5) as raw:
                answer = raw.call("metadata", 9, topics=[{"name": TOPIC}], allow_auto_topic_creation=False)
        except OSError:
            continue  # it is starting
        if answer.topics[0].partitions:
            return sorted(answer.topics[0].partitions, key=lambda each: each.partition_index)
    raise RuntimeError("no broker answers")


def make_replicated_topic(cluster: KafkaCluster, partitions: int) -> None:
    with RawConnection(cluster.brokers[0].port, timeout_s=60) as raw:
        topic = {"name": TOPIC, "num_partitions": partitions, "replication_factor": BROKERS, "assignments": [],
                 "configs": []}  # fmt: skip
        answer = raw.call("create_topics", 5, topics=[topic], timeout=20_000, validate_only=False)
        assert answer.topics[0].error_code == 0, answer
    await_all(cluster, lambda each: len(each.isr_nodes) == BROKERS)


def on_kafka(folder: Path, case: Case, kills: int, between: int, moves: int) -> Result:
    """Between two kills leaders move so many times."""
    with KafkaCluster(folder) as cluster:
        make_replicated_topic(cluster, case.partitions)
        turns = itertools.cycle([move_leaders(cluster)] * moves + [kill_a_leader(cluster)])
        return experiment(case, cluster.bootstrap_servers, lambda: next(turns)(), kills * (moves + 1), between)


def on_oncelog(folder: Path, case: Case, kills: int, between: int, flush: str) -> Result:
    server = OncelogProcess(folder, settings={"oncelog.flush": flush})
    with server:
        with RawConnection(server.port) as raw:
            assert raw.create_topic(TOPIC, case.partitions) == 0
        return experiment(case, server.bootstrap_servers, kill_our_server(server), kills, between)


@click.command()
@click.option("--server", default=ONCELOG, show_default=True, type=click.Choice(SERVERS))
@click.option("--kills", default=10, show_default=True)
@click.option("--between", default=20_000, show_default=True, help="Records that are confirmed between two kills.")
@click.option("--partitions", default=3, show_default=True)
@click.option("--moves", default=3, show_default=True, help="How often leaders move between two kills, on Kafka.")
@click.option("--flush", default="os", show_default=True, type=click.Choice(("os", "every")))
def main(server: str, kills: int, between: int, partitions: int, moves: int, flush: str) -> None:
    case = Case(server=server, partitions=partitions, records=4_000_000)
    with tempfile.TemporaryDirectory(prefix="oncelog-killing-") as name:
        folder = Path(name)
        if server == KAFKA:
            result = on_kafka(folder, case, kills, between, moves)
        else:
            result = on_oncelog(folder, case, kills, between, flush)
    click.echo(f"{server}: {result}")
    sys.exit(0 if result.is_exact else 1)


if __name__ == "__main__":
    main()
