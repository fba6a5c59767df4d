"""What is produced stands in the log once and in order, and the reports say exactly where."""

import threading
import zlib
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest

from oncelog.embedded import Server
from oncelog.records.codecs import GZIP
from tests.client.inside import engine_of
from tests.client.producer.conftest import MakeProducer
from tests.client.producer.stored import Heard, stored
from tests.raw import RawConnection
from tests.raw.topics import new_topic

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("in_flight", [1, 5])
def test_every_record_stands_once_in_order_with_each_codec(
    server: Server, topic: str, make_producer: MakeProducer, codec: str, in_flight: int
) -> None:
    producer = make_producer(compression_type=codec, max_in_flight=in_flight, batch_num_messages=150)
    values = [b"%06d" % number * 3 for number in range(4000)]
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(30) == 0
    assert [each.value for each in stored(server.bootstrap_servers, topic)] == values


def test_reports_say_where_each_record_stands_and_who_sent_it(
    server: Server, raw: RawConnection, make_producer: MakeProducer
) -> None:
    topic = new_topic(raw, 7)
    heard = Heard()
    producer = make_producer(batch_num_messages=50)
    for number in range(3000):
        producer.produce(topic, b"%d" % number, key=b"k%d" % (number % 40), on_delivery=heard)
    producer.flush(30)
    assert heard.codes == [None] * 3000
    at = {(each.partition, each.offset): each for each in stored(server.bootstrap_servers, topic, 7)}
    assert len(at) == 3000
    sequences: dict[int, int] = {}
    for message in sorted(heard.messages, key=lambda each: (each.partition(), each.offset())):
        stands = at.pop((message.partition(), message.offset()))
        assert (message.key(), message.value()) == (stands.key, stands.value)
        assert message.timestamp() == (1, stands.timestamp_ms)
        assert message.sequence() == sequences.get(message.partition(), 0)
        sequences[message.partition()] = message.sequence() + 1
        assert (message.topic(), message.pid() > 0, message.generation() >= 0) == (topic, True, True)
        assert 0 <= message.latency() < 30
        assert message.partition() == zlib.crc32(message.key()) % 7
    assert not at


def test_records_of_one_key_keep_their_order_over_many_partitions(
    server: Server, raw: RawConnection, make_producer: MakeProducer
) -> None:
    topic = new_topic(raw, 20)
    producer = make_producer(linger_ms=1, batch_num_messages=7)
    for number in range(5000):
        producer.produce(topic, b"%d" % number, key=b"%d" % (number % 100))
    producer.flush(30)
    by_key: dict[bytes, list[int]] = {}
    for each in stored(server.bootstrap_servers, topic, 20):
        by_key.setdefault(each.key or b"", []).append(int(each.value or b""))
    assert sorted(by_key) == sorted(b"%d" % number for number in range(100))
    for key, numbers in by_key.items():
        assert numbers == list(range(int(key), 5000, 100))


def test_everything_that_a_record_may_have_arrives(server: Server, topic: str, make_producer: MakeProducer) -> None:
    producer, heard = make_producer(), Heard()
    producer.produce(topic, "wört", "schlüssel", headers=[("a", b"1"), ("a", None), ("b", "ü")], timestamp=1234)
    producer.produce(topic, None, key=b"", headers={"c": b""}, on_delivery=heard)
    producer.produce(topic, bytearray(b"buffer"), key=memoryview(b"view"), callback=heard)
    producer.produce(topic)
    producer.flush(30)
    first, second, third, fourth = stored(server.bootstrap_servers, topic)
    assert (first.key, first.value, first.timestamp_ms) == ("schlüssel".encode(), "wört".encode(), 1234)
    assert first.headers == [("a", b"1"), ("a", None), ("b", "ü".encode())]
    assert (second.key, second.value, second.headers) == (b"", None, [("c", b"")])
    assert (third.key, third.value, third.headers) == (b"view", b"buffer", None)
    assert (fourth.key, fourth.value) == (None, None)
    assert heard.messages[0].headers() == [("c", b"")]
    assert [len(message) for message in heard.messages] == [0, 6]


