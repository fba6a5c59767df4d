"""Arrow tables in, the same records out, placed as produce() would; a table that cannot be sent is refused."""

import gc
import random
import zlib
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from oncelog.client.errors import KafkaError, KafkaException
from oncelog.client.producer import arguments, bulk
from oncelog.client.producer.producer import Producer
from oncelog.embedded import Server
from tests.client.inside import engine_of
from tests.client.producer.conftest import MakeProducer, producers_threads
from tests.client.producer.stored import Heard, stored
from tests.raw import RawConnection
from tests.raw.topics import new_topic
from tests.waiting import until

HEADERS = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_a_table_stands_in_the_log_once_and_in_order(
    server: Server, topic: str, make_producer: MakeProducer, codec: str
) -> None:
    producer = make_producer(compression_type=codec, batch_size=20_000)
    values = [b"%09d" % number for number in range(30_000)]
    sent = producer.send(topic, pa.table({"value": pa.array(values, pa.binary())}))
    (only,) = sent.result(30)
    assert (only.partition, only.first_offset, only.record_count, only.first_sequence) == (0, 0, 30_000, 0)
    assert (sent.record_count, sent.delivered_count, sent.failed_count) == (30_000, 30_000, 0)
    assert len(producer) == 0
    assert [each.value for each in stored(server.bootstrap_servers, topic)] == values


def test_a_table_is_sent_though_nobody_keeps_its_producer(server: Server, topic: str) -> None:
    before = producers_threads()
    properties = {"bootstrap.servers": server.bootstrap_servers, "batch.size": 20_000}
    sent = Producer(properties).send(
        topic, pa.table({"value": pa.array([b"%0100d" % number for number in range(30_000)])})
    )
    gc.collect()
    (only,) = sent.result(30)
    assert only.record_count == 30_000
    until(lambda: producers_threads() <= before, "the producer to end then")


def test_all_columns_arrive_row_by_row(server: Server, raw: RawConnection, make_producer: MakeProducer) -> None:
    topic = new_topic(raw, 3)
    chance = random.Random(5)
    rows = [
        {
            "key": chance.choice([None, b"", b"k%d" % number]),
            "value": chance.choice([None, b"v%d" % number]),
            "headers": chance.choice([None, [], [("h", b"1"), ("i", None)]]),
            "partition": chance.choice([0, 1, 2]),
            "timestamp": 1_700_000_000_000 + number,
        }
        for number in range(500)
    ]
    schema = pa.schema(
        [
            ("key", pa.binary()),
            ("value", pa.large_binary()),
            ("headers", HEADERS),
            ("partition", pa.int32()),
            ("timestamp", pa.timestamp("us", "UTC")),
        ]
    )
    table = _chunks([_batch(rows[start : start + 123], schema) for start in range(0, 500, 123)])
    make_producer().send(topic, table).result(30)
    expected = sorted(
        (row["partition"], row["timestamp"], row["key"], row["value"], row["headers"] or None) for row in rows
    )
    found = stored(server.bootstrap_servers, topic, 3)
    assert [(each.partition, each.timestamp_ms, each.key, each.value, each.headers) for each in found] == expected


def _batch(rows: list[dict[str, Any]], schema: pa.Schema) -> pa.RecordBatch:
    columns = []
    for field in schema:
        cells = [row[field.name] for row in rows]
        if field.name == "headers":
            cells = [
                None if cell is None else [{"key": name, "value": value} for name, value in cell] for cell in cells
            ]
        if field.name == "timestamp":
            columns.append(pa.array([cell * 1000 for cell in cells], pa.int64()).cast(field.type))
        else:
            columns.append(pa.array(cells, field.type))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _chunks(batches: list[pa.RecordBatch]) -> pa.Table:
    return pa.Table.from_batches(batches)


