"""Groups of KIP-848 with the clients that speak of them: librdkafka, ours, and Java's by its verifiable consumer."""

import json
import subprocess
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest
from confluent_kafka import Consumer, ConsumerGroupState, ConsumerGroupType, KafkaError, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from oncelog import client
from oncelog.client.admin import Admin
from oncelog.embedded import Server
from tests.peers.jars import MissingPeer, kafka_java, need_or_skip
from tests.waiting import until

PARTITIONS, RECORDS = 6, 600
PATIENCE_S = 60
SETTINGS = {"group.consumer.heartbeat.interval.ms": 100, "group.consumer.session.timeout.ms": 2_000}


@pytest.fixture
def server() -> Iterator[Server]:
    with Server(settings=SETTINGS) as server:
        admin = AdminClient({"bootstrap.servers": server.bootstrap_servers})
        admin.create_topics([NewTopic("t", PARTITIONS, 1)])["t"].result(PATIENCE_S)
        yield server


def produce(server: Server, count: int, topic: str = "t") -> None:
    producer = Producer({"bootstrap.servers": server.bootstrap_servers})
    for number in range(count):
        producer.produce(topic, str(number).encode(), partition=number % PARTITIONS)
    assert producer.flush(PATIENCE_S) == 0


CLIENTS = {"librdkafka": (Consumer, Consumer), "ours": (client.Consumer, client.Consumer)}
MIXED = {**CLIENTS, "mixed": (Consumer, client.Consumer)}


class Member:
    def __init__(self, server: Server, name: str, *topics: str, kind: Any = Consumer, **config: Any) -> None:
        self.records: list[tuple[int, int]] = []
        settings: dict[str, Any] = {
            "bootstrap.servers": server.bootstrap_servers,
            "group.id": "g",
            "group.protocol": "consumer",
            "client.id": name,
            "auto.offset.reset": "earliest",
        }
        self.consumer = kind(settings | config)
        self.consumer.subscribe(list(topics or ("t",)))

    def take(self) -> None:
        found = self.consumer.poll(0.02)
        if found is not None:
            error = found.error()
            if error is not None:
                assert error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART, error  # it is deleted while it is read
                return
            partition, offset = found.partition(), found.offset()
            assert partition is not None and offset is not None
            self.records.append((partition, offset))

    @property
    def partitions(self) -> set[tuple[str, int]]:
        return {(each.topic, each.partition) for each in self.consumer.assignment()}


def read(member: Member, count: int) -> None:
    def is_read() -> bool:
        member.take()
        return len(member.records) >= count

    until(is_read, f"{count} records", give_up_seconds=PATIENCE_S)


def share(*members: Member, sizes: list[int]) -> None:
    def is_shared() -> bool:
        for each in members:
            each.take()
        found = [each.partitions for each in members]
        return sorted(map(len, found)) == sizes and len(set().union(*found)) == sum(sizes)

    until(is_shared, f"members with {sizes} partitions", give_up_seconds=PATIENCE_S)