def test_the_compiled_loops_and_pure_python_make_the_same_records(monkeypatch: pytest.MonkeyPatch) -> None:
    from oncelog.client.producer import encoding

    rows: list[object] = []
    for number in range(700):
        key = None if number % 3 else b"key-%d" % number
        value = None if number % 5 == 0 else b"v" * (number % 130)
        rows += (key, value, None, -1000.0 - number if number % 7 == 0 else 5.0 + number / 1000, None)
    encoder = encoding.Encoder(0, 10_000)
    monkeypatch.setattr(encoding, "compiled_loops", lambda: None)
    in_python = [bytes(each.data) for each in encoder.encode("t", 0, rows, 1e6)]
    monkeypatch.undo()
    encoding.fetch_compiled_loops(wait=True)
    assert encoding.compiled_loops() is not None
    compiled = [bytes(each.data) for each in encoder.encode("t", 0, rows, 1e6)]
    assert min(len(in_python), len(compiled)) > 3
    assert max(map(len, in_python + compiled)) <= 10_000
    assert _records(compiled) == _records(in_python)


@pytest.mark.parametrize("row_count", [10, 700])
def test_the_compression_level_counts_for_few_records_and_for_many(row_count: int) -> None:
    from oncelog.client.producer import encoding

    encoding.fetch_compiled_loops(wait=True)
    rows: list[object] = []
    for number in range(row_count):
        rows += (None, b"%d and %d;" % (number * 7919 % 1009, number) * 20, None, 5.0, None)
    sizes = [
        len(encoding.Encoder(GZIP, 10_000_000, level).encode("t", 0, list(rows), 1e6)[0].data) for level in (0, 1, 9)
    ]
    assert sizes == sorted(sizes, reverse=True) and len(set(sizes)) == 3


@pytest.mark.parametrize("is_bulk", [False, True])
def test_the_compression_level_is_the_settings(make_producer: MakeProducer, topic: str, is_bulk: bool) -> None:
    values = [b"%d;" % (number * 7919 % 100_003) * 9 for number in range(2000)]
    sizes = []
    for level in (0, 9):
        producer = make_producer(compression_type="gzip", compression_level=level, linger_ms=1000)
        with patch.object(engine_of(producer).sender, "add", wraps=engine_of(producer).sender.add) as add:
            if is_bulk:
                producer.send(topic, pa.table({"value": pa.array(values, pa.binary())}))
            else:
                for value in values:
                    producer.produce(topic, value)
            assert producer.flush(30) == 0
        sizes.append(sum(len(call.args[0].data) for call in add.call_args_list))
    assert sizes[1] * 4 < sizes[0]


def _records(batches: list[bytes]) -> list[tuple[bytes | None, bytes | None, int]]:
    from oncelog.records.read import records_of

    return [(each.key, each.value, each.timestamp_ms) for data in batches for each in records_of(data)]


def test_records_without_a_key_share_batches_and_reach_all_partitions(
    server: Server, raw: RawConnection, make_producer: MakeProducer
) -> None:
    topic = new_topic(raw, 3)
    producer = make_producer(sticky_partitioning_linger_ms=0)
    for _ in range(300):
        producer.produce(topic, b"x")
    producer.flush(30)
    spread = {each.partition for each in stored(server.bootstrap_servers, topic, 3)}
    assert spread == {0, 1, 2}
    producer = make_producer(sticky_partitioning_linger_ms=900_000)
    other = new_topic(raw, 3)
    for _ in range(300):
        producer.produce(other, b"x")
    producer.flush(30)
    assert len({each.partition for each in stored(server.bootstrap_servers, other, 3)}) == 1


def test_a_topic_that_is_not_there_yet_is_made_and_keeps_the_order(server: Server, make_producer: MakeProducer) -> None:
    producer = make_producer()
    for number in range(500):
        producer.produce("made-by-producing", b"%d" % number)
    producer.flush(30)
    found = [int(each.value or b"") for each in stored(server.bootstrap_servers, "made-by-producing")]
    assert found == list(range(500))


