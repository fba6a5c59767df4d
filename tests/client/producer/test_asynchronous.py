"""The asyncio twin: the same records, reports as futures, room waited for."""

import asyncio
import gc
import threading

import pyarrow as pa
import pytest

from oncelog.client.errors import KafkaError, KafkaException
from oncelog.client.producer.asynchronous import AsyncProducer
from oncelog.client.producer.bulk import BulkWriter, Piece
from oncelog.embedded import Server
from tests.client.producer.stored import stored


async def test_futures_say_where_each_record_stands(server: Server, topic: str) -> None:
    async with AsyncProducer({"bootstrap.servers": server.bootstrap_servers}) as producer:
        futures = [await producer.send(topic, b"%d" % number, key="k") for number in range(500)]
        messages = await asyncio.gather(*futures)
    found = await asyncio.to_thread(stored, server.bootstrap_servers, topic)
    assert [(each.value, each.offset) for each in found] == [(each.value(), each.offset()) for each in messages]
    assert [each.sequence() for each in messages] == list(range(500))


async def test_a_full_queue_is_waited_for(server: Server, topic: str) -> None:
    properties = {"bootstrap.servers": server.bootstrap_servers, "queue.buffering.max.messages": 10}
    async with AsyncProducer(properties) as producer:
        most = 0
        for number in range(300):
            await producer.send(topic, b"%d" % number)
            most = max(most, len(producer))
        await producer.flush()
        assert (most, len(producer)) == (10, 0)
    found = await asyncio.to_thread(stored, server.bootstrap_servers, topic)
    assert [each.value for each in found] == [b"%d" % number for number in range(300)]


async def test_with_raise_a_full_queue_raises(server: Server, topic: str) -> None:
    properties = {
        "bootstrap.servers": server.bootstrap_servers,
        "queue.buffering.max.messages": 1,
        "oncelog.queue.full": "raise",
    }
    async with AsyncProducer(properties) as producer:
        await producer.send(topic, b"x")
        with pytest.raises(BufferError):
            await producer.send(topic, b"x")


async def test_a_table_is_awaited(server: Server, topic: str) -> None:
    properties = {"bootstrap.servers": server.bootstrap_servers, "queue.buffering.max.kbytes": 200}
    values = [b"%0100d" % number for number in range(20_000)]
    async with AsyncProducer(properties) as producer:
        future = await producer.send(topic, pa.table({"value": pa.array(values, pa.binary())}))
        (only,) = (await future).ranges
        assert (only.first_offset, only.record_count) == (0, 20_000)
    found = await asyncio.to_thread(stored, server.bootstrap_servers, topic)
    assert [each.value for each in found] == values


@pytest.mark.parametrize("pieces", [1, 2], ids=["the last piece", "one of several"])
async def test_a_table_that_is_handed_over_while_the_producer_closes_waits_for_nothing(
    server: Server, topic: str, monkeypatch: pytest.MonkeyPatch, pieces: int
) -> None:
    hand_over, is_there, is_closed = BulkWriter.send, threading.Event(), threading.Event()

    def held(self: BulkWriter, piece: Piece) -> None:
        is_there.set()
        assert is_closed.wait(30)
        hand_over(self, piece)

    monkeypatch.setattr(BulkWriter, "send", held)
    wrong: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: wrong.append(context["message"]))
    producer = await AsyncProducer(
        {"bootstrap.servers": server.bootstrap_servers, "queue.buffering.max.kbytes": 16}
    ).start()
    table = pa.table({"value": pa.array([b"x" * 3000] * pieces, pa.binary())})
    sending = asyncio.create_task(producer.send(topic, table))
    await asyncio.to_thread(is_there.wait, 30)
    await producer.close()
    is_closed.set()
    async with asyncio.timeout(30):
        if pieces > 1:
            await asyncio.wait([sending])
            assert "closed" in str(sending.exception())
        else:
            with pytest.raises(KafkaException, match="Purged"):
                await (await sending)
    assert len(producer) == 0
    del sending
    await asyncio.sleep(0)
    gc.collect()
    assert not wrong, "who was told has nothing to ask for"


async def test_a_record_that_fails_raises_from_its_future(unused_tcp_port: int) -> None:
    properties = {"bootstrap.servers": f"127.0.0.1:{unused_tcp_port}", "delivery.timeout.ms": 200}
    async with AsyncProducer(properties) as producer:
        with pytest.raises(KafkaException) as failed:
            await producer.produce_and_wait("t", b"x")
    assert failed.value.error.code() == KafkaError._MSG_TIMED_OUT


async def test_it_works_only_between_start_and_close(server: Server, topic: str) -> None:
    producer = AsyncProducer({"bootstrap.servers": server.bootstrap_servers})
    with pytest.raises(KafkaException, match="not started"):
        await producer.send(topic, b"x")
    await producer.start()
    await producer.close()
    await producer.close()
    with pytest.raises(KafkaException, match="closed"):
        await producer.send(topic, b"x")
    assert len(asyncio.all_tasks()) == 1, "a closed producer leaves no task behind"


@pytest.mark.parametrize("wrong", [(5, b"x"), ("t", 5), (None, b"x")])
async def test_wrong_types_are_refused(server: Server, wrong: tuple[object, object]) -> None:
    async with AsyncProducer({"bootstrap.servers": server.bootstrap_servers}) as producer:
        with pytest.raises(TypeError):
            await producer.send(*wrong)  # type: ignore[arg-type]
        assert len(producer) == 0
