"""A call that is ended half-way, by a signal or by who gives up waiting for it, loses nothing and leaves nothing."""

import asyncio
import signal
import threading
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import pytest

from oncelog.client import AdminClient
from oncelog.client.consumer.asynchronous import AsyncConsumer
from oncelog.client.consumer.consumer import Consumer
from oncelog.client.consumer.message import Message
from oncelog.client.errors import KafkaError, KafkaException
from oncelog.client.types import OFFSET_BEGINNING, TopicPartition
from oncelog.embedded import Server
from tests.client.consumer.conftest import MakeConsumer
from tests.client.consumer.reading import PATIENCE_S, beginning, values, write
from tests.client.inside import driver_of
from tests.raw import RawConnection
from tests.waiting import until

COLLECTING = ("consume", "consume_arrow", "consume_batches")
VALUES = [b"0", b"1", b"2", b"3"]
_groups = count(1)


class Heard(Exception):
    """Raised by the handler, as KeyboardInterrupt is."""


class Gate:
    """In the place of the commit before partitions are given back: it is entered, and goes on when it is opened."""

    def __init__(self) -> None:
        self.entered = threading.Event()
        self.opened = threading.Event()

    async def commit(self, offsets: Any) -> None:
        self.entered.set()
        await asyncio.to_thread(self.opened.wait, PATIENCE_S)


@pytest.fixture
def group() -> str:
    return f"interrupted-{next(_groups)}"


@pytest.fixture
def signalled() -> Iterator[Callable[[Callable[[], object]], None]]:
    """To be given what is waited for before the signal comes."""

    def hear(*_: object) -> None:
        raise Heard

    before = signal.signal(signal.SIGUSR1, hear)
    senders: list[threading.Thread] = []

    def when(is_so: Callable[[], object]) -> None:
        def send() -> None:
            until(is_so, "the call to be half-way")
            signal.raise_signal(signal.SIGUSR1)

        senders.append(threading.Thread(target=send))
        senders[-1].start()

    yield when
    for each in senders:
        each.join()
    signal.signal(signal.SIGUSR1, before)


def started(server: Server, group: str, **more: Any) -> AsyncConsumer:
    given = {name.replace("_", "."): value for name, value in more.items()}
    properties = {"bootstrap.servers": server.bootstrap_servers, "auto.offset.reset": "earliest", "group.id": group}
    return AsyncConsumer(properties | {"enable.auto.commit": False, "fetch.wait.max.ms": 50} | given)


def stands_at(consumer: Consumer | AsyncConsumer, topic: str, offset: int) -> bool:
    return consumer.position([TopicPartition(topic, 0)])[0].offset == offset


def values_of(found: Any) -> list[bytes | None]:
    if isinstance(found, list):
        return [value for each in found for value in ([each.value()] if isinstance(each, Message) else values_of(each))]
    return list(found["value"].to_pylist())


@pytest.mark.parametrize("collect", COLLECTING)
async def test_what_a_cancelled_call_had_collected_comes_again(
    server: Server, raw: RawConnection, topic: str, group: str, collect: str
) -> None:
    write(raw, topic, VALUES)
    async with started(server, group) as consumer:
        await consumer.assign(beginning(topic))
        assert values(await consumer.consume(1, PATIENCE_S)) == VALUES[:1]
        collecting = asyncio.ensure_future(getattr(consumer, collect)(100, PATIENCE_S))
        await asyncio.to_thread(until, lambda: stands_at(consumer, topic, len(VALUES)), "the call to have the rest")
        collecting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await collecting
        assert stands_at(consumer, topic, 1)
        committed = await consumer.commit()
        assert committed is not None and [each.offset for each in committed] == [1]
        assert values_of(await getattr(consumer, collect)(len(VALUES) - 1, PATIENCE_S)) == VALUES[1:]


@pytest.mark.parametrize("collect", COLLECTING)
def test_what_a_call_had_collected_that_a_signal_ended_comes_again(
    raw: RawConnection, topic: str, group: str, make_consumer: MakeConsumer, signalled: Any, collect: str
) -> None:
    write(raw, topic, VALUES)
    consumer = make_consumer(group_id=group)
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    signalled(lambda: stands_at(consumer, topic, len(VALUES)))
    with pytest.raises(Heard):
        getattr(consumer, collect)(100, PATIENCE_S)
    with pytest.raises(KafkaException) as nothing:
        consumer.commit(asynchronous=False)
    assert nothing.value.error.code() == KafkaError._NO_OFFSET
    assert values_of(getattr(consumer, collect)(len(VALUES), PATIENCE_S)) == VALUES