def test_what_the_cluster_has_is_listed_as_confluent_kafka_does(topic: str, make_producer: MakeProducer) -> None:
    producer = make_producer()
    found = producer.list_topics(topic).topics
    assert [(name, known.topic, known.error) for name, known in found.items()] == [(topic, topic, None)]
    assert [each.id for each in found[topic].partitions.values()] == [0]
    assert topic in producer.list_topics(timeout=20).topics


def test_many_threads_produce_and_nothing_is_lost_or_doubled(
    server: Server, topic: str, make_producer: MakeProducer
) -> None:
    producer, heard = make_producer(batch_num_messages=100, linger_ms=1), Heard()

    def work(name: int) -> None:
        for number in range(1500):
            producer.produce(topic, b"%d %d" % (name, number), on_delivery=heard)

    threads = [threading.Thread(target=work, args=(name,)) for name in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert producer.flush(30) == 0
    assert heard.codes == [None] * 6000
    by_thread: dict[int, list[int]] = {}
    for each in stored(server.bootstrap_servers, topic):
        name, number = map(int, (each.value or b"").split())
        by_thread.setdefault(name, []).append(number)
    assert by_thread == {name: list(range(1500)) for name in range(4)}


def test_a_callback_may_produce(server: Server, topic: str, make_producer: MakeProducer) -> None:
    producer = make_producer()

    def again(error: object, message: object) -> None:
        producer.produce(topic, b"second")

    producer.produce(topic, b"first", on_delivery=again)
    assert producer.flush(30) == 0
    assert [each.value for each in stored(server.bootstrap_servers, topic)] == [b"first", b"second"]


def test_acks_of_one_and_none_work_without_idempotence(server: Server, topic: str, make_producer: MakeProducer) -> None:
    for acks in (1, 0):
        producer, heard = make_producer(enable_idempotence=False, acks=acks), Heard()
        producer.produce(topic, b"%d" % acks, on_delivery=heard)
        assert producer.flush(30) == 0
        assert heard.codes == [None]
        producer.close()
    assert [each.value for each in stored(server.bootstrap_servers, topic)][:1] == [b"1"]


def test_only_failures_are_reported_where_that_is_asked(topic: str, make_producer: MakeProducer) -> None:
    heard = Heard()
    producer = make_producer(delivery_report_only_error=True, on_delivery=heard)
    producer.produce(topic, b"x")
    assert producer.flush(30) == 0
    assert heard.errors == []


def test_the_property_on_delivery_is_called_for_records_without_a_callback(
    topic: str, make_producer: MakeProducer
) -> None:
    usual, own = Heard(), Heard()
    producer = make_producer(on_delivery=usual)
    producer.produce(topic, b"a")
    producer.produce(topic, b"b", on_delivery=own)
    producer.flush(30)
    assert [message.value() for message in usual.messages] == [b"a"]
    assert [message.value() for message in own.messages] == [b"b"]


def test_a_message_that_a_callback_kept_goes_on_saying_what_it_said(topic: str, make_producer: MakeProducer) -> None:
    producer = make_producer()
    kept: list[Any] = []
    seen: list[bytes | None] = []

    def keep_some(_: Any, message: Any) -> None:
        seen.append(message.value())
        if len(seen) % 3 == 0:
            kept.append(message)

    for number in range(30):
        producer.produce(topic, b"%d" % number, on_delivery=keep_some if number % 5 else None)
    assert producer.flush(30) == 0
    numbers = [number for number in range(30) if number % 5]
    assert seen == [b"%d" % number for number in numbers]
    assert [message.value() for message in kept] == [b"%d" % number for number in numbers[2::3]]
    assert len({id(message) for message in kept}) == len(kept)


def test_what_a_callback_raises_is_raised_and_the_others_are_still_called(
    topic: str, make_producer: MakeProducer
) -> None:
    producer, heard = make_producer(), Heard()

    def fail(error: object, message: object) -> None:
        raise ZeroDivisionError("from a callback")

    producer.produce(topic, b"a", on_delivery=fail)
    producer.produce(topic, b"b", on_delivery=heard)
    with pytest.raises(ZeroDivisionError):
        producer.flush(30)
    producer.flush(30)
    assert [message.value() for message in heard.messages] == [b"b"]
