"""A group that goes over to KIP-848 and back while its members work: librdkafka's are restarted one after the other."""

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from oncelog.client import Consumer as OurConsumer
from oncelog.embedded import Server
from tests.peers.apache import quick_kafka
from tests.waiting import until

PARTITIONS, PATIENCE_S = 6, 60
KAFKAS = {"group.consumer.heartbeat.interval.ms": "100", "group.consumer.min.heartbeat.interval.ms": "100"}
OURS = {"group.consumer.heartbeat.interval.ms": 100}
CLASSIC: dict[str, Any] = {
    "group.protocol": "classic",
    "heartbeat.interval.ms": 200,
    "session.timeout.ms": 6_000,
    "log_level": 0,
}
OUR_MEMBER = {"make": OurConsumer, "heartbeat.interval.ms": 200, "session.timeout.ms": 6_000}
NEWER = {"group.protocol": "consumer", "log_level": 0}


class Reader:
    """A member with a thread of its own: it reads, commits and goes."""

    def __init__(self, address: str, name: str, make: Any = Consumer, **config: Any) -> None:
        settings: dict[str, Any] = {
            "bootstrap.servers": address,
            "group.id": "g",
            "client.id": name,
            "auto.offset.reset": "earliest",
            "auto.commit.interval.ms": 100,
        }
        self.records: list[tuple[int, int]] = []
        self.has: frozenset[int] = frozenset()
        self._consumer = make(settings | config)
        self._consumer.subscribe(["t"])
        self._must_go = threading.Event()
        self._thread = threading.Thread(target=self._read, name=name)
        self._thread.start()

    def go(self) -> None:
        self._must_go.set()
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()

    def _read(self) -> None:
        while not self._must_go.is_set():
            found = self._consumer.poll(0.05)
            if found is not None and found.error() is None:
                partition, offset = found.partition(), found.offset()
                assert partition is not None and offset is not None
                self.records.append((partition, offset))
            self.has = frozenset(each.partition for each in self._consumer.assignment())
        self._consumer.close()
        self.has = frozenset()


class Run:
    def __init__(self, address: str, copies: int) -> None:
        self.address = address
        self.produced = 0
        self.readers: list[Reader] = []
        self.gone: list[Reader] = []
        self.admin = AdminClient({"bootstrap.servers": address})
        self.admin.create_topics([NewTopic("t", PARTITIONS, copies)])["t"].result(PATIENCE_S)

    def add(self, **config: Any) -> None:
        self.readers.append(Reader(self.address, f"r{len(self.readers) + len(self.gone)}", **config))

    def replace_first(self, **config: Any) -> None:
        first = self.readers.pop(0)
        first.go()
        self.gone.append(first)
        self.add(**config)
        self.await_shares()
        self.produce()

    def await_shares(self) -> None:
        def is_shared() -> bool:
            found = [each.has for each in self.readers]
            return sum(map(len, found)) == PARTITIONS == len(frozenset().union(*found)) and all(found)

        until(is_shared, "every reader has partitions, and no two the same", give_up_seconds=PATIENCE_S)

    def produce(self) -> None:
        """And wait until all of it is read."""
        producer = Producer({"bootstrap.servers": self.address})
        for number in range(10 * PARTITIONS):
            producer.produce("t", b"value", partition=number % PARTITIONS)
        assert producer.flush(PATIENCE_S) == 0
        self.produced += 10
        until(lambda: len(self.read()) == self.produced * PARTITIONS, "all is read", give_up_seconds=PATIENCE_S)

    def read(self) -> Counter[tuple[int, int]]:
        return Counter(record for each in (*self.gone, *self.readers) for record in tuple(each.records))

    def described(self) -> Any:
        return self.admin.describe_consumer_groups(["g"])["g"].result(PATIENCE_S)

    def stop(self) -> None:
        for each in self.readers:
            each.go()


@contextmanager
def running(address: str, copies: int = 1) -> Iterator[Run]:
    run = Run(address, copies)
    try:
        yield run
    finally:
        run.stop()


def roll_over_and_back(run: Run, classic: dict[str, Any]) -> None:
    for _ in range(2):
        run.add(**classic)
    run.await_shares()
    run.produce()
    for there, kind in ((NEWER, "CONSUMER"), (classic, "CLASSIC")):
        for _ in range(2):
            run.replace_first(**there)
        assert run.described().type.name == kind
    committed = Consumer({"bootstrap.servers": run.address, "group.id": "g"})
    wanted = [TopicPartition("t", index) for index in range(PARTITIONS)]

    def is_committed() -> bool:
        return all(each.offset == run.produced for each in committed.committed(wanted, PATIENCE_S))

    until(is_committed, "all is committed", give_up_seconds=PATIENCE_S)
    committed.close()
    assert set(run.read().values()) == {1}, "each record once"


@pytest.mark.peers
def test_librdkafkas_members_are_restarted_in_the_other_protocol_and_back() -> None:
    with (
        Server(settings=OURS) as server,
        running(server.bootstrap_servers) as run,
    ):
        roll_over_and_back(run, CLASSIC)


@pytest.mark.peers
@pytest.mark.thorough
def test_librdkafkas_cooperative_members_are_restarted_in_the_other_protocol_and_back() -> None:
    with (
        Server(settings=OURS) as server,
        running(server.bootstrap_servers) as run,
    ):
        roll_over_and_back(run, CLASSIC | {"partition.assignment.strategy": "cooperative-sticky"})


@pytest.mark.peers
@pytest.mark.thorough
@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_our_members_make_room_for_librdkafkas_newer_ones_and_come_back(strategy: str) -> None:
    with Server(settings=OURS) as server, running(server.bootstrap_servers) as run:
        roll_over_and_back(run, OUR_MEMBER | {"partition.assignment.strategy": strategy})


@pytest.mark.peers
@pytest.mark.thorough
def test_members_of_both_kinds_go_on_when_their_coordinator_is_killed() -> None:
    with Server(brokers=3, settings=OURS) as server, running(server.bootstrap_servers, copies=3) as run:
        run.add(**CLASSIC)
        run.await_shares()
        run.add(**NEWER)
        run.await_shares()
        run.produce()
        before = [each.has for each in run.readers]
        server.kill(run.described().coordinator.id)
        run.produce()
        assert [each.has for each in run.readers] == before, "nothing moved, but the coordinator"
        run.readers.pop().go()
        run.await_shares()
        assert run.described().type.name == "CLASSIC"


@pytest.mark.peers
@pytest.mark.thorough
def test_kafka_lets_them_do_the_same(tmp_path: Path) -> None:
    with quick_kafka(tmp_path, KAFKAS) as kafka, running(kafka.bootstrap_servers) as run:
        roll_over_and_back(run, CLASSIC)
