"""Stock clients in groups: two members that come and go, with each of the stock assignors, static and not."""

import asyncio
import threading
from collections.abc import Iterator
from itertools import chain, count
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaConsumer
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from kafka.errors import RebalanceInProgressError

from oncelog.embedded import Server

PARTITIONS = 4
RECORDS = 100
_numbers = count()
PATIENCE_S = 30


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server() as server:
        yield server


@pytest.fixture
def topic(server: Server) -> str:
    """Filled with numbered records, spread over its partitions."""
    name = f"topic-{next(_numbers)}"
    admin = AdminClient({"bootstrap.servers": server.bootstrap_servers})
    admin.create_topics([NewTopic(name, PARTITIONS, 1)])[name].result(PATIENCE_S)
    producer = Producer({"bootstrap.servers": server.bootstrap_servers, "enable.idempotence": True})
    for number in range(RECORDS):
        producer.produce(name, str(number).encode(), partition=number % PARTITIONS)
    assert producer.flush(PATIENCE_S) == 0
    return name


class Member:
    """A librdkafka consumer that tells what it owns, whatever the assignor does in between."""

    def __init__(self, server: Server, topic: str, assignor: str, **more: object) -> None:
        self.owned: set[int] = set()
        self.read: list[int] = []
        self._is_cooperative = assignor.startswith("cooperative")
        self.consumer = Consumer(
            {
                "bootstrap.servers": server.bootstrap_servers,
                "group.id": topic,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "partition.assignment.strategy": assignor,
                "session.timeout.ms": 6000,
                "heartbeat.interval.ms": 100,
                **more,
            }
        )
        self.consumer.subscribe([topic], on_assign=self._assign, on_revoke=self._revoke, on_lost=self._revoke)

    def _assign(self, consumer: Any, partitions: Any) -> None:
        found = {each.partition for each in partitions}
        self.owned = self.owned | found if self._is_cooperative else found

    def _revoke(self, consumer: Any, partitions: Any) -> None:
        self.owned -= {each.partition for each in partitions}

    def has_committed(self) -> bool:
        """A cooperative group rebalances twice, and takes no commits in between."""
        try:
            self.consumer.commit(asynchronous=False)
        except KafkaException as refusal:
            assert refusal.args[0].code() == KafkaError.REBALANCE_IN_PROGRESS, refusal
            return False
        return True

    def poll(self) -> None:
        message = self.consumer.poll(0.02)
        if message is not None:
            assert message.error() is None, message.error()
            self.read.append(int(message.value() or b""))


def poll_until(members: list[Member], is_so: Any, what: str) -> None:
    give_up = threading.Event()
    timer = threading.Timer(PATIENCE_S, give_up.set)
    timer.start()
    try:
        while not is_so():
            assert not give_up.is_set(), f"waited in vain for {what}: {[member.owned for member in members]}"
            for member in members:
                member.poll()
    finally:
        timer.cancel()


def is_shared(*members: Member) -> bool:
    owned = [partition for member in members for partition in member.owned]
    return sorted(owned) == list(range(PARTITIONS)) and all(member.owned for member in members)


@pytest.mark.parametrize("assignor", ["range", "roundrobin", "cooperative-sticky"])
def test_librdkafka_members_share_and_take_over(server: Server, topic: str, assignor: str) -> None:
    one = Member(server, topic, assignor)
    poll_until([one], lambda: is_shared(one), "the first to own everything")
    two = Member(server, topic, assignor)
    poll_until([one, two], lambda: is_shared(one, two), "the two to share")
    poll_until([one, two], lambda: len({*one.read, *two.read}) == RECORDS, "every record to be read")
    poll_until([one, two], lambda: one.has_committed() and two.has_committed(), "both to commit")
    two.consumer.close()
    poll_until([one], lambda: is_shared(one), "the first to take over")
    one.consumer.close()
    admin = AdminClient({"bootstrap.servers": server.bootstrap_servers})
    stored = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(topic)])[topic].result(PATIENCE_S)
    assert {part.partition: part.offset for part in stored.topic_partitions} == dict.fromkeys(
        range(PARTITIONS), RECORDS // PARTITIONS
    )


