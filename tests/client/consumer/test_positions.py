"""Where reading stands, and how an application moves it."""

import pytest

from oncelog.client.errors import KafkaError, KafkaException
from oncelog.client.types import OFFSET_BEGINNING, OFFSET_END, OFFSET_INVALID, TopicPartition
from tests.client.consumer.conftest import MakeConsumer
from tests.client.consumer.reading import PATIENCE_S, beginning, take, values, write
from tests.client.inside import driver_of
from tests.raw import RawConnection, Rec
from tests.raw.topics import new_topic
from tests.waiting import until


@pytest.fixture
def written(raw: RawConnection, topic: str) -> str:
    """Five batches of 100 records, each its own offset as text."""
    for first in range(0, 500, 100):
        write(raw, topic, [str(i).encode() for i in range(first, first + 100)])
    return topic


def offset_of(consumer: object, topic: str, partition: int = 0) -> int:
    return int(consumer.position([TopicPartition(topic, partition)])[0].offset)  # type: ignore[attr-defined]


def test_an_offset_in_the_middle_of_a_batch_is_where_reading_begins(written: str, make_consumer: MakeConsumer) -> None:
    consumer = make_consumer()
    consumer.assign([TopicPartition(written, 0, 342)])
    assert offset_of(consumer, written) == 342
    assert values(take(consumer, 3)) == [b"342", b"343", b"344"]
    assert offset_of(consumer, written) == 345


def test_the_end_means_what_is_written_from_now_on(
    raw: RawConnection, written: str, make_consumer: MakeConsumer
) -> None:
    consumer = make_consumer(enable_partition_eof=True)
    consumer.assign([TopicPartition(written, 0, OFFSET_END)])
    end = consumer.poll(PATIENCE_S)
    assert end is not None and end.offset() == 500
    write(raw, written, [b"new"])
    assert values(take(consumer, 1)) == [b"new"]


def test_a_seek_discards_what_was_fetched_ahead(written: str, make_consumer: MakeConsumer) -> None:
    consumer = make_consumer(fetch_message_max_bytes=500)
    consumer.assign(beginning(written))
    take(consumer, 30)
    for offset in (200, 7, 7, 100, 0):
        until(lambda: driver_of(consumer).operations.core.engine.has_events, "something to be fetched ahead")
        consumer.seek(TopicPartition(written, 0, offset))
        assert offset_of(consumer, written) == offset
        assert take(consumer, 1)[0].offset() == offset


def test_a_seek_ends_the_block_that_is_being_iterated_over(written: str, make_consumer: MakeConsumer) -> None:
    consumer = make_consumer()
    consumer.assign(beginning(written))
    found = []
    for message in consumer:
        found.append(message.offset())
        if len(found) == 5:
            consumer.seek(TopicPartition(written, 0, 250))
        if len(found) == 8:
            break
    assert found == [0, 1, 2, 3, 4, 250, 251, 252]


def test_a_paused_partition_gives_nothing_and_goes_on_where_it_stood(
    raw: RawConnection, make_consumer: MakeConsumer
) -> None:
    topic = new_topic(raw, partitions=2)
    for partition in range(2):
        write(raw, topic, [f"{partition}.{i}".encode() for i in range(10)], partition=partition)
    consumer = make_consumer()
    first, second = TopicPartition(topic, 0, OFFSET_BEGINNING), TopicPartition(topic, 1, OFFSET_BEGINNING)
    consumer.assign([first])
    assert values(take(consumer, 4)) == [b"0.0", b"0.1", b"0.2", b"0.3"]
    consumer.pause([first])
    assert offset_of(consumer, topic) == 4
    consumer.incremental_assign([second])
    assert {message.partition() for message in take(consumer, 10)} == {1}
    assert consumer.poll(0.2) is None
    consumer.resume([first])
    assert values(take(consumer, 6)) == [f"0.{i}".encode() for i in range(4, 10)]


def test_a_new_assignment_takes_the_place_of_the_old_one(raw: RawConnection, make_consumer: MakeConsumer) -> None:
    topic = new_topic(raw, partitions=2)
    for partition in range(2):
        write(raw, topic, [f"{partition}.{i}".encode() for i in range(10)], partition=partition)
    consumer = make_consumer()
    consumer.assign(beginning(topic))
    take(consumer, 3)
    consumer.assign(beginning(topic, 1))
    assert consumer.assignment() == [TopicPartition(topic, 1)]
    assert {message.partition() for message in take(consumer, 10)} == {1}
    consumer.unassign()
    assert consumer.assignment() == []
    assert consumer.poll(0.05) is None


def test_only_what_is_assigned_can_be_moved(topic: str, make_consumer: MakeConsumer) -> None:
    consumer = make_consumer()
    place = TopicPartition(topic, 0, 1)
    for move in (consumer.pause, consumer.resume, consumer.incremental_unassign, consumer.seek):
        with pytest.raises(KafkaException) as raised:
            move(place if move == consumer.seek else [place])  # type: ignore[arg-type]
        assert raised.value.error.code() == KafkaError._STATE
    assert offset_of(consumer, topic) == OFFSET_INVALID
    consumer.assign(beginning(topic))
    with pytest.raises(KafkaException) as raised:
        consumer.incremental_assign(beginning(topic))
    assert raised.value.error.code() == KafkaError._CONFLICT


def test_watermarks_are_asked_for_or_remembered_from_the_last_fetch(written: str, make_consumer: MakeConsumer) -> None:
    consumer = make_consumer()
    place = TopicPartition(written, 0)
    assert consumer.get_watermark_offsets(place, cached=True) is None
    assert consumer.get_watermark_offsets(place, PATIENCE_S) == (0, 500)
    consumer.assign(beginning(written))
    take(consumer, 1)
    assert consumer.get_watermark_offsets(place, cached=True) == (0, 500)


def test_offsets_are_found_by_time(raw: RawConnection, topic: str, make_consumer: MakeConsumer) -> None:
    write(raw, topic, [Rec(str(i).encode(), timestamp_delta_ms=1000 * i) for i in range(10)])
    consumer = make_consumer()
    consumer.assign(beginning(topic))
    base_ms = take(consumer, 1)[0].timestamp()[1]

    def offset_at(timestamp_ms: int) -> int:
        return consumer.offsets_for_times([TopicPartition(topic, 0, timestamp_ms)], PATIENCE_S)[0].offset

    assert [offset_at(base_ms + 1000 * i) for i in range(10)] == list(range(10))
    assert offset_at(base_ms + 4001) == 5
    assert offset_at(base_ms + 9001) == OFFSET_END


def test_topics_are_listed(raw: RawConnection, make_consumer: MakeConsumer) -> None:
    topic = new_topic(raw, partitions=3)
    consumer = make_consumer()
    everything = consumer.list_topics(timeout=PATIENCE_S)
    assert sorted(everything.topics[topic].partitions) == [0, 1, 2]
    assert everything.brokers[everything.controller_id].port
    alone = consumer.list_topics(topic, PATIENCE_S)
    assert list(alone.topics) == [topic]
    missing = consumer.list_topics("nowhere", PATIENCE_S).topics["nowhere"]
    assert missing.error == KafkaError.UNKNOWN_TOPIC_OR_PART
