"""Our consumer and librdkafka's read the same of a real Kafka: transactions, codecs, compacted logs, restarts."""

import random
from itertools import count
from typing import Any

import confluent_kafka
import pytest

from oncelog.client.consumer.consumer import Consumer
from oncelog.client.consumer.message import Message
from oncelog.client.errors import KafkaError
from oncelog.client.types import OFFSET_BEGINNING, TopicPartition
from tests.client.consumer.reading import take, write
from tests.peers.apache import ApacheKafka
from tests.raw import CODECS, RawConnection
from tests.waiting import until

pytestmark = pytest.mark.peers

PATIENCE_S = 30.0
_numbers = count(1)

Row = tuple[int, bytes | None, bytes | None]


def new_topic(kafka: ApacheKafka, **configs: str) -> str:
    name = f"consumed-{next(_numbers)}"
    with RawConnection(kafka.port) as raw:
        assert raw.create_topic(name, 1, {key.replace("_", "."): value for key, value in configs.items()}) == 0
    return name


def ours(kafka: ApacheKafka, **more: Any) -> Consumer:
    properties = {"bootstrap.servers": kafka.bootstrap_servers, "enable.auto.commit": False}
    properties |= {"auto.offset.reset": "earliest", "enable.partition.eof": True}
    return Consumer(properties | {name.replace("_", "."): value for name, value in more.items()})


def row_of(message: Any) -> Row:
    return message.offset(), message.key(), message.value()


def read_by_us(kafka: ApacheKafka, topic: str, **more: Any) -> list[Row]:
    """Everything up to the end of the partition."""
    with ours(kafka, **more) as consumer:
        consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        rows = []
        while not is_end(message := consumer.poll(PATIENCE_S)):
            rows.append(row_of(message))
    return rows


def is_end(message: Message | None) -> bool:
    assert message is not None, "nothing came"
    error = message.error()
    assert error is None or error == KafkaError._PARTITION_EOF, error
    return error is not None


def read_by_librdkafka(kafka: ApacheKafka, topic: str, isolation: str = "read_committed") -> list[Row]:
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": kafka.bootstrap_servers,
            "group.id": "librdkafka",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": isolation,
        }
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    rows: list[Row] = []
    try:
        while True:
            message = consumer.poll(PATIENCE_S)
            assert message is not None, "nothing came"
            error = message.error()
            if error is not None:
                assert error.code() == confluent_kafka.KafkaError._PARTITION_EOF, error
                return rows
            rows.append(row_of(message))
    finally:
        consumer.close()


def transactional_producers(kafka: ApacheKafka, how_many: int) -> list[Any]:
    producers = []
    for _ in range(how_many):
        name = f"transactional-{next(_numbers)}"
        producer = confluent_kafka.Producer(
            {"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": name, "linger.ms": 0}
        )
        producer.init_transactions(PATIENCE_S)
        producers.append(producer)
    return producers


def write_transactions(producers: list[Any], topic: str, steps: int, seed: int) -> None:
    """Transactions of several producers through each other, each committed or aborted as the seed says."""
    chance = random.Random(seed)
    is_open = [False] * len(producers)
    for step in range(steps):
        at = chance.randrange(len(producers))
        producer = producers[at]
        if not is_open[at]:
            producer.begin_transaction()
            is_open[at] = True
        for i in range(chance.choice((1, 3, 400))):
            producer.produce(topic, b"%d.%d" % (step, i), b"producer %d" % at)
        assert producer.flush(PATIENCE_S) == 0
        if chance.random() < 0.5:
            chance.choice((producer.commit_transaction, producer.abort_transaction))(PATIENCE_S)
            is_open[at] = False
    for producer, is_still_open in zip(producers, is_open, strict=True):
        if is_still_open:
            producer.abort_transaction(PATIENCE_S)


@pytest.fixture(scope="module", params=[1, pytest.param(2, marks=pytest.mark.thorough)])
def transacted(kafka: ApacheKafka, request: pytest.FixtureRequest) -> str:
    """A topic of transactions, as the seed says."""
    topic = new_topic(kafka)
    write_transactions(transactional_producers(kafka, 3), topic, 60, request.param)
    return topic


@pytest.mark.parametrize("fetch_bytes", [pytest.param(1_000, marks=pytest.mark.thorough), 1 << 20])
def test_transactions_are_read_as_librdkafka_reads_them(kafka: ApacheKafka, transacted: str, fetch_bytes: int) -> None:
    topic = transacted
    committed = read_by_us(kafka, topic, fetch_message_max_bytes=fetch_bytes)
    everything = read_by_us(kafka, topic, fetch_message_max_bytes=fetch_bytes, isolation_level="read_uncommitted")
    assert committed == read_by_librdkafka(kafka, topic)
    assert everything == read_by_librdkafka(kafka, topic, "read_uncommitted")
    assert 0 < len(committed) < len(everything)


