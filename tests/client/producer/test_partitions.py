"""Partitions that a producer may not send to just now, and partitions that are there no more."""

import asyncio
from typing import Any
from uuid import UUID

from oncelog.client.errors import KafkaError
from oncelog.client.producer.asynchronous import AsyncProducer
from oncelog.client.producer.producer import Producer
from oncelog.slots import Place
from tests.client.inside import engine_of, thread_of
from tests.client.net.fake_broker import Answer, Asked, FakeBroker
from tests.client.producer.conftest import MakeProducer
from tests.raw import RawConnection
from tests.raw.topics import new_topic
from tests.waiting import until

PATIENCE_S = 20


def turns_of(producer: Producer) -> list[None]:
    """One entry for each turn of its engine from here on."""
    turns: list[None] = []
    real = engine_of(producer).act

    def counted(now_ms: int) -> None:
        turns.append(None)
        real(now_ms)

    engine_of(producer).act = counted  # type: ignore[method-assign]
    return turns


def test_what_is_produced_while_the_engine_holds_waits_without_a_turn_and_goes_then(
    raw: RawConnection, make_producer: MakeProducer
) -> None:
    """As while a lease changes: nothing may go under the old one any more."""
    topic, delivered = new_topic(raw), list[Any]()
    producer = make_producer(linger_ms=0)
    producer.produce(topic, b"before")
    assert producer.flush(PATIENCE_S) == 0
    engine, place = engine_of(producer), Place(topic, 0)
    thread_of(producer).run(asyncio.sleep(0))
    thread_of(producer).call_soon(engine.hold, True)
    thread_of(producer).run(asyncio.sleep(0))
    producer.produce(topic, b"held", on_delivery=lambda error, _: delivered.append(error))
    until(lambda: bool(engine.closing.made), "it is in a batch")
    assert engine.is_idle(place), "what is held back does not count"
    turns = turns_of(producer)
    for _ in range(100):
        thread_of(producer).run(asyncio.sleep(0))
    assert len(turns) < 10, "a batch that may not go does not keep the loop busy"
    assert raw.offset_at(topic, 0, -1).offset == 1
    assert not engine.sender.backlog(place)
    thread_of(producer).call_soon(engine.hold, False)
    assert producer.flush(PATIENCE_S) == 0
    assert delivered == [None]
    assert raw.offset_at(topic, 0, -1).offset == 2


def test_what_is_held_back_is_given_up_by_a_purge_as_all_else(raw: RawConnection, make_producer: MakeProducer) -> None:
    topic, codes = new_topic(raw), list[int]()
    producer = make_producer(linger_ms=0)
    producer.produce(topic, b"before")
    assert producer.flush(PATIENCE_S) == 0
    thread_of(producer).call_soon(engine_of(producer).hold, True)
    thread_of(producer).run(asyncio.sleep(0))
    producer.produce(topic, b"held", on_delivery=lambda error, _: codes.append(error.code() if error else 0))
    until(lambda: bool(engine_of(producer).closing.made), "it is in a batch")
    producer.purge()
    producer.poll(0)
    assert codes == [KafkaError._PURGE_QUEUE]
    thread_of(producer).call_soon(engine_of(producer).hold, False)


async def test_a_topic_made_anew_with_fewer_partitions_loses_those_that_are_gone() -> None:
    async with FakeBroker() as broker:
        topic = {"id": UUID(int=1), "count": 3}
        broker.answers["metadata"] = lambda asked: metadata_of(broker, asked, topic)
        broker.answers["produce"] = lambda asked: answered(asked, KafkaError.REQUEST_TIMED_OUT)
        broker.answers["init_producer_id"] = lambda asked: {"producer_id": 5, "producer_epoch": 0}
        properties = {"bootstrap.servers": f"{broker.host}:{broker.port}", "linger.ms": 0}
        async with AsyncProducer(properties) as producer:
            flying = await producer.produce("t", b"flying", partition=2)
            await broker.until(lambda: bool(broker.asked_for("produce")))
            held = await producer.produce("t", b"held", partition=0)
            topic["count"] = 2  # a broker that lags behind
            await engine_of(producer).brokers.refresh(["t"])
            engine_of(producer).wake()
            await asyncio.sleep(0)
            assert len(engine_of(producer).topic("t").partitions) == 3
            topic.update(id=UUID(int=2), count=1)
            await engine_of(producer).brokers.refresh(["t"])
            engine_of(producer).wake()
            error = await told(flying)
            assert (error.code(), error.maybe_stored()) == (KafkaError._UNKNOWN_PARTITION, True)
            assert not held.done(), "its partition is there"
            assert len(engine_of(producer).topic("t").partitions) == 1
            broker.answers["produce"] = lambda asked: answered(asked, 0)
            await asyncio.wait_for(held, PATIENCE_S)
            await asyncio.wait_for(await producer.produce("t", b"key", key=b"anything"), PATIENCE_S)


async def told(future: "asyncio.Future[Any]") -> KafkaError:
    await asyncio.wait([future], timeout=PATIENCE_S)
    failure = future.exception()
    assert failure is not None
    error: KafkaError = failure.args[0]
    return error


def metadata_of(broker: FakeBroker, asked: Asked, topic: dict[str, Any]) -> Answer:
    partitions = [
        {"partition_index": index, "leader_id": 0, "leader_epoch": 1, "replica_nodes": [0], "isr_nodes": [0]}
        for index in range(topic["count"])
    ]
    topics = [{"name": "t", "topic_id": topic["id"], "partitions": partitions}] if asked.request.topics else []
    return broker.metadata_of([], topics=topics)


def answered(asked: Asked, code: int) -> Answer:
    return {
        "responses": [
            {
                "name": topic.name,
                "partition_responses": [
                    {"index": each.index, "error_code": code, "base_offset": 0} for each in topic.partition_data
                ],
            }
            for topic in asked.request.topic_data
        ]
    }
