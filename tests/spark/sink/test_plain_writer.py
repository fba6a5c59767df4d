"""Rows without a `job.id` that cannot be written: what is wrong, for which topic, and in which row."""

import pyarrow as pa
import pytest

from oncelog.chaos.life import free_ports
from oncelog.spark.options import sink_options
from oncelog.spark.sink.errors import SinkRefused
from oncelog.spark.sink.plain_writer import write_plain
from tests.peers.server_process import ServerProcess
from tests.spark.sink.support import make_topic, numbers, table, values

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def refusal(servers: str, topic: str, batches: list[pa.RecordBatch], **options: str) -> str:
    given = {name.replace("_", "."): value for name, value in options.items()}
    given |= {"kafka.bootstrap.servers": servers, "topic": topic}
    with pytest.raises(SinkRefused) as refused:
        write_plain(sink_options(given, is_streaming=False), batches)
    return str(refused.value)


def test_a_row_is_named_by_its_number_in_the_task(oncelog_server: ServerProcess, topic: str) -> None:
    make_topic(oncelog_server, topic)
    servers = oncelog_server.bootstrap_servers
    times = pa.array([1, 2, -1000], pa.timestamp("us", "UTC"))
    old = [table(numbers(0, 4)), table(numbers(4, 7), timestamp=times)]
    assert refusal(servers, topic, old) == f"rows cannot be written to topic '{topic}': row 6: a timestamp before 1970"
    large = [table(numbers(0, 4)), table([(b"k", b"v"), (b"k", bytes(1_000_001))])]
    assert f"'{topic}': row 5: 10000" in refusal(servers, topic, large)


def test_what_is_no_row_names_the_topic(oncelog_server: ServerProcess, topic: str) -> None:
    make_topic(oncelog_server, topic)
    keyless = pa.array([[{"key": None, "value": b"v"}]], HEADERS)
    words = refusal(oncelog_server.bootstrap_servers, topic, [table(numbers(0, 1), headers=keyless)])
    assert words.startswith(f"rows cannot be written to topic '{topic}': ") and "header without a key" in words
    assert values(oncelog_server, topic) == []


def test_brokers_that_do_not_answer_are_named(topic: str) -> None:
    nobody = f"127.0.0.1:{free_ports(1)[0]}"
    words = refusal(nobody, topic, [table(numbers(0, 1))], kafka_delivery_timeout_ms="300")
    assert f"topic '{topic}'" in words and f"`bootstrap.servers` is {nobody}" in words