def test_keys_go_where_produce_puts_them(server: Server, raw: RawConnection, make_producer: MakeProducer) -> None:
    topic = new_topic(raw, 5)
    keys = [b"key-%d" % number for number in range(2000)]
    table = pa.table({"key": pa.array(keys, pa.binary()), "value": pa.array(keys, pa.binary())})
    ranges = make_producer(batch_size=3000).send(topic, table).result(30)
    found = stored(server.bootstrap_servers, topic, 5)
    assert len(found) == 2000
    for each in found:
        assert each.partition == zlib.crc32(each.key or b"") % 5
    in_order = [key for partition in range(5) for key in keys if zlib.crc32(key) % 5 == partition]
    assert [each.key for each in found] == in_order
    assert [(each.partition, each.first_offset) for each in ranges] == [(index, 0) for index in range(5)]
    assert sum(each.record_count for each in ranges) == 2000


def test_rows_come_behind_what_was_produced_before_and_before_what_comes_after(
    server: Server, topic: str, make_producer: MakeProducer
) -> None:
    producer, heard = make_producer(linger_ms=1000), Heard()
    producer.produce(topic, b"before", on_delivery=heard)
    producer.send(topic, pa.table({"value": [b"bulk-1", b"bulk-2"]}), on_delivery=heard)
    producer.produce(topic, b"after", on_delivery=heard)
    assert producer.flush(30) == 0
    expected = [b"before", b"bulk-1", b"bulk-2", b"after"]
    assert [each.value for each in stored(server.bootstrap_servers, topic)] == expected
    assert heard.codes == [None] * 3


def test_slices_are_sent_without_what_lies_around_them(server: Server, topic: str, make_producer: MakeProducer) -> None:
    batch = pa.RecordBatch.from_pydict({"value": [b"%d" % number for number in range(100)]})
    make_producer().send(topic, batch.slice(40, 20)).result(30)
    assert [each.value for each in stored(server.bootstrap_servers, topic)] == [
        b"%d" % number for number in range(40, 60)
    ]


def test_an_empty_table_is_done_at_once(topic: str, make_producer: MakeProducer) -> None:
    assert make_producer().send(topic, pa.table({"value": pa.array([], pa.binary())})).result(0) == []


def most_bytes_taken(producer: Producer, topic: str) -> int:
    """By 20 MB that are sent."""
    most = 0
    budget = engine_of(producer).budget

    class Watched:
        def __getattr__(self, name: str) -> Any:
            return getattr(budget, name)

        def take_bulk(self, size_bytes: int, messages: int) -> None:
            nonlocal most
            budget.take_bulk(size_bytes, messages)
            most = max(most, budget.size_bytes)

    engine_of(producer).budget = Watched()  # type: ignore[assignment]
    sent = producer.send(topic, pa.table({"value": pa.array([b"x" * 1000] * 20_000, pa.binary())}))
    assert sent.result(60)[0].record_count == 20_000
    return most


def test_a_large_table_stays_within_the_bound(topic: str, make_producer: MakeProducer) -> None:
    assert 400_000 < most_bytes_taken(make_producer(queue_buffering_max_kbytes=2000), topic) <= 2000 * 1024


def test_a_send_does_not_run_far_ahead_though_the_queue_had_room(
    topic: str, make_producer: MakeProducer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk, "MOST_AHEAD_BYTES", 2_000_000)
    monkeypatch.setattr(bulk, "LEAST_PIECE_BATCHES", 1)
    assert 400_000 < most_bytes_taken(make_producer(), topic) <= 3_100_000


HEADER_SHAPES = r"column `headers`: list<struct<key, value>> or map<key, value>"