@pytest.mark.peers
def test_librdkafkas_members_come_and_go(server: Server) -> None:
    produce(server, RECORDS)
    first = Member(server, "first")
    read(first, RECORDS)
    assert set(Counter(first.records).values()) == {1}
    second = Member(server, "second")
    share(first, second, sizes=[3, 3])
    admin = AdminClient({"bootstrap.servers": server.bootstrap_servers})
    group = admin.describe_consumer_groups(["g"])["g"].result(PATIENCE_S)
    assert (group.state, group.type) == (ConsumerGroupState.STABLE, ConsumerGroupType.CONSUMER)
    assert {each.client_id for each in group.members} == {"first", "second"}
    ours = Admin({"bootstrap.servers": server.bootstrap_servers})
    told = ours.describe_consumer_groups(["g"])["g"].result(PATIENCE_S)
    assert (told.state, told.partition_assignor) == ("Stable", "uniform")
    assert sorted(place for each in told.members for place in each.assignment) == [("t", n) for n in range(PARTITIONS)]
    ours.close()
    first.consumer.close()
    share(second, sizes=[6])
    produce(server, PARTITIONS)
    read(second, PARTITIONS)
    assert sorted(second.records) == [(index, RECORDS // PARTITIONS) for index in range(PARTITIONS)], "and no other"
    second.consumer.close()


@pytest.mark.peers
@pytest.mark.thorough
@pytest.mark.parametrize("kinds", CLIENTS.values(), ids=CLIENTS)
def test_patterns_find_topics_that_come_later(server: Server, kinds: tuple[Any, Any]) -> None:
    member = Member(server, "pattern", "^t.*", kind=kinds[0])
    share(member, sizes=[6])
    admin = AdminClient({"bootstrap.servers": server.bootstrap_servers})
    admin.create_topics([NewTopic("t2", 2, 1)])["t2"].result(PATIENCE_S)
    share(member, sizes=[8])
    admin.delete_topics(["t2"])["t2"].result(PATIENCE_S)
    share(member, sizes=[6])
    member.consumer.close()


@pytest.mark.peers
@pytest.mark.thorough
@pytest.mark.parametrize("kinds", MIXED.values(), ids=MIXED)
def test_a_static_member_keeps_its_partitions_while_it_is_away(server: Server, kinds: tuple[Any, Any]) -> None:
    """In a mixed group another client comes back under its name."""
    one, other = kinds
    first, second = Member(server, "a", kind=one, **{"group.instance.id": "one"}), Member(server, "b", kind=other)
    share(first, second, sizes=[3, 3])
    before = first.partitions
    first.consumer.close()
    again = Member(server, "a", kind=other, **{"group.instance.id": "one"})
    share(again, second, sizes=[3, 3])
    assert again.partitions == before
    for each in (again, second):
        each.consumer.close()


@pytest.mark.peers
@pytest.mark.thorough
@pytest.mark.parametrize("kinds", MIXED.values(), ids=MIXED)
def test_members_go_on_when_their_coordinator_is_killed(kinds: tuple[Any, Any]) -> None:
    with (
        Server(brokers=3, settings={"group.consumer.heartbeat.interval.ms": 100}) as server,
        closing(Admin({"bootstrap.servers": server.bootstrap_servers})) as admin,
    ):
        topics = AdminClient({"bootstrap.servers": server.bootstrap_servers})
        topics.create_topics([NewTopic("t", PARTITIONS, 3)])["t"].result(PATIENCE_S)
        produce(server, RECORDS)
        members = [Member(server, kind.__module__, kind=kind, log_level=0) for kind in kinds]
        share(*members, sizes=[3, 3])
        before = [each.partitions for each in members]
        former = admin.describe_consumer_groups(["g"])["g"].result(PATIENCE_S).coordinator
        server.kill(former)

        def has_moved() -> bool:  # asked by our admin: librdkafka's may abort where a coordinator is being looked for
            for each in members:
                each.take()
            (found,) = admin.describe_consumer_groups(["g"], request_timeout=5).values()
            return found.exception(PATIENCE_S) is None and found.result().coordinator != former

        until(has_moved, "another coordinator", give_up_seconds=PATIENCE_S)
        produce(server, RECORDS)
        everything = {(index, offset) for index in range(PARTITIONS) for offset in range(2 * RECORDS // PARTITIONS)}

        def is_read() -> bool:
            for each in members:
                each.take()
            return everything <= {place for each in members for place in each.records}

        until(is_read, "every record", give_up_seconds=PATIENCE_S)
        assert [each.partitions for each in members] == before, "nothing moved, but the coordinator"
        for each in members:
            each.consumer.close()


# Java


class Verifiable:
    """A consumer of Java's in a process of its own, and what it said."""

    def __init__(self, server: Server, *more: str, protocol: str = "CONSUMER") -> None:
        address = ("--bootstrap-server", server.bootstrap_servers)
        about = ("--topic", "t", "--group-id", "g", "--group-protocol", protocol, "--verbose", *more)
        try:
            command = kafka_java("org.apache.kafka.tools.VerifiableConsumer", *address, *about)
        except MissingPeer as missing:
            need_or_skip(missing)
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.partitions: set[int] = set()
        self.records: list[tuple[int, int]] = []
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            said = json.loads(line)
            if said["name"] == "record_data":
                self.records.append((said["partition"], said["offset"]))
            elif said["name"] == "partitions_assigned":
                self.partitions |= {each["partition"] for each in said["partitions"]}
            elif said["name"] in ("partitions_revoked", "partitions_lost"):
                self.partitions -= {each["partition"] for each in said["partitions"]}

    def end(self, *, kill: bool = False) -> None:
        self.process.kill() if kill else self.process.terminate()
        self.process.wait(PATIENCE_S)
        self._reader.join(PATIENCE_S)


@contextmanager
def verifiable(server: Server, count: int) -> Iterator[list[Verifiable]]:
    members = [Verifiable(server, "--group-instance-id", f"static-{index}") for index in range(count)]
    try:
        yield members
    finally:
        for each in members:
            if each.process.poll() is None:
                each.end(kill=True)


def java_shares(members: list[Verifiable], sizes: list[int]) -> None:
    def is_shared() -> bool:
        found = [set(each.partitions) for each in members]
        return sorted(map(len, found)) == sizes and len(set().union(*found)) == sum(sizes)

    until(is_shared, f"members with {sizes} partitions", give_up_seconds=PATIENCE_S)


@pytest.mark.peers
@pytest.mark.thorough
def test_java_members_share_are_killed_and_come_back(server: Server) -> None:
    produce(server, RECORDS)
    with verifiable(server, 3) as members:
        java_shares(members, [2, 2, 2])
        killed, ended, left = members
        killed.end(kill=True)
        java_shares([ended, left], [3, 3])
        ended.end()
        java_shares([left], [6])
        produce(server, RECORDS)
        everything = {(index, offset) for index in range(PARTITIONS) for offset in range(2 * RECORDS // PARTITIONS)}
        until(lambda: everything <= {each for m in members for each in m.records}, "every record")


@pytest.mark.peers
@pytest.mark.thorough
def test_java_members_take_a_group_to_the_other_protocol_and_back(server: Server) -> None:
    produce(server, RECORDS)
    eager = "--assignment-strategy", "org.apache.kafka.clients.consumer.RangeAssignor"
    members: list[Verifiable] = []

    def comes(protocol: str, *more: str) -> Verifiable:
        members.append(Verifiable(server, *more, protocol=protocol))
        return members[-1]

    try:
        first, second = comes("CLASSIC"), comes("CLASSIC", *eager)
        java_shares([first, second], [3, 3])
        third = comes("CONSUMER")
        java_shares([first, second, third], [2, 2, 2])
        first.end()
        second.end()
        java_shares([third], [6])
        fourth = comes("CLASSIC")
        java_shares([third, fourth], [3, 3])
        third.end()
        java_shares([fourth], [6])
        produce(server, RECORDS)
        count = Counter[tuple[int, int]]()

        def is_read() -> bool:
            count.clear()
            count.update(record for each in members for record in tuple(each.records))
            return len(count) == 2 * RECORDS

        until(is_read, "every record", give_up_seconds=PATIENCE_S)
        assert set(count.values()) == {1}
    finally:
        for each in members:
            if each.process.poll() is None:
                each.end(kill=True)
