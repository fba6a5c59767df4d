"""What was fetched ahead when damage shows is not handed out, though the loop that fetches has not heard of it yet."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from oncelog.client.consumer import range_engine, ranges
from oncelog.client.consumer.chunk_readers import Position
from oncelog.client.consumer.engine import Engine
from oncelog.client.consumer.message import Message
from oncelog.client.consumer.operations import Operations
from oncelog.client.consumer.range_engine import Bounds
from oncelog.client.consumer.ranges import Range
from oncelog.client.errors import KafkaError
from oncelog.client.fetching.fetcher import Fetcher
from oncelog.client.fetching.values import Fetch, Fetched, Leader
from oncelog.client.net.brokers import Brokers
from oncelog.client.properties import consumer_settings
from oncelog.client.types import TopicPartition
from oncelog.embedded import Server
from oncelog.slots import AnyPlace
from tests.client.consumer.conftest import MakeConsumer
from tests.client.consumer.reading import PATIENCE_S, beginning, take, write
from tests.client.fetching.test_batches import data_batch
from tests.client.inside import driver_of
from tests.raw import RawConnection
from tests.waiting import until

A: AnyPlace = ("a", 0)
NOWHERE = {"bootstrap.servers": "127.0.0.1:1"}
END = 9
DAMAGED = 3  # the first offset of the second of three batches

Later = list[Callable[[], None]]


def batch_at(offset: int, *, is_damaged: bool = False) -> bytes:
    data = bytearray(data_batch(offset, 3))
    data[-1] ^= is_damaged
    return bytes(data)


def asks_nobody(engine: Engine) -> None:
    engine.fetcher.actions = lambda now_ms: []  # type: ignore[method-assign]


def give(engine: Engine, *batches: bytes) -> None:
    """In the place of a broker: an answer for each."""
    fetcher, now_ms = engine.fetcher, int(asyncio.get_running_loop().time() * 1000) + 60_000
    for records in batches:
        fetcher.leaders({A: Leader(1, -1)}, {}, now_ms)
        (fetch,) = Fetcher.actions(fetcher, now_ms)
        assert isinstance(fetch, Fetch)
        fetcher.fetched(fetch.request_id, [Fetched(A, 0, END, END, 0, [], -1, records, None)], now_ms)
    engine.pump()


def run(later: Later) -> None:
    """The loop has its turn."""
    while later:
        later.pop(0)()


def rows_of(operations: Operations) -> Iterator[int | KafkaError]:
    delivery = operations.delivery
    while delivery.advance():
        yield from (_seen(each) for each in delivery.rows)


def columns_of(operations: Operations) -> Iterator[int | KafkaError]:
    while (found := operations.delivery.take_arrow(100)) is not None:
        if isinstance(found, Message):
            yield _seen(found)
        else:
            yield from found["offset"].to_pylist()


def _seen(message: Message) -> int | KafkaError:
    return message.error() or message.offset()


@pytest.mark.parametrize("read", [rows_of, columns_of])
async def test_a_consumer_stands_at_the_damage_until_it_was_fetched_again(
    read: Callable[[Operations], Iterator[int | KafkaError]],
) -> None:
    later: Later = []
    settings = consumer_settings({**NOWHERE, "group.id": "g", "enable.partition.eof": True})
    operations = Operations(settings, lambda: None, later.append)
    engine = operations.core.engine
    asks_nobody(engine)
    try:
        engine.fetcher.assign(A, 0)
        give(engine, batch_at(0), batch_at(DAMAGED, is_damaged=True), batch_at(6))
        assert list(read(operations)) == [0, 1, 2, KafkaError._BAD_MSG]
        assert operations.delivery.position(A) == Position(DAMAGED, 0)
        assert operations.core.to_commit(is_explicit=True)[A].offset == DAMAGED
        run(later)
        give(engine, batch_at(DAMAGED), batch_at(6))
        assert list(read(operations)) == [3, 4, 5, 6, 7, 8, KafkaError._PARTITION_EOF]
        assert operations.core.to_commit(is_explicit=True)[A].offset == END
    finally:
        await operations.core.engine.close()


async def test_a_range_has_every_row_once(monkeypatch: pytest.MonkeyPatch) -> None:
    later: Later = []
    made: list[Engine] = []
    answers = [(batch_at(0), batch_at(DAMAGED, is_damaged=True), batch_at(6)), (batch_at(DAMAGED), batch_at(6))]

    class Known(Engine):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            asks_nobody(self)
            made.append(self)

    def ask_bounds(asking: Coroutine[Any, Any, Bounds]) -> Bounds:
        """The reader has found nothing and waits: now the loop has its turn."""
        asking.close()
        run(later)
        give(made[0], *answers.pop(0))
        return Bounds(0, END, END)

    settings = consumer_settings(NOWHERE)
    client = SimpleNamespace(
        settings=settings, brokers=Brokers(settings), thread=SimpleNamespace(call_soon=later.append, run=ask_bounds)
    )
    monkeypatch.setattr(range_engine, "IDLE_S", 0)
    monkeypatch.setattr(range_engine, "Engine", Known)
    monkeypatch.setattr(ranges, "warm", lambda properties: client)
    monkeypatch.setattr(ranges, "cool", lambda client: None)
    found = [each.offset for each in ranges.read_columns(NOWHERE, Range(*A, 0, END))]
    try:
        assert [offset for column in found if column is not None for offset in column] == list(range(END))
    finally:
        await made[0].close()


def test_nothing_behind_damage_is_handed_out_or_committed(
    server: Server, raw: RawConnection, topic: str, make_consumer: MakeConsumer
) -> None:
    for at in range(3):
        write(raw, topic, [b"batch %d" % at] * 3)
    (segment,) = Path(server.data_dir).glob(f"{topic}-0/*.log")
    data = bytearray(segment.read_bytes())
    data[data.index(b"batch 1") + 3] ^= 1
    segment.write_bytes(data)
    consumer = make_consumer(
        group_id=topic, enable_partition_eof=True, fetch_message_max_bytes=1, fetch_error_backoff_ms=10
    )
    consumer.assign(beginning(topic))
    cursors = driver_of(consumer).operations.core.engine.fetcher.cursors
    until(lambda: cursors[topic, 0].offset == END, "all to be fetched ahead")
    assert [each.offset() for each in take(consumer, DAMAGED)] == [0, 1, 2]
    for _ in range(2):
        told = consumer.poll(PATIENCE_S)
        assert told is not None and told.error() == KafkaError._BAD_MSG and told.offset() == DAMAGED
    consumer.commit(asynchronous=False)
    assert [each.offset for each in consumer.committed([TopicPartition(topic, 0)])] == [DAMAGED]