REFUSED: list[tuple[Callable[[], Any], type[Exception], str]] = [
    (lambda: [b"x"], TypeError, "Arrow table"),
    (lambda: None, TypeError, "Arrow table"),
    (lambda: pa.table({"key": [b"x"]}), ValueError, "value"),
    (lambda: pa.table({"value": [b"x"], "offset": [1]}), ValueError, "offset"),
    (lambda: pa.table({"offset": [1], "valeu": [b"x"]}), ValueError, r"no column `value`.*'offset', 'valeu'"),
    (lambda: pa.table({"value": [b"x"], "topic": ["t"], "key": [b"k"]}), ValueError, r"\.select\(\['value', 'key'\]\)"),
    (lambda: pa.table([pa.array([b"x"])] * 2, ["value", "value"]), ValueError, "`value` is there twice"),
    (lambda: pa.table({"value": [1]}), TypeError, "column `value`"),
    (lambda: pa.table({"value": [b"x"], "headers": [{"key": "a", "value": b"b"}]}), TypeError, HEADER_SHAPES),
    (lambda: pa.table({"value": [b"x"], "headers": [[{"key": "a"}]]}), TypeError, HEADER_SHAPES),
    (lambda: pa.table({"value": [b"x"], "headers": [["a"]]}), TypeError, HEADER_SHAPES),
    (lambda: pa.table({"value": [b"x"], "headers": [[{"key": "a", "value": 5}]]}), TypeError, HEADER_SHAPES),
    (lambda: pa.table({"value": [b"x"], "key": [1.5]}), TypeError, "column `key`"),
    (lambda: pa.table({"value": [b"x"], "headers": [1]}), TypeError, "column `headers`"),
    (lambda: pa.table({"value": [b"x"], "partition": ["a"]}), TypeError, "column `partition`"),
    (lambda: pa.table({"value": [b"x", b"y"], "partition": [0, 1]}), KafkaException, "row 1"),
    (lambda: pa.table({"value": [b"x", b"y"], "partition": [0, -2]}), KafkaException, "row 1"),
    (lambda: pa.table({"value": [b"x"], "timestamp": [-5]}), ValueError, "row 0"),
    (lambda: pa.table({"value": [b"x"], "timestamp": pa.array([None], pa.int64())}), TypeError, "timestamp"),
    (lambda: pa.table({"value": [b"x", b"x" * 2_000_000]}), KafkaException, "row 1"),
]


@pytest.mark.parametrize(("make", "expected", "words"), REFUSED)
def test_a_table_that_cannot_be_sent_is_refused_as_a_whole(
    server: Server,
    topic: str,
    make_producer: MakeProducer,
    make: Callable[[], Any],
    expected: type[Exception],
    words: str,
) -> None:
    producer = make_producer()
    with pytest.raises(expected, match=words):
        producer.send(topic, make())
    assert producer.flush(30) == 0
    assert stored(server.bootstrap_servers, topic) == []


@pytest.mark.parametrize(
    "headers",
    [
        pa.array([[{"value": b"1", "key": "h"}]]),
        pa.array([[("h", b"1")]], pa.map_(pa.string(), pa.binary())),
        pa.array([[("h", "1")]], pa.large_list(pa.struct([("key", pa.string()), ("value", pa.string())]))),
    ],
)
def test_headers_are_lists_of_structs_or_maps(
    server: Server, topic: str, make_producer: MakeProducer, headers: pa.Array
) -> None:
    make_producer().send(topic, pa.table({"value": [b"x"], "headers": headers})).result(30)
    assert [each.headers for each in stored(server.bootstrap_servers, topic)] == [[("h", b"1")]]


def test_a_column_of_headers_that_is_all_null_is_none_at_all(
    server: Server, topic: str, make_producer: MakeProducer
) -> None:
    make_producer().send(topic, pa.table({"value": [b"x", b"y"], "headers": pa.nulls(2)})).result(30)
    assert [each.headers for each in stored(server.bootstrap_servers, topic)] == [None, None]


def test_without_the_extra_the_first_words_say_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise ImportError("No module named 'pyarrow'")

    monkeypatch.setattr(arguments, "import_module", missing)
    with pytest.raises(ImportError, match=r"^install oncelog\[columns\]"):
        arguments.bulk_module()


def test_rows_that_could_not_be_delivered_are_told(unused_tcp_port: int, make_producer: MakeProducer) -> None:
    producer = make_producer(bootstrap_servers=f"127.0.0.1:{unused_tcp_port}", delivery_timeout_ms=200)
    with pytest.raises(KafkaException) as failed:
        producer.send("t", pa.table({"value": [b"x"]}))
    assert failed.value.error.code() == KafkaError._MSG_TIMED_OUT
