"""What was written comes out: by poll, by consume, by iteration, through every codec, few records or many."""

import pytest

from oncelog.client.consumer import decoding
from oncelog.client.errors import KafkaError
from oncelog.client.types import OFFSET_BEGINNING, TIMESTAMP_CREATE_TIME, TIMESTAMP_LOG_APPEND_TIME, TopicPartition
from tests.client.consumer.conftest import MakeConsumer
from tests.client.consumer.reading import PATIENCE_S, beginning, take, values, write
from tests.client.inside import driver_of
from tests.raw import CODECS, RawConnection, Rec
from tests.raw.topics import new_topic

MANY = decoding.FEW_RECORDS + 100


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("count", [3, MANY], ids=["record by record", "in columns"])
def test_every_codec_is_read(
    raw: RawConnection, topic: str, make_consumer: MakeConsumer, codec: str, count: int
) -> None:
    records = [Rec(f"value {i}".encode(), f"key {i}".encode()) for i in range(count)]
    write(raw, topic, records, codec=codec)
    consumer = make_consumer()
    consumer.assign(beginning(topic))
    found = take(consumer, count)
    assert [(each.offset(), each.key(), each.value()) for each in found] == [
        (i, record.key, record.value) for i, record in enumerate(records)
    ]


@pytest.mark.parametrize("count", [3, MANY], ids=["record by record", "in columns"])
def test_a_message_tells_all_that_a_record_has(
    raw: RawConnection, topic: str, make_consumer: MakeConsumer, count: int
) -> None:
    record = Rec(b"value", b"key", (("name", b"text"), ("empty", b""), ("null", None), ("name", b"again")), 7)
    write(raw, topic, [record, Rec(None), *[b"more"] * (count - 2)])
    consumer = make_consumer()
    consumer.assign(beginning(topic))
    message, tombstone = take(consumer, count)[:2]
    assert (message.topic(), message.partition(), message.offset()) == (topic, 0, 0)
    assert (message.key(), message.value(), len(message)) == (b"key", b"value", 5)
    assert message.headers() == [("name", b"text"), ("empty", b""), ("null", None), ("name", b"again")]
    kind, timestamp_ms = message.timestamp()
    assert kind == TIMESTAMP_CREATE_TIME
    assert timestamp_ms == tombstone.timestamp()[1] + 7
    assert message.error() is None
    assert message.leader_epoch() == 0
    assert (tombstone.key(), tombstone.value(), tombstone.headers(), len(tombstone)) == (None, None, None, 0)
    assert tombstone, "a record without a value is a record"


@pytest.mark.parametrize("count", [2, MANY], ids=["record by record", "in columns"])
def test_the_logs_own_time_is_told_as_such(raw: RawConnection, make_consumer: MakeConsumer, count: int) -> None:
    topic = new_topic(raw, message_timestamp_type="LogAppendTime")
    write(raw, topic, [Rec(b"a", timestamp_delta_ms=i) for i in range(count)])
    consumer = make_consumer()
    consumer.assign(beginning(topic))
    times = {message.timestamp() for message in take(consumer, count)}
    assert len(times) == 1
    assert times.pop()[0] == TIMESTAMP_LOG_APPEND_TIME


def test_poll_consume_and_iteration_hand_out_the_same_records_one_after_the_other(
    raw: RawConnection, topic: str, make_consumer: MakeConsumer
) -> None:
    for first in range(0, 1000, 100):
        write(raw, topic, [str(i).encode() for i in range(first, first + 100)])
    consumer = make_consumer(fetch_message_max_bytes=1000)
    consumer.assign(beginning(topic))
    found = []
    for message in consumer:
        found.append(message)
        if len(found) == 150:
            break
    while len(found) < 300:
        message_or_none = consumer.poll(PATIENCE_S)
        assert message_or_none is not None
        found.append(message_or_none)
    found += consumer.consume(400, PATIENCE_S)
    for message in consumer:
        found.append(message)
        if len(found) == 1000:
            break
    assert values(found) == [str(i).encode() for i in range(1000)]
    assert consumer.poll(0) is None


def test_nothing_comes_while_there_is_nothing(topic: str, make_consumer: MakeConsumer) -> None:
    consumer = make_consumer()
    assert consumer.poll(0) is None
    consumer.assign(beginning(topic))
    assert consumer.poll(0.01) is None
    assert consumer.consume(10, 0.01) == []
    assert consumer.consume(0, 5) == []


def test_records_that_are_written_later_are_waited_for(
    raw: RawConnection, topic: str, make_consumer: MakeConsumer
) -> None:
    consumer = make_consumer()
    consumer.assign(beginning(topic))
    for i in range(5):
        write(raw, topic, [str(i).encode()])
        assert values(take(consumer, 1)) == [str(i).encode()]


def test_all_partitions_are_read(raw: RawConnection, make_consumer: MakeConsumer) -> None:
    topic = new_topic(raw, partitions=5)
    for partition in range(5):
        for at in range(4):
            write(raw, topic, [f"{partition}.{at}.{i}".encode() for i in range(50)], partition=partition)
    consumer = make_consumer(fetch_message_max_bytes=600)
    consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in range(5)])
    found = take(consumer, 1000)
    for partition in range(5):
        mine = [each for each in found if each.partition() == partition]
        assert [each.offset() for each in mine] == list(range(200))
    # Fairly: long before one is read to its end, all have been begun.
    assert {each.partition() for each in found[:400]} == set(range(5))


def test_the_queue_stays_within_its_bound_and_everything_comes(
    raw: RawConnection, topic: str, make_consumer: MakeConsumer
) -> None:
    for at in range(100):
        write(raw, topic, [bytes([at]) * 5_000])
    consumer = make_consumer(queued_max_messages_kbytes=20, fetch_message_max_bytes=6_000)
    consumer.assign(beginning(topic))
    fetcher = driver_of(consumer).operations.core.engine.fetcher
    most_bytes, found = 0, []
    for message in consumer:
        most_bytes = max(most_bytes, fetcher.queued_bytes)
        found.append(message)
        if len(found) == 100:
            break
    assert [message.value() for message in found] == [bytes([at]) * 5_000 for at in range(100)]
    assert 5_000 <= most_bytes <= 20 * 1024


def test_the_end_of_a_partition_is_told_when_it_is_asked_for_and_again_after_more_was_read(
    raw: RawConnection, topic: str, make_consumer: MakeConsumer
) -> None:
    consumer = make_consumer(enable_partition_eof=True)
    consumer.assign(beginning(topic))
    for i in range(3):
        end = consumer.poll(PATIENCE_S)
        assert end is not None
        error = end.error()
        assert error is not None
        assert (error.code(), end.topic(), end.partition(), end.offset()) == (KafkaError._PARTITION_EOF, topic, 0, i)
        write(raw, topic, [b"more"])
        assert values(take(consumer, 1)) == [b"more"]


def test_a_record_larger_than_every_limit_is_read_all_the_same(
    raw: RawConnection, topic: str, make_consumer: MakeConsumer
) -> None:
    write(raw, topic, [b"x" * 100_000])
    write(raw, topic, [b"small"])
    consumer = make_consumer(fetch_message_max_bytes=1000, queued_max_messages_kbytes=2, message_max_bytes=1000)
    consumer.assign(beginning(topic))
    assert [len(message) for message in take(consumer, 2)] == [100_000, 5]
