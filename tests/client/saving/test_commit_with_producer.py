"""`consumer.commit(offsets, producer=producer)`: both in one commit, on both kinds of server."""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from oncelog.client.admin.admin import Admin
from oncelog.client.consumer.asynchronous import AsyncConsumer
from oncelog.client.consumer.consumer import Consumer
from oncelog.client.errors import KafkaException
from oncelog.client.net.brokers import Brokers
from oncelog.client.producer.asynchronous import AsyncProducer
from oncelog.client.producer.producer import Producer
from oncelog.client.properties import producer_settings
from oncelog.client.saving import BadSavedProducer, SavedProducer
from oncelog.client.saving.committing import Committers
from oncelog.client.saving.ownership import fetch_committed
from oncelog.client.types import TopicPartition
from oncelog.clock import wall_s
from oncelog.embedded import Server
from tests.client.saving.stored import stored
from tests.raw import RawConnection
from tests.waiting import until

PARTITIONS = 3


@pytest.fixture
def out(raw: RawConnection, topic: str) -> str:
    """The destination; the source has its name and "-in"."""
    assert raw.create_topic(topic, PARTITIONS) == 0
    assert raw.create_topic(f"{topic}-in", 2) == 0
    return topic


@pytest.fixture
def make(bootstrap_servers: str) -> Iterator[Callable[..., Any]]:
    """Consumers and producers that end with the test."""
    made: list[Any] = []

    def make(kind: Any, properties: dict[str, Any] | None = None, **more: Any) -> Any:
        made.append(kind({"bootstrap.servers": bootstrap_servers, **(properties or {})}, **more))
        return made[-1]

    yield make
    for each in made:
        each.close(0) if isinstance(each, Producer) else each.close()


def consumer_of(make: Callable[..., Any], group: str, **properties: Any) -> Consumer:
    consumer: Consumer = make(Consumer, {"group.id": group, "enable.auto.commit": False, **properties})
    return consumer


def at(topic: str, offset: int, metadata: str | None = None) -> list[TopicPartition]:
    return [TopicPartition(f"{topic}-in", partition, offset + partition, metadata) for partition in range(2)]


def loaded(servers: str, group: str) -> tuple[list[tuple[int, int, str | None]], SavedProducer | None]:
    positions, saved = SavedProducer.load({"bootstrap.servers": servers, "group.id": group})
    return sorted((each.partition, each.offset, each.metadata) for each in positions), saved


def test_a_commit_waits_for_every_earlier_record_and_names_that_boundary(
    make: Callable[..., Any], bootstrap_servers: str, raw: RawConnection, out: str
) -> None:
    consumer, producer = consumer_of(make, out), make(Producer, {"linger.ms": 60_000})
    producer.pin(out)
    consumer.commit(offsets=at(out, 0), producer=producer)
    for number in range(90):
        producer.produce(out, b"%d" % number)
    consumer.commit(offsets=at(out, 90, "mine"), producer=producer)
    positions, saved = loaded(bootstrap_servers, out)
    assert positions == [(0, 90, "mine"), (1, 91, "mine")]
    assert saved is not None
    partitions = saved.topics[out].partitions
    assert [partitions[index].last.next_sequence for index in range(PARTITIONS)] == [30, 30, 30]
    assert saved.topics[out].keyless_counter == 90
    assert stored(raw, out).total == 90


def test_whoever_loads_it_goes_on_and_the_former_owner_is_told(
    make: Callable[..., Any], bootstrap_servers: str, raw: RawConnection, out: str
) -> None:
    former_consumer, former = consumer_of(make, out), make(Producer)
    former.pin(out)
    former_consumer.commit(offsets=at(out, 0), producer=former)
    former.produce(out, b"0", partition=0)
    assert former.flush(30) == 0
    _, saved = loaded(bootstrap_servers, out)
    consumer, producer = consumer_of(make, out), make(Producer, saved=saved)
    for number in range(3):
        producer.produce(out, b"%d" % number, partition=0)
    consumer.commit(offsets=at(out, 3), producer=producer)
    with pytest.raises(KafkaException, match="another copy of the job has committed meanwhile"):
        former_consumer.commit(offsets=at(out, 1), producer=former)
    with pytest.raises(KafkaException, match="another copy of the job"):
        former.produce(out, b"x", partition=0)
    consumer.commit(offsets=at(out, 4), producer=producer)
    assert stored(raw, out).numbers() == [0, 1, 2]


def test_another_consumer_may_commit_for_the_same_producer(
    make: Callable[..., Any], bootstrap_servers: str, out: str
) -> None:
    producer = make(Producer)
    producer.pin(out)
    for offset in (1, 2, 3):
        consumer_of(make, out).commit(offsets=at(out, offset), producer=producer)
    assert loaded(bootstrap_servers, out)[0] == [(0, 3, None), (1, 4, None)]


