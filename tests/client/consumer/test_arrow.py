"""Records as columns: the same records as one by one, no more at a time than was asked for."""

import pyarrow as pa
import pytest

from oncelog.client.consumer.arrow import SCHEMA
from oncelog.client.consumer.message import Message
from oncelog.client.errors import KafkaError, KafkaException
from oncelog.client.types import OFFSET_BEGINNING, TopicPartition
from tests.client.consumer.conftest import MakeConsumer
from tests.client.consumer.reading import PATIENCE_S, beginning, take, values, write
from tests.raw import CODECS, RawConnection, Rec
from tests.raw.topics import new_topic


@pytest.mark.parametrize("codec", CODECS)
def test_columns_hold_what_messages_hold(
    raw: RawConnection, topic: str, make_consumer: MakeConsumer, codec: str
) -> None:
    for at in range(5):
        records = [Rec(f"{at}.{i}".encode(), b"k" if i % 2 else None, (("h", b"x"),) * (i % 3), i) for i in range(40)]
        write(raw, topic, records, codec=codec)
    consumer = make_consumer()
    consumer.assign(beginning(topic))
    table = consumer.consume_arrow(200, PATIENCE_S)
    assert table.schema == SCHEMA
    assert table.num_rows == 200
    consumer.seek(TopicPartition(topic, 0, 0))
    for row, message in zip(table.to_pylist(), take(consumer, 200), strict=True):
        assert (row["key"], row["value"]) == (message.key(), message.value())
        assert (row["topic"], row["partition"], row["offset"]) == (topic, 0, message.offset())
        assert [(each["key"], each["value"]) for each in row["headers"]] == (message.headers() or [])
        assert (int(row["timestamp"].timestamp() * 1000 + 0.5), row["timestampType"]) == (message.timestamp()[1], 0)


def test_no_more_rows_come_than_were_asked_for_and_none_is_lost_between_calls(
    raw: RawConnection, make_consumer: MakeConsumer
) -> None:
    topic = new_topic(raw, partitions=2)
    for at in range(10):
        write(raw, topic, [b"%d" % i for i in range(33)], partition=at % 2)
    consumer = make_consumer(fetch_message_max_bytes=500)
    consumer.assign([TopicPartition(topic, i, OFFSET_BEGINNING) for i in range(2)])
    tables = [consumer.consume_arrow(50, PATIENCE_S) for _ in range(6)] + [consumer.consume_arrow(50, 0.3)]
    assert [table.num_rows for table in tables] == [50] * 6 + [30]
    rows = pa.concat_tables(tables)
    for partition in range(2):
        offsets = rows.filter(pa.compute.equal(rows["partition"], partition))["offset"].to_pylist()
        assert offsets == list(range(165))
    assert consumer.consume_arrow(50, 0).num_rows == 0


def test_columns_and_messages_can_be_taken_in_turn(raw: RawConnection, topic: str, make_consumer: MakeConsumer) -> None:
    write(raw, topic, [str(i).encode() for i in range(100)])
    consumer = make_consumer()
    consumer.assign(beginning(topic))
    found: list[bytes | None] = []
    for _ in range(10):
        found += consumer.consume_arrow(4, PATIENCE_S)["value"].to_pylist()
        found += values(take(consumer, 5))
        message = consumer.poll(PATIENCE_S)
        assert message is not None
        found.append(message.value())
        assert consumer.position([TopicPartition(topic, 0)])[0].offset == len(found)
    assert found == [str(i).encode() for i in range(100)]


def test_what_came_as_columns_is_committed(raw: RawConnection, topic: str, make_consumer: MakeConsumer) -> None:
    write(raw, topic, [b"x"] * 100)
    consumer = make_consumer(group_id="columns")
    consumer.assign(beginning(topic))
    consumer.consume_arrow(37, PATIENCE_S)
    consumer.commit(asynchronous=False)
    assert consumer.committed([TopicPartition(topic, 0)], PATIENCE_S)[0].offset == 37


def test_an_error_does_not_swallow_the_rows_before_it(
    raw: RawConnection, topic: str, make_consumer: MakeConsumer
) -> None:
    write(raw, topic, [b"x"] * 10)
    consumer = make_consumer()
    consumer.assign(beginning(topic))
    assert consumer.poll(PATIENCE_S) is not None
    consumer.incremental_assign(beginning("no-such-topic"))
    rows = 0
    with pytest.raises(KafkaException) as raised:
        while True:
            rows += consumer.consume_arrow(100, PATIENCE_S).num_rows
    assert raised.value.error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART
    assert rows == 9


def test_columns_follow_records_that_were_all_polled(
    raw: RawConnection, topic: str, make_consumer: MakeConsumer
) -> None:
    write(raw, topic, [b"a", b"b"])
    consumer = make_consumer()
    consumer.assign(beginning(topic))
    assert values(take(consumer, 2)) == [b"a", b"b"]
    write(raw, topic, [b"c"])
    assert consumer.consume_arrow(1, PATIENCE_S)["value"].to_pylist() == [b"c"]


def test_batches_come_with_the_ends_of_their_partitions_among_them(
    raw: RawConnection, make_consumer: MakeConsumer
) -> None:
    topic = new_topic(raw, partitions=2)
    for partition in range(2):
        write(raw, topic, [b"%d" % partition] * 3, partition=partition)
    consumer = make_consumer(enable_partition_eof=True)
    consumer.assign(beginning(topic) + beginning(topic, 1))
    found: list[tuple[int, object]] = []
    while len(found) < 4:
        for each in consumer.consume_batches(100, 0.05):
            if isinstance(each, Message):
                error = each.error()
                assert error is not None and error.code() == KafkaError._PARTITION_EOF
                found.append((each.partition(), each.offset()))
            else:
                found.append((each["partition"][0].as_py(), each["value"].to_pylist()))
    for partition in range(2):
        mine = [what for where, what in found if where == partition]
        assert mine == [[b"%d" % partition] * 3, 3], "the end comes behind the records"
