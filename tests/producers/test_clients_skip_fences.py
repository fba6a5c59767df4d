"""Stock clients read past a fence and never show it."""

from collections.abc import Callable, Iterator

import pytest
from aiokafka import AIOKafkaConsumer
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from kafka import KafkaConsumer
from kafka import TopicPartition as KafkaTopicPartition

from oncelog.embedded import Server
from oncelog.producers import Decision

VALUES = [b"a", b"b", b"c"]
both_isolation_levels = pytest.mark.parametrize("isolation_level", ["read_uncommitted", "read_committed"])


@pytest.fixture(scope="module")
def bootstrap_servers() -> Iterator[str]:
    """One partition of the topic "fenced": a fence, a record, two fences, two records, a fence."""
    with Server() as server:
        producer = Producer({"bootstrap.servers": server.bootstrap_servers, "enable.idempotence": True})

        def send(value: bytes) -> None:
            producer.produce("fenced", value, partition=0)
            assert producer.flush(20) == 0

        def fence(generation: int) -> Callable[[], Decision]:
            broker = server.broker
            lease_pid = 1

            def in_the_servers_thread() -> Decision:
                partition = broker.topics.partition("fenced", 0)
                assert partition is not None
                return partition.log.fence(lease_pid, generation, broker.clock.now())[0]

            return in_the_servers_thread

        assert server.call(server.broker.leased_pids.take) == 1
        producer.list_topics("fenced", 20)  # makes the topic
        assert server.call(fence(1)) is Decision.APPEND
        send(VALUES[0])
        assert server.call(fence(2)) is Decision.APPEND
        assert server.call(fence(3)) is Decision.APPEND
        send(VALUES[1])
        send(VALUES[2])
        assert server.call(fence(4)) is Decision.APPEND
        yield server.bootstrap_servers


@both_isolation_levels
def test_librdkafka(bootstrap_servers: str, isolation_level: str) -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "none",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": isolation_level,
            "check.crcs": True,
        }
    )
    consumer.assign([TopicPartition("fenced", 0, 0)])
    found = []
    while (message := consumer.poll(20)) is not None and message.error() is None:
        found.append((message.offset(), message.value()))
    assert message is not None
    error = message.error()
    assert error is not None and error.code() == KafkaError._PARTITION_EOF
    assert message.offset() == 7, "it stands behind the last fence"
    consumer.close()
    assert found == [(1, b"a"), (4, b"b"), (5, b"c")]


@both_isolation_levels
async def test_aiokafka(bootstrap_servers: str, isolation_level: str) -> None:
    consumer = AIOKafkaConsumer(
        "fenced", bootstrap_servers=bootstrap_servers, auto_offset_reset="earliest", isolation_level=isolation_level
    )
    await consumer.start()
    try:
        found = [(message.offset, message.value) for message in [await consumer.getone() for _ in VALUES]]
    finally:
        await consumer.stop()
    assert found == [(1, b"a"), (4, b"b"), (5, b"c")]


@both_isolation_levels
def test_kafka_python(bootstrap_servers: str, isolation_level: str) -> None:
    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap_servers,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        isolation_level=isolation_level,
        consumer_timeout_ms=20_000,
    )
    partition = KafkaTopicPartition("fenced", 0)
    consumer.assign([partition])
    consumer.seek_to_beginning(partition)
    found = [(message.offset, message.value) for message in (next(consumer) for _ in VALUES)]
    consumer.close()
    assert found == [(1, b"a"), (4, b"b"), (5, b"c")]