def test_a_consumer_that_is_closed_leaves_a_group_without_members(
    make: Callable[..., Any], bootstrap_servers: str, out: str
) -> None:
    producer = make(Producer)
    producer.pin(out)
    consumer = consumer_of(make, out)
    consumer.commit(offsets=at(out, 5), producer=producer)
    with Admin({"bootstrap.servers": bootstrap_servers}) as admin:

        def members() -> int:
            return len(admin.describe_consumer_groups([out])[out].result(60).members)

        assert members() == 1
        positions, saved = loaded(bootstrap_servers, out)
        later = consumer_of(make, out)
        later.commit(offsets=at(out, 7), producer=make(Producer, saved=saved))
        consumer.close()
        assert members() == 1, "who was followed by another takes nobody along"
        later.close()
        assert members() == 0
        positions, saved = loaded(bootstrap_servers, out)
        assert positions == [(0, 7, None), (1, 8, None)]
        assert saved is not None
        admin.delete_consumer_groups([out])[out].result(60)


async def test_the_asynchronous_faces_commit_together_and_it_can_be_resumed_from(
    bootstrap_servers: str, raw: RawConnection, out: str
) -> None:
    properties = {"bootstrap.servers": bootstrap_servers}
    grouped = {**properties, "group.id": out, "enable.auto.commit": False}
    async with AsyncConsumer(grouped) as consumer, AsyncProducer(properties) as producer:
        await producer.pin(out)
        await consumer.commit(offsets=at(out, 0), producer=producer)
        futures = [await producer.produce(out, b"%d" % number, partition=0) for number in range(5)]
        assert await consumer.commit(offsets=at(out, 5), producer=producer) == at(out, 5)
        assert all(future.done() for future in futures), "a commit waits for every record before"
    positions, saved = await SavedProducer.load_async({**properties, "group.id": out})
    assert sorted((each.partition, each.offset) for each in positions) == [(0, 5), (1, 6)]
    assert saved is not None and saved.topics[out].partitions[0].last.next_sequence == 5
    async with AsyncProducer(properties, saved=saved) as producer:
        await (await producer.produce(out, b"5", partition=0))
    assert stored(raw, out).numbers() == list(range(6))


def test_a_consumer_that_commits_otherwise_too_is_refused(make: Callable[..., Any], out: str) -> None:
    producer = make(Producer)
    producer.pin(out)
    with pytest.raises(KafkaException, match="committing by itself"):
        consumer_of(make, out, **{"enable.auto.commit": True}).commit(offsets=at(out, 0), producer=producer)
    with pytest.raises(KafkaException, match="nothing is pinned"):
        consumer_of(make, out).commit(offsets=at(out, 0), producer=make(Producer))
    with pytest.raises(KafkaException, match="cannot be committed"):
        consumer_of(make, out).commit(offsets=[TopicPartition(f"{out}-in", 0)], producer=producer)


def test_what_does_not_fit_into_the_metadata_is_refused_before_anything_is_sent(
    make: Callable[..., Any], bootstrap_servers: str, out: str
) -> None:
    producer = make(Producer)
    producer.pin(out)
    consumer = consumer_of(make, out, **{"oncelog.offset.metadata.max.bytes": 64})
    with pytest.raises(BadSavedProducer, match=r"offset\.metadata\.max\.bytes"):
        consumer.commit(offsets=at(out, 0), producer=producer)
    assert loaded(bootstrap_servers, out) == ([], None)


def test_a_group_of_another_cluster_holds_the_producer_as_well(
    make: Callable[..., Any], bootstrap_servers: str, out: str
) -> None:
    """Mirror Maker's case: the source, and with it the group, is elsewhere and knows no topic of the destination."""
    producer = make(Producer)
    producer.pin(out)
    with Server(settings={"group.initial.rebalance.delay.ms": "0", "auto.create.topics.enable": "false"}) as source:
        with RawConnection(source.bootstrap_servers) as raw:
            assert raw.create_topic(f"{out}-in", 2) == 0
        consumer = consumer_of(make, out, **{"bootstrap.servers": source.bootstrap_servers})
        consumer.commit(offsets=at(out, 7), producer=producer)
        positions, saved = loaded(source.bootstrap_servers, out)
        assert positions == [(0, 7, None), (1, 8, None)]
        assert saved == producer.saving.started_from
        small = consumer_of(
            make,
            f"{out}-2",
            **{"bootstrap.servers": source.bootstrap_servers, "oncelog.offset.metadata.max.bytes": 110},
        )
        with pytest.raises(BadSavedProducer, match="does not fit into 2 entries"):
            small.commit(offsets=at(out, 7), producer=producer)


