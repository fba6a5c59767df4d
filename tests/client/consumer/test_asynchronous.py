"""The same consumer on the caller's own event loop."""

import asyncio
from typing import Any

import pytest

from oncelog.client.consumer.asynchronous import AsyncConsumer
from oncelog.client.errors import KafkaError, KafkaException
from oncelog.client.types import TopicPartition
from oncelog.embedded import Server
from tests.client.consumer.reading import PATIENCE_S, beginning, values, write
from tests.raw import RawConnection
from tests.raw.topics import new_topic


def consumer_of(server: Server, **more: Any) -> AsyncConsumer:
    properties = {"bootstrap.servers": server.bootstrap_servers, "auto.offset.reset": "earliest"}
    return AsyncConsumer(properties | {"fetch.wait.max.ms": 50} | {name.replace("_", "."): more[name] for name in more})


async def test_records_come_by_poll_consume_columns_and_iteration(
    server: Server, raw: RawConnection, topic: str
) -> None:
    write(raw, topic, [str(i).encode() for i in range(100)])
    found: list[bytes | None] = []
    async with consumer_of(server) as consumer:
        await consumer.assign(beginning(topic))
        message = await consumer.poll(PATIENCE_S)
        assert message is not None
        found.append(message.value())
        found += values(await consumer.consume(9, PATIENCE_S))
        found += (await consumer.consume_arrow(40, PATIENCE_S))["value"].to_pylist()
        async for message in consumer:
            found.append(message.value())
            if len(found) == 100:
                break
        assert await consumer.poll(0.05) is None
        await consumer.seek(TopicPartition(topic, 0, 50))
        assert values(await consumer.consume(1, PATIENCE_S)) == [b"50"]
        assert consumer.position([TopicPartition(topic, 0)])[0].offset == 51
    assert found == [str(i).encode() for i in range(100)]


async def test_the_loop_goes_on_while_a_poll_waits(server: Server, raw: RawConnection, topic: str) -> None:
    async with consumer_of(server) as consumer:
        await consumer.assign(beginning(topic))
        waiting = asyncio.ensure_future(consumer.poll(PATIENCE_S))
        await asyncio.to_thread(write, raw, topic, [b"late"])
        message = await waiting
        assert message is not None and message.value() == b"late"


async def test_a_group_is_shared_with_callbacks_that_may_be_coroutines(server: Server, raw: RawConnection) -> None:
    topic = new_topic(raw, partitions=2)
    for partition in range(2):
        write(raw, topic, [b"x"] * 5, partition=partition)
    told: list[tuple[str, list[int]]] = []

    async def on_assign(consumer: AsyncConsumer, partitions: list[TopicPartition]) -> None:
        await asyncio.sleep(0)
        told.append(("assign", [each.partition for each in partitions]))

    def on_revoke(consumer: AsyncConsumer, partitions: list[TopicPartition]) -> None:
        told.append(("revoke", [each.partition for each in partitions]))

    async with consumer_of(server, group_id="asynchronous") as consumer:
        await consumer.subscribe([topic], on_assign=on_assign, on_revoke=on_revoke)
        assert len(await consumer.consume(10, PATIENCE_S)) == 10
    assert told == [("assign", [0, 1]), ("revoke", [0, 1])]
    async with consumer_of(server, group_id="asynchronous") as follower:
        committed = await follower.committed([TopicPartition(topic, i) for i in range(2)], PATIENCE_S)
        assert [each.offset for each in committed] == [5, 5]


async def test_errors_are_raised_by_iteration(server: Server) -> None:
    async with consumer_of(server) as consumer:
        await consumer.assign(beginning("nowhere-at-all"))
        with pytest.raises(KafkaException) as raised:
            async for _ in consumer:
                pass
        assert raised.value.error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART


async def test_a_closed_consumer_leaves_no_task_behind_and_says_that_it_is_closed(
    server: Server, raw: RawConnection, topic: str
) -> None:
    before = asyncio.all_tasks()
    consumer = await consumer_of(server, group_id="asynchronous-closing").start()
    await consumer.subscribe([topic])
    await consumer.poll(0.2)
    await consumer.close()
    await consumer.close()
    assert asyncio.all_tasks() <= before
    with pytest.raises(RuntimeError, match="closed"):
        await consumer.poll(0)


async def test_one_that_was_not_started_says_what_to_do(server: Server) -> None:
    with pytest.raises(RuntimeError, match="async with"):
        await consumer_of(server).poll(0)
