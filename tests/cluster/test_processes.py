"""What is promised with exactly once, where brokers are processes that are killed and paused: nothing that was
acknowledged is lost, nothing is there twice, and each key's records are in order."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from operator import gt
from pathlib import Path
from typing import Any, Protocol

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

import oncelog
from oncelog.client import Consumer, Producer, TopicPartition
from tests.raw import RawConnection
from tests.waiting import until

PARTITIONS, KEYS = 3, 20
AT_ONCE = 500
# A client waits for a broker that hangs as long as it is told to, whoever leads meanwhile.
IMPATIENT = {"socket.timeout.ms": 5000, "socket.connection.setup.timeout.ms": 5000}


class Sends(Protocol):
    def produce(self, topic: str, value: bytes, key: bytes, *, on_delivery: Callable[[Any, Any], None]) -> object: ...

    def poll(self, timeout: float) -> object: ...

    def flush(self, timeout: float) -> int: ...


class Writing:
    """Numbered records, of which more are sent while something happens to the brokers."""

    def __init__(self, producer: Sends) -> None:
        self._producer = producer
        self.sent = 0
        self.acknowledged: set[int] = set()
        self.failed: list[str] = []

    def send(self, count: int) -> None:
        for number in range(self.sent, self.sent + count):
            self._producer.produce("orders", b"%d" % number, b"%d" % (number % KEYS), on_delivery=self._delivered)
        self.sent += count

    def _delivered(self, error: object, message: Any) -> None:
        if error is None:
            self.acknowledged.add(int(message.value()))
        else:
            self.failed.append(str(error))

    def is_all_acknowledged(self) -> bool:
        self._producer.poll(0)
        return len(self.acknowledged) + len(self.failed) == self.sent

    def end(self) -> None:
        until(self.is_all_acknowledged, "answers to all that was sent", give_up_seconds=60)
        assert self.failed == []


def read(servers: str, count: int) -> dict[int, list[tuple[bytes | None, int]]]:
    """Key and number of each record, by partition."""
    found: dict[int, list[tuple[bytes | None, int]]] = {index: [] for index in range(PARTITIONS)}
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "audit", "auto.offset.reset": "earliest"})
    try:
        places = [TopicPartition("orders", index) for index in range(PARTITIONS)]
        ends = {each.partition: (consumer.get_watermark_offsets(each) or (0, 0))[1] for each in places}
        consumer.assign([TopicPartition("orders", index, 0) for index in range(PARTITIONS)])

        def take() -> bool:
            for message in consumer.consume(1000, 0.2):
                assert message.error() is None, message.error()
                found[message.partition()].append((message.key(), int(message.value() or b"")))
            return all(len(some) >= ends[index] for index, some in found.items())

        until(take, "all records", give_up_seconds=60)
    finally:
        consumer.close()
    return found


def all_know_that_all_are_in_sync(cluster: oncelog.Server) -> bool:
    """A broker that has just gone on answers for a moment as if nothing had happened, and tells where the log ended."""
    told = []
    for address in cluster.bootstrap_servers.split(","):
        with RawConnection(address) as raw:
            named = {"topic_id": None, "name": "orders"}
            (topic,) = raw.call("metadata", 12, topics=[named], allow_auto_topic_creation=False).topics
        told.append([(each.leader_id, each.leader_epoch, len(each.isr_nodes)) for each in topic.partitions])
    return all(each == told[0] for each in told) and all(in_sync == 3 for _, _, in_sync in told[0])


def check(servers: str, writing: Writing) -> None:
    found = read(servers, writing.sent)
    times = Counter(number for some in found.values() for _, number in some)
    by_key: dict[bytes | None, list[int]] = {}
    for some in found.values():
        for key, number in some:
            by_key.setdefault(key, []).append(number)
    lost = writing.acknowledged - times.keys()
    twice = [number for number, count in times.items() if count > 1]
    disordered = [
        key for key, numbers in by_key.items() if any(later <= earlier for earlier, later in pairwise(numbers))
    ]
    assert (sorted(lost), twice, disordered) == ([], [], [])
    assert len(times) == writing.sent


@pytest.fixture
def cluster() -> Iterator[oncelog.Server]:
    with oncelog.Server(brokers=3) as server:
        admin = AdminClient({"bootstrap.servers": server.bootstrap_servers})
        for made in admin.create_topics([NewTopic("orders", PARTITIONS)]).values():
            made.result()
        yield server


def conf_of(cluster: oncelog.Server) -> dict[str, Any]:
    return {"bootstrap.servers": cluster.bootstrap_servers, "enable.idempotence": True, "linger.ms": 2}


def leader(cluster: oncelog.Server, index: int = 0) -> int:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    found = admin.list_topics("orders", timeout=10).topics["orders"].partitions[index]
    return int(found.leader)


def another_than(silent: int, cluster: oncelog.Server) -> Callable[[], bool]:
    return lambda: leader(cluster) != silent


def all_in_sync(cluster: oncelog.Server) -> bool:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    found = admin.list_topics("orders", timeout=10).topics["orders"].partitions.values()
    return all(len(each.isrs) == 3 for each in found)


def replicas(cluster: oncelog.Server) -> list[int]:
    """Of the first partition; in this order they are elected."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    return list(admin.list_topics("orders", timeout=10).topics["orders"].partitions[0].replicas)