async def test_what_was_committed_is_committed_again_while_its_owner_lives(
    brokers: Brokers, bootstrap_servers: str, out: str
) -> None:
    async with AsyncProducer({"bootstrap.servers": bootstrap_servers}) as producer:
        await producer.pin(out)
        committers = Committers(brokers)
        value = await committers.commit(out, at(out, 5), producer, again_s=0.01)
        held = await fetch_committed(brokers, out, SavedProducer.from_json)
        while held.save < 4:
            held = await fetch_committed(brokers, out, SavedProducer.from_json)
        assert held.saved is not None
        assert held.saved.topics == value.topics
        assert held.saved.made_at_ms >= value.made_at_ms
        assert sorted(each.offset for each in held.positions) == [5, 6]
        # And the owner's next commit is still its own.
        await committers.commit(out, at(out, 9), producer)
        assert sorted(
            each.offset for each in (await fetch_committed(brokers, out, SavedProducer.from_json)).positions
        ) == [9, 10]


@pytest.mark.thorough  # the test below shows it, too, with more under way; this one by the other face
def test_a_lease_changes_with_the_commit_that_names_it(topic: str) -> None:
    settings = {"oncelog.lease.lifetime.ms": "5000", "group.initial.rebalance.delay.ms": "0"}
    with Server(settings=settings) as server, RawConnection(server.bootstrap_servers) as raw:
        for name in (topic, f"{topic}-in"):
            assert raw.create_topic(name, PARTITIONS) == 0
        properties = {"bootstrap.servers": server.bootstrap_servers}
        consumer = Consumer({**properties, "group.id": topic, "enable.auto.commit": False})
        producer = Producer(properties)
        producer.pin(topic)
        number = 0
        pids: set[int] = set()

        def committed_under_another_lease() -> bool:
            nonlocal number
            consumer.commit(offsets=at(topic, number), producer=producer)
            value = producer.saving.started_from
            assert value is not None
            pids.update(identity.pid for identity in value.identities)
            for _ in range(4):
                producer.produce(topic, b"%d" % number, partition=0)
                number += 1
            return len(pids) >= 3

        until(committed_under_another_lease, "two changes of lease")
        assert producer.flush(30) == 0
        positions, saved = loaded(server.bootstrap_servers, topic)
        again = Producer(properties, saved=saved)
        for later in range(positions[0][1], number + 10):
            again.produce(topic, b"%d" % later, partition=0)
        assert again.flush(30) == 0
        assert stored(raw, topic, 1).numbers() == list(range(number + 10))
        for each in (producer, again):
            each.close(0)
        consumer.close()


async def test_what_is_produced_while_a_lease_changes_waits_for_the_commit(topic: str) -> None:
    """A task produces without a pause, so at every commit records are under way and more are coming. Commits are so far
    apart that a lease changes when half of it is left: a machine that stands still for a second ends none."""
    settings = {"oncelog.lease.lifetime.ms": "4000", "group.initial.rebalance.delay.ms": "0"}
    with Server(settings=settings) as server, RawConnection(server.bootstrap_servers) as raw:
        for name in (topic, f"{topic}-in"):
            assert raw.create_topic(name, PARTITIONS) == 0
        properties = {
            "bootstrap.servers": server.bootstrap_servers,
            "linger.ms": 0,
            "queue.buffering.max.messages": 300,
        }
        brokers = Brokers(producer_settings(properties))
        await brokers.start()
        produced = 0

        async def produce_on(producer: AsyncProducer) -> None:
            nonlocal produced
            while True:
                await producer.produce(topic, b"%d" % produced, partition=0)
                produced += 1
                await asyncio.sleep(0)

        producer = await AsyncProducer(properties).start()
        await producer.pin(topic)
        committers = Committers(brokers)
        await committers.commit(topic, at(topic, 0), producer)
        task = asyncio.ensure_future(produce_on(producer))
        pids: set[int] = set()
        while len(pids) < 3:
            value = await committers.commit(topic, at(topic, produced), producer)
            pids.update(identity.pid for identity in value.identities)
            while wall_s() * 1_000 < value.made_at_ms + 1_000:
                await asyncio.sleep(0)
        task.cancel()
        await producer.flush()  # and then it is killed
        held = await fetch_committed(brokers, topic, SavedProducer.from_json)
        async with AsyncProducer(properties, saved=held.saved) as again:
            for number in range(min(each.offset for each in held.positions), produced + 10):
                await again.produce(topic, b"%d" % number, partition=0)
        assert stored(raw, topic, 1).numbers() == list(range(produced + 10))
        await producer.close()
        await brokers.close()
