"""The bound between produce() and the reports: exact, raising or waiting, given back when reports were served."""

import gc
import weakref

import pytest

from oncelog.client.errors import KafkaError
from oncelog.client.producer.accumulator import Budget
from oncelog.client.producer.producer import Producer
from oncelog.embedded import Server
from tests.client.inside import engine_of
from tests.client.producer.conftest import MakeProducer, producers_threads
from tests.client.producer.stored import Heard, stored


def test_one_record_too_many_raises_until_reports_are_served(topic: str, make_producer: MakeProducer) -> None:
    producer, heard = make_producer(queue_buffering_max_messages=5), Heard()
    for _ in range(5):
        producer.produce(topic, b"x", on_delivery=heard)
    with pytest.raises(BufferError, match="Queue full"):
        producer.produce(topic, b"x", on_delivery=heard)
    assert len(producer) == 5
    while len(heard.errors) < 5:
        producer.poll(10)
    assert len(producer) == 0
    producer.produce(topic, b"x", on_delivery=heard)


def test_bytes_are_bounded_too(topic: str, make_producer: MakeProducer) -> None:
    producer = make_producer(queue_buffering_max_kbytes=10, linger_ms=10_000)
    taken = 0
    with pytest.raises(BufferError):
        while taken < 100:
            producer.produce(topic, b"x" * 1000)
            taken += 1
    assert taken == 10 * 1024 // 1012
    assert producer.flush(30) == 0


def test_with_block_produce_waits_and_serves_callbacks(server: Server, topic: str, make_producer: MakeProducer) -> None:
    producer, heard = make_producer(queue_buffering_max_messages=20, oncelog_queue_full="block"), Heard()
    most = 0
    for number in range(1000):
        producer.produce(topic, b"%d" % number, on_delivery=heard)
        most = max(most, len(producer))
    producer.flush(30)
    assert most <= 20
    assert heard.codes == [None] * 1000
    assert len(stored(server.bootstrap_servers, topic)) == 1000


def test_a_callback_never_waits_for_room(topic: str, make_producer: MakeProducer) -> None:
    producer = make_producer(queue_buffering_max_messages=1, oncelog_queue_full="block")
    raised: list[BaseException] = []

    def twice(error: object, message: object) -> None:
        producer.produce(topic, b"fits")
        try:
            producer.produce(topic, b"does not")
        except BufferError as full:
            raised.append(full)

    producer.produce(topic, b"x", on_delivery=twice)
    assert producer.flush(30) == 0
    assert len(raised) == 1


def test_purged_records_are_reported_once(topic: str, make_producer: MakeProducer) -> None:
    producer, heard = make_producer(linger_ms=100_000), Heard()
    producer.produce(topic, b"x")
    producer.flush(30)
    for _ in range(10):
        producer.produce(topic, b"x", on_delivery=heard)
    producer.purge()
    producer.poll(0)
    assert heard.codes == [KafkaError._PURGE_QUEUE] * 10
    assert len(producer) == 0


def test_the_budget_is_the_same_whoever_takes_and_gives_back() -> None:
    budget = Budget(100, 1000)
    budget.take(400)
    budget.take_bulk(500, 50)
    assert (budget.messages, budget.size_bytes) == (51, 900)
    assert budget.has_room(100) and not budget.has_room(101)
    budget.give_back(500, 50, is_bulk=True)
    budget.give_back(400, 1)
    assert (budget.messages, budget.size_bytes) == (0, 0)
    assert budget.has_room(5000), "what is larger than everything fits when nothing else is there"


def test_memory_stays_within_the_bound_while_sending_as_fast_as_possible(
    server: Server, topic: str, make_producer: MakeProducer
) -> None:
    producer = make_producer(queue_buffering_max_kbytes=2000, oncelog_queue_full="block")
    most_bytes = 0
    for number in range(60_000):
        producer.produce(topic, b"%0200d" % number)
        most_bytes = max(most_bytes, engine_of(producer).budget.size_bytes)
    producer.flush(60)
    assert 1_000_000 < most_bytes <= 2000 * 1024
    assert engine_of(producer).budget.size_bytes == 0


def test_a_producer_that_nobody_refers_to_goes_away_with_its_thread(server: Server, topic: str) -> None:
    before = producers_threads()
    producer = Producer({"bootstrap.servers": server.bootstrap_servers})
    producer.produce(topic, b"x")
    producer.flush(30)
    gone = weakref.ref(producer)
    del producer
    gc.collect()
    assert gone() is None
    assert producers_threads() <= before


def test_reports_keep_nothing_alive_once_they_were_served(topic: str, make_producer: MakeProducer) -> None:
    producer, heard = make_producer(), Heard()
    gone = weakref.ref(heard)
    producer.produce(topic, b"x", on_delivery=heard)
    producer.flush(30)
    del heard
    gc.collect()
    assert gone() is None