@contextmanager
def more_at(cluster: oncelog.Server, *nodes: int) -> Iterator[None]:
    """When this is over, more of the first partition is in the logs of these brokers than before."""

    def sizes() -> list[int]:
        folders = [Path(cluster.data_dir) / str(node) / "orders-0" for node in nodes]
        return [sum(file.stat().st_size for file in folder.glob("*.log")) for folder in folders]

    before = sizes()
    yield
    until(lambda: all(map(gt, sizes(), before)), f"more in the logs of {nodes}")


def kill_and_resume(cluster: oncelog.Server, killed: int, paused: Iterable[int]) -> None:
    cluster.kill(killed)
    for node in paused:
        cluster.resume(node)


def test_what_a_killed_leader_had_and_not_acknowledged_is_there_once(cluster: oncelog.Server) -> None:
    """Once by the broker that has it, which must know it when it is sent again; once where nobody else has it."""
    with Producer(conf_of(cluster)) as producer:
        writing = Writing(producer)
        writing.send(AT_ONCE)
        writing.end()

        one, two, three = replicas(cluster)
        assert leader(cluster) == one
        cluster.pause(three)  # so that acknowledgements wait
        with more_at(cluster, one, two):
            writing.send(AT_ONCE)
        kill_and_resume(cluster, one, [three])
        writing.end()
        until(lambda: leader(cluster) == two, "the next one to lead")
        cluster.start(one)
        until(lambda: all_in_sync(cluster), "the killed broker to be in sync")

        for node in (one, three):
            cluster.pause(node)
        for _ in range(2):  # an acknowledgement of the first would come before the second is appended
            with more_at(cluster, two):
                writing.send(AT_ONCE)
        kill_and_resume(cluster, two, [one, three])
        writing.end()
    check(cluster.bootstrap_servers, writing)


@pytest.mark.thorough
def test_a_leader_that_hangs_longer_than_its_session_costs_nothing(cluster: oncelog.Server) -> None:
    with Producer(conf_of(cluster) | IMPATIENT) as producer:
        writing = Writing(producer)
        for _ in range(2):
            silent = leader(cluster)
            cluster.pause(silent)
            try:
                writing.send(AT_ONCE)
                until(another_than(silent, cluster), "another leader")
                writing.end()
            finally:
                cluster.resume(silent)
            until(
                lambda: all_know_that_all_are_in_sync(cluster),
                "the broker that hung to be in sync, and to know who leads",
            )
    check(cluster.bootstrap_servers, writing)


@pytest.mark.thorough
def test_librdkafka_loses_nothing_while_each_broker_is_killed_in_turn(cluster: oncelog.Server) -> None:
    producer = confluent_kafka.Producer(conf_of(cluster))
    writing = Writing(producer)
    for victim in (1, 2, 3):
        writing.send(AT_ONCE)
        producer.poll(0)
        cluster.kill(victim)
        writing.send(AT_ONCE)
        writing.end()
        cluster.start(victim)
        until(lambda: all_in_sync(cluster), "the killed broker to be in sync")
    check(cluster.bootstrap_servers, writing)
