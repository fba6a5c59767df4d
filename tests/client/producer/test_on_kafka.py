"""The same on a real Kafka: its own producer ids, its own rules for duplicates."""

from collections.abc import Iterator

import pyarrow as pa
import pytest

from oncelog.client.producer.producer import Producer
from tests.client.producer.stored import Heard, stored
from tests.peers.apache import ApacheKafka
from tests.raw import RawConnection
from tests.raw.topics import new_topic


@pytest.fixture
def raw_kafka(kafka: ApacheKafka) -> Iterator[RawConnection]:
    with RawConnection(kafka.port, timeout_s=60) as connection:
        yield connection


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("in_flight", [1, 5])
def test_on_kafka_every_record_stands_once_in_order(
    kafka: ApacheKafka, raw_kafka: RawConnection, codec: str, in_flight: int
) -> None:
    topic, heard = new_topic(raw_kafka, 3), Heard()
    properties = {
        "bootstrap.servers": kafka.bootstrap_servers,
        "compression.type": codec,
        "max.in.flight": in_flight,
        "batch.num.messages": 70,
    }
    with Producer(properties) as producer:
        for number in range(3000):
            producer.produce(topic, b"%d" % number, key=b"%d" % (number % 10), on_delivery=heard)
        assert producer.flush(60) == 0
    assert heard.codes == [None] * 3000
    found = stored(kafka.bootstrap_servers, topic, 3)
    stands = {(each.partition, each.offset): each.value for each in found}
    assert {(each.partition(), each.offset()): each.value() for each in heard.messages} == stands
    assert len(found) == 3000
    by_key: dict[bytes | None, list[int]] = {}
    for each in found:
        by_key.setdefault(each.key, []).append(int(each.value or b""))
    assert all(numbers == sorted(numbers) for numbers in by_key.values())


def test_on_kafka_a_table_stands_once(kafka: ApacheKafka, raw_kafka: RawConnection) -> None:
    topic = new_topic(raw_kafka)
    values = [b"%d" % number for number in range(50_000)]
    with Producer({"bootstrap.servers": kafka.bootstrap_servers, "batch.size": 50_000}) as producer:
        (only,) = producer.send(topic, pa.table({"value": pa.array(values, pa.binary())})).result(60)
    assert only[:3] == (0, 0, 50_000)
    assert [each.value for each in stored(kafka.bootstrap_servers, topic)] == values


def test_on_kafka_an_unknown_topic_is_made(kafka: ApacheKafka) -> None:
    heard = Heard()
    with Producer({"bootstrap.servers": kafka.bootstrap_servers}) as producer:
        producer.produce("made-on-kafka", b"x", on_delivery=heard)
        producer.flush(60)
    assert heard.codes == [None]