async def test_partitions_are_given_back_though_the_poll_that_was_to_see_to_it_is_cancelled(
    server: Server, raw: RawConnection, topic: str, group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(raw, topic, VALUES)
    async with started(server, group, enable_auto_commit=True) as consumer:
        await consumer.subscribe([topic])
        assert values(await consumer.consume(1, PATIENCE_S)) == VALUES[:1]
        gate = Gate()
        monkeypatch.setattr(driver_of(consumer).operations.core, "commit_in_background", gate.commit)
        await consumer.unsubscribe()
        polling = asyncio.ensure_future(consumer.poll(PATIENCE_S))
        await asyncio.to_thread(until, gate.entered.is_set, "the commit before the partitions go")
        polling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await polling
        gate.opened.set()
        assert await consumer.poll(0.1) is None, "of partitions that were given back"
        assert consumer.assignment() == []


def test_partitions_are_given_back_though_a_signal_ends_the_poll_that_was_to_see_to_it(
    raw: RawConnection,
    topic: str,
    group: str,
    make_consumer: MakeConsumer,
    signalled: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    write(raw, topic, VALUES)
    consumer = make_consumer(group_id=group, enable_auto_commit=True)
    consumer.subscribe([topic])
    assert values(consumer.consume(1, PATIENCE_S)) == VALUES[:1]
    gate = Gate()
    monkeypatch.setattr(driver_of(consumer).operations.core, "commit_in_background", gate.commit)
    consumer.unsubscribe()
    signalled(gate.entered.is_set)
    with pytest.raises(Heard):
        while True:
            consumer.poll(PATIENCE_S)
    gate.opened.set()
    assert consumer.poll(0.1) is None, "of partitions that were given back"
    assert consumer.assignment() == []


async def test_a_callback_that_fails_does_not_keep_a_consumer_open_or_in_its_group(
    server: Server, raw: RawConnection, topic: str, group: str
) -> None:
    write(raw, topic, VALUES)
    before = asyncio.all_tasks()

    async def on_revoke(consumer: AsyncConsumer, partitions: list[TopicPartition]) -> None:
        raise Heard

    consumer = await started(server, group).start()
    await consumer.subscribe([topic], on_revoke=on_revoke)
    await consumer.consume(1, PATIENCE_S)
    with pytest.raises(Heard):
        await consumer.close()
    assert asyncio.all_tasks() <= before
    assert await asyncio.to_thread(members, server, group) == 0


async def test_a_close_that_is_cancelled_leaves_no_task_behind(
    server: Server, raw: RawConnection, topic: str, group: str
) -> None:
    write(raw, topic, VALUES)
    before = asyncio.all_tasks()
    called = threading.Event()

    async def on_revoke(consumer: AsyncConsumer, partitions: list[TopicPartition]) -> None:
        called.set()
        await asyncio.get_running_loop().create_future()

    consumer = await started(server, group).start()
    await consumer.subscribe([topic], on_revoke=on_revoke)
    await consumer.consume(1, PATIENCE_S)
    closing = asyncio.ensure_future(consumer.close())
    await asyncio.to_thread(until, called.is_set, "the callback")
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    assert asyncio.all_tasks() <= before
    with pytest.raises(RuntimeError, match="closed"):
        await consumer.poll(0)


def test_a_callback_that_fails_does_not_keep_a_consumer_of_a_thread_in_its_group(
    server: Server, raw: RawConnection, topic: str, group: str, make_consumer: MakeConsumer
) -> None:
    write(raw, topic, VALUES)

    def on_revoke(consumer: Consumer, partitions: list[TopicPartition]) -> None:
        raise Heard

    consumer = make_consumer(group_id=group)
    consumer.subscribe([topic], on_revoke=on_revoke)
    consumer.consume(1, PATIENCE_S)
    with pytest.raises(Heard):
        consumer.close()
    assert members(server, group) == 0


def members(server: Server, group: str) -> int:
    with AdminClient({"bootstrap.servers": server.bootstrap_servers}) as admin:
        return len(admin.describe_consumer_groups([group])[group].result(PATIENCE_S).members)
