"""Stock clients in groups: two members that come and go, with each of the stock assignors, static and not."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from functools import partial
from itertools import count
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import ConsumerRebalanceListener, KafkaConsumer
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


def is_shared(*members: "Member | PollingMember") -> bool:
    owned = [partition for member in members for partition in member.owned]
    return sorted(owned) == list(range(PARTITIONS)) and all(member.owned for member in members)


@pytest.mark.parametrize(
    "assignor", ["range", pytest.param("roundrobin", marks=pytest.mark.thorough), "cooperative-sticky"]
)
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


class PollingMember(ConsumerRebalanceListener):  # type: ignore[misc]
    """A kafka-python consumer in a thread of its own, polling without a pause.

    A join that ends between two polls of this client is forgotten. The next poll joins again, and when the member is
    the leader the whole group does; or, when the join was for new metadata, it never does, and sends no heartbeats
    either. Two members polled in turn for 50 ms by one thread may stay so for longer than anybody waits, on Apache
    Kafka too. So a poll here lasts much longer than a join.
    """

    def __init__(self, server: Server, topic: str, assignor: Any, threads: Executor, news: threading.Condition) -> None:
        self.owned: set[int] = set()
        self.read: set[int] = set()
        self.commits_wanted = 0
        self.commits = 0
        self.is_over = False
        self._news = news
        self._is_leaving = threading.Event()
        self._consumer = KafkaConsumer(
            bootstrap_servers=server.bootstrap_servers,
            group_id=topic,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            partition_assignment_strategy=(assignor,),
            heartbeat_interval_ms=100,
        )
        # A sticky leader of this client that shares out before it has seen the topic goes astray, on Kafka too.
        assert len(self._consumer.partitions_for_topic(topic)) == PARTITIONS
        self._consumer.subscribe([topic], listener=self)
        self.run = threads.submit(self._run)

    def on_partitions_assigned(self, assigned: Any) -> None:
        self._tell(lambda: self.owned.update(each.partition for each in assigned))

    def on_partitions_revoked(self, revoked: Any) -> None:
        self._tell(lambda: self.owned.difference_update(each.partition for each in revoked))

    def on_partitions_lost(self, lost: Any) -> None:
        self.on_partitions_revoked(lost)

    def leave(self) -> None:
        self._is_leaving.set()
        self.run.result(PATIENCE_S)

    def _run(self) -> None:
        try:
            while not self._is_leaving.is_set():
                found = self._consumer.poll(timeout_ms=1000)
                numbers = {int(record.value) for records in found.values() for record in records}
                self._tell(partial(self.read.update, numbers))
                if self.commits < self.commits_wanted and committed(self._consumer):
                    self._tell(self._count_commit)
        finally:
            self._consumer.close()
            self._tell(self._end)

    def _count_commit(self) -> None:
        self.commits += 1

    def _end(self) -> None:
        self.is_over = True

    def _tell(self, change: Callable[[], object]) -> None:
        with self._news:
            change()
            self._news.notify_all()


@pytest.mark.parametrize(
    "assignor",
    [
        RangePartitionAssignor,
        pytest.param(RoundRobinPartitionAssignor, marks=pytest.mark.thorough),
        pytest.param(StickyPartitionAssignor, marks=pytest.mark.thorough),
        CooperativeStickyAssignor,
    ],
)
def test_kafka_python_members_share_and_take_over(server: Server, topic: str, assignor: Any) -> None:
    news = threading.Condition()
    members: list[PollingMember] = []

    def wait_until(is_so: Callable[[], bool], what: str) -> None:
        with news:
            in_time = news.wait_for(lambda: is_so() or any(member.is_over for member in members), PATIENCE_S)
            assert in_time, f"waited in vain for {what}: {[member.owned for member in members]}"
        for member in members:
            if member.is_over:
                member.run.result(PATIENCE_S)  # raises what ended it

    with ThreadPoolExecutor(max_workers=2) as threads:
        try:
            one = PollingMember(server, topic, assignor, threads, news)
            members.append(one)
            wait_until(lambda: is_shared(one), "the first to own everything")
            two = PollingMember(server, topic, assignor, threads, news)
            members.append(two)
            wait_until(lambda: is_shared(one, two), "the two to share")
            one.commits_wanted = 1
            wait_until(lambda: one.commits == 1, "the first to commit")
            two.leave()
            members.remove(two)
            wait_until(lambda: is_shared(one), "the first to take over")
            wait_until(lambda: one.read | two.read == set(range(RECORDS)), "every record to be read")
        finally:
            for member in members:
                member.leave()
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
