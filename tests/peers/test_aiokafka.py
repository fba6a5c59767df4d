"""aiokafka: the client of asyncio programs."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from tests.peers.server_process import ServerProcess
from tests.peers.stored import stored_codecs

PATIENCE_S = 30


@pytest.fixture
async def made(server: ServerProcess, topic: str) -> AsyncIterator[str]:
    admin = AIOKafkaAdminClient(bootstrap_servers=server.bootstrap_servers)
    await admin.start()
    # By its time a record may be old, and goes whenever a broker looks for that.
    await admin.create_topics([NewTopic(topic, 2, 1, topic_configs={"retention.ms": "-1"})])
    yield topic
    await admin.delete_topics([topic])
    await admin.close()


def consumer_of(server: ServerProcess, *topics: str, **more: Any) -> Any:
    return AIOKafkaConsumer(
        *topics,
        bootstrap_servers=server.bootstrap_servers,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        heartbeat_interval_ms=200,
        session_timeout_ms=30_000,
        metadata_max_age_ms=1000,
        **more,
    )


async def take(consumer: Any, count: int) -> list[Any]:
    found: list[Any] = []
    async with asyncio.timeout(PATIENCE_S):
        while len(found) < count:
            for messages in (await consumer.getmany(timeout_ms=200)).values():
                found += messages
    return found


async def produce(server: ServerProcess, topic: str, count: int, **more: Any) -> None:
    producer = AIOKafkaProducer(bootstrap_servers=server.bootstrap_servers, enable_idempotence=True, **more)
    await producer.start()
    try:
        sends = [await producer.send(topic, f"value {i}".encode() * 20, partition=i % 2) for i in range(count)]
        metadata = await asyncio.gather(*sends)
    finally:
        await producer.stop()
    assert sorted((m.partition, m.offset) for m in metadata) == sorted((i % 2, i // 2) for i in range(count))


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
async def test_what_is_produced_with_a_codec_is_stored_in_it_and_read_back(
    server: ServerProcess, made: str, codec: str
) -> None:
    await produce(server, made, 100, compression_type=None if codec == "none" else codec)
    assert stored_codecs(server, made) == {codec}
    async with consumer_of(server, made) as consumer:
        messages = await take(consumer, 100)
    assert {m.value for m in messages} == {f"value {i}".encode() * 20 for i in range(100)}


async def test_two_members_share_partitions_and_take_over_from_each_other(server: ServerProcess, made: str) -> None:
    one = consumer_of(server, made, group_id=made)
    await one.start()
    await await_share(one, 2)
    two = consumer_of(server, made, group_id=made)
    await two.start()
    await asyncio.gather(await_share(one, 1), await_share(two, 1))
    await one.stop()
    await await_share(two, 2)
    await produce(server, made, 10)
    assert len(await take(two, 10)) == 10
    await two.stop()


async def await_share(consumer: Any, count: int) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while len(consumer.assignment()) != count:
            await consumer.getmany(timeout_ms=50)


async def test_a_group_goes_on_where_it_committed(server: ServerProcess, made: str) -> None:
    await produce(server, made, 20)
    async with consumer_of(server, made, group_id=made) as first:
        seen = [m.value for m in (await take(first, 20))]
        places = first.assignment()
        await first.commit(dict.fromkeys(places, 4))
    async with consumer_of(server, made, group_id=made) as second:
        rest = await take(second, 12)
    assert len(seen) == 20
    assert min(m.offset for m in rest) == 4


async def test_seek_by_time(server: ServerProcess, made: str) -> None:
    producer = AIOKafkaProducer(bootstrap_servers=server.bootstrap_servers, enable_idempotence=True)
    await producer.start()
    for i in range(10):
        await producer.send_and_wait(made, b"x", partition=0, timestamp_ms=1_700_000_000_000 + 1000 * i)
    await producer.stop()
    async with consumer_of(server) as consumer:
        place = TopicPartition(made, 0)
        consumer.assign([place])
        found = await consumer.offsets_for_times({place: 1_700_000_003_500})
        assert found[place].offset == 4
        assert await consumer.end_offsets([place]) == {place: 10}
        assert await consumer.beginning_offsets([place]) == {place: 0}
        consumer.seek(place, 4)
        assert (await take(consumer, 1))[0].offset == 4


async def test_groups_and_topics_are_described(server: ServerProcess, made: str) -> None:
    async with consumer_of(server, made, group_id=made) as consumer:
        await await_share(consumer, 2)
        admin = AIOKafkaAdminClient(bootstrap_servers=server.bootstrap_servers)
        await admin.start()
        topics = await admin.describe_topics([made])
        groups = await admin.list_consumer_groups()
        await admin.close()
    assert len(topics[0]["partitions"]) == 2
    assert made in {group[0] for group in groups}