def test_a_static_librdkafka_member_restarts_without_a_rebalance(server: Server, topic: str) -> None:
    instance = {"group.instance.id": "one"}
    one = Member(server, topic, "range", **instance)
    two = Member(server, topic, "range", **{"group.instance.id": "two"})
    poll_until([one, two], lambda: is_shared(one, two), "the two to share")
    group = server.broker.groups.groups[topic]
    generation, before = group.generation, set(one.owned)
    one.consumer.close()
    one = Member(server, topic, "range", **instance)
    poll_until([one, two], lambda: is_shared(one, two), "the first to be back")
    assert (group.generation, one.owned) == (generation, before)
    one.consumer.close()
    two.consumer.close()


@pytest.mark.parametrize(
    "assignor",
    [
        RangePartitionAssignor,
        RoundRobinPartitionAssignor,
        StickyPartitionAssignor,
        CooperativeStickyAssignor,
    ],
)
def test_kafka_python_members_share_and_take_over(server: Server, topic: str, assignor: Any) -> None:
    def member() -> Any:
        consumer = KafkaConsumer(
            bootstrap_servers=server.bootstrap_servers,
            group_id=topic,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            partition_assignment_strategy=(assignor,),
            heartbeat_interval_ms=100,
        )
        # A sticky leader of this client that shares out before it has seen the topic goes astray, on Kafka too.
        assert len(consumer.partitions_for_topic(topic)) == PARTITIONS
        consumer.subscribe([topic])
        return consumer

    read: set[int] = set()

    def poll_until_shared(*members: Any) -> None:
        give_up = threading.Event()
        timer = threading.Timer(PATIENCE_S, give_up.set)
        timer.start()
        try:
            while True:
                owned = [[part.partition for part in each.assignment()] for each in members]
                if all(owned) and sorted(chain.from_iterable(owned)) == list(range(PARTITIONS)):
                    return
                assert not give_up.is_set(), f"waited in vain to share: {owned}"
                for each in members:
                    for records in each.poll(timeout_ms=50).values():
                        read.update(int(record.value) for record in records)
        finally:
            timer.cancel()

    one = member()
    poll_until_shared(one)
    two = member()
    poll_until_shared(one, two)
    while not committed(one):
        one.poll(timeout_ms=50)
        two.poll(timeout_ms=50)
    two.close()
    poll_until_shared(one)
    one.close()
    assert server.broker.groups.groups[topic].generation >= 3


def committed(consumer: Any) -> bool:
    """A cooperative group rebalances twice, and takes no commits in between."""
    try:
        consumer.commit()
    except RebalanceInProgressError:
        return False
    return True


async def test_aiokafka_members_share_commit_and_go_on(server: Server, topic: str) -> None:
    def member() -> Any:
        return AIOKafkaConsumer(
            topic,
            bootstrap_servers=server.bootstrap_servers,
            group_id=topic,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            heartbeat_interval_ms=100,
        )

    async def read(consumer: Any, wanted: int) -> list[int]:
        found: list[int] = []
        while len(found) < wanted:
            message = await asyncio.wait_for(consumer.getone(), PATIENCE_S)
            found.append(int(message.value))
        return found

    async def shared(*members: Any) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while True:
                owned = [part.partition for each in members for part in each.assignment()]
                if sorted(owned) == list(range(PARTITIONS)) and all(each.assignment() for each in members):
                    return
                await asyncio.gather(*(each.getmany(timeout_ms=50) for each in members))

    one = member()
    await one.start()
    assert sorted(await read(one, RECORDS)) == list(range(RECORDS))
    await one.commit()
    two = member()
    await two.start()
    await shared(one, two)
    await one.stop()
    await shared(two)
    producer = AIOKafkaProducer(bootstrap_servers=server.bootstrap_servers)
    await producer.start()
    await producer.send_and_wait(topic, b"1000")
    await producer.stop()
    assert await read(two, 1) == [1000]
    await two.stop()