def test_columns_leave_out_what_was_aborted_too(kafka: ApacheKafka, transacted: str) -> None:
    topic = transacted
    expected = read_by_librdkafka(kafka, topic)
    with ours(kafka) as consumer:
        consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        table = consumer.consume_arrow(len(expected), PATIENCE_S)
        rows = zip(*(table[name].to_pylist() for name in ("offset", "key", "value")), strict=True)
        assert list(rows) == expected
        assert consumer.consume_arrow(1, 0.5).num_rows == 0
        # Behind the last marker, though no record stands there.
        assert consumer.position([TopicPartition(topic, 0)])[0].offset == end_of(kafka, topic)


def end_of(kafka: ApacheKafka, topic: str) -> int:
    with RawConnection(kafka.port) as raw:
        return int(raw.offset_at(topic, 0, -1).offset)


def test_an_open_transaction_is_not_seen_before_it_is_committed(kafka: ApacheKafka) -> None:
    topic = new_topic(kafka)
    (producer,) = transactional_producers(kafka, 1)
    producer.begin_transaction()
    producer.produce(topic, b"waits")
    assert producer.flush(PATIENCE_S) == 0
    with ours(kafka) as consumer:
        consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        assert is_end(consumer.poll(PATIENCE_S))
        assert consumer.poll(0.5) is None
        producer.commit_transaction(PATIENCE_S)
        message = consumer.poll(PATIENCE_S)
        assert message is not None and message.value() == b"waits"


@pytest.mark.parametrize("codec", CODECS)
def test_what_librdkafka_wrote_in_any_codec_is_read(kafka: ApacheKafka, codec: str) -> None:
    topic = new_topic(kafka)
    producer = confluent_kafka.Producer({"bootstrap.servers": kafka.bootstrap_servers, "compression.type": codec})
    for i in range(2_000):
        producer.produce(topic, b"value %d" % i * 5, b"key %d" % i)
    assert producer.flush(PATIENCE_S) == 0
    assert read_by_us(kafka, topic) == [(i, b"key %d" % i, b"value %d" % i * 5) for i in range(2_000)]


def test_a_compacted_log_with_holes_is_read_to_its_end(kafka: ApacheKafka) -> None:
    topic = new_topic(kafka, cleanup_policy="compact", segment_ms="100", min_cleanable_dirty_ratio="0.001")
    producer = confluent_kafka.Producer({"bootstrap.servers": kafka.bootstrap_servers, "linger.ms": 100})

    def write(first: int) -> None:
        for i in range(first, first + 500):
            producer.produce(topic, b"value %d" % i, b"key %d" % (i % 7))
        assert producer.flush(PATIENCE_S) == 0

    write(0)

    def is_compacted() -> bool:
        write(0)  # a segment ends, and can be compacted, when something comes after it
        return len(read_by_librdkafka(kafka, topic)) < end_of(kafka, topic) * 0.7

    until(is_compacted, "Kafka to compact the topic", give_up_seconds=60)
    producer.flush(PATIENCE_S)
    expected = read_by_librdkafka(kafka, topic)
    mine = read_by_us(kafka, topic)
    # It may go on compacting between the two; what is left at last is the same.
    assert {key: value for _, key, value in mine} == {key: value for _, key, value in expected}
    assert [offset for offset, _, _ in mine] == sorted({offset for offset, _, _ in mine})
    assert mine[-1] == expected[-1]


@pytest.mark.parametrize("restarts", [1, pytest.param(2, marks=pytest.mark.thorough)])
def test_reading_goes_on_after_the_broker_restarts_under_a_new_leader_epoch(kafka: ApacheKafka, restarts: int) -> None:
    topic = new_topic(kafka)

    def write(value: bytes) -> None:
        producer = confluent_kafka.Producer({"bootstrap.servers": kafka.bootstrap_servers})
        producer.produce(topic, value)
        assert producer.flush(PATIENCE_S) == 0

    with ours(kafka, group_id="goes-on", reconnect_backoff_max_ms=500, enable_partition_eof=False) as consumer:
        consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        epochs: list[int] = []
        for value in (b"before", b"after", b"again")[: restarts + 1]:
            if epochs:
                kafka.stop()
                kafka.start()
            write(value)
            message = consumer.poll(PATIENCE_S)
            assert message is not None and message.error() is None and message.value() == value
            epochs.append(message.leader_epoch() or 0)
            consumer.commit(message, asynchronous=False)
        assert epochs == sorted(set(epochs))
        assert consumer.committed([TopicPartition(topic, 0)], PATIENCE_S)[0].offset == restarts + 1


def test_a_member_of_kip_848_reads_and_commits(kafka: ApacheKafka) -> None:
    topic, places = f"told-{next(_numbers)}", range(2)
    with RawConnection(kafka.port) as raw:
        assert raw.create_topic(topic, len(places), {}) == 0
        for partition in places:
            write(raw, topic, [b"%d" % i for i in range(10)], partition=partition)
    member: dict[str, Any] = {"group_id": topic, "group_protocol": "consumer", "group_remote_assignor": "range"}
    with ours(kafka, **member, client_rack="here", enable_partition_eof=False) as consumer:
        consumer.subscribe([topic])
        assert len(take(consumer, 20)) == 20
        consumer.commit(asynchronous=False)
        found = consumer.committed([TopicPartition(topic, partition) for partition in places], PATIENCE_S)
        assert [each.offset for each in found] == [10, 10]
