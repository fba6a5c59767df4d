"""Stock clients against the server in this process; tests/peers asks more of them."""

import asyncio

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from oncelog.embedded import Server
from tests.raw import CODECS, RawConnection, batch
from tests.raw.topics import new_topic


@pytest.mark.parametrize("codec", CODECS)
def test_librdkafka_sends_compressed_what_it_was_told_to(server: Server, raw: RawConnection, codec: str) -> None:
    """What was stored counts: a client that does without the codec still gets its records back."""
    topic = new_topic(raw)
    producer = Producer(
        {
            "bootstrap.servers": server.bootstrap_servers,
            "enable.idempotence": True,
            "compression.type": codec,
            "linger.ms": 50,
        }
    )
    for _ in range(200):
        producer.produce(topic, b"squeeze me " * 50)
    assert producer.flush(20) == 0
    stored = raw.fetch(topic, 0, 0).records
    assert stored[22] & 7 == CODECS[codec]
    consumer = Consumer({"bootstrap.servers": server.bootstrap_servers, "group.id": "g", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 0)])
    values = [message.value() for message in consumer.consume(200, 20)]
    consumer.close()
    assert values == [b"squeeze me " * 50] * 200


def test_librdkafka_makes_a_topic_by_naming_it(server: Server) -> None:
    producer = Producer({"bootstrap.servers": server.bootstrap_servers})
    failures: list[object] = []
    producer.produce("made-by-librdkafka", b"x", on_delivery=lambda error, _: failures.append(error))
    assert producer.flush(20) == 0 and failures == [None]


def test_kafka_python_writes_and_reads(server: Server, raw: RawConnection, topic: str) -> None:
    from kafka import KafkaConsumer, KafkaProducer

    producer = KafkaProducer(bootstrap_servers=server.bootstrap_servers, acks="all")
    for number in range(20):
        producer.send(topic, b"%d" % number)
    producer.flush(20)
    producer.close()
    consumer = KafkaConsumer(
        topic, bootstrap_servers=server.bootstrap_servers, auto_offset_reset="earliest", group_id="kafka-python"
    )
    values = [next(consumer).value for _ in range(20)]
    consumer.close()
    assert values == [b"%d" % number for number in range(20)]


def test_aiokafka_writes_and_reads(server: Server, raw: RawConnection, topic: str) -> None:
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

    async def run() -> list[bytes]:
        producer = AIOKafkaProducer(bootstrap_servers=server.bootstrap_servers, enable_idempotence=True)
        await producer.start()
        for number in range(20):
            await producer.send_and_wait(topic, b"%d" % number)
        await producer.stop()
        consumer = AIOKafkaConsumer(
            topic, bootstrap_servers=server.bootstrap_servers, auto_offset_reset="earliest", group_id="aiokafka"
        )
        await consumer.start()
        values = [(await consumer.getone()).value for _ in range(20)]
        await consumer.stop()
        return values

    assert asyncio.run(run()) == [b"%d" % number for number in range(20)]


def test_a_consumer_waits_at_the_end_and_goes_on(server: Server, raw: RawConnection, topic: str) -> None:
    consumer = Consumer({"bootstrap.servers": server.bootstrap_servers, "group.id": "g2", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 0)])
    for number in range(5):
        raw.produce(topic, 0, batch([b"%d" % number]))
        got = consumer.poll(20)
        assert got is not None and got.value() == b"%d" % number
    consumer.close()
