"""What a writer takes and refuses before any row is there: asked as Spark's planner asks it."""

from typing import Any

import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    DecimalType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from oncelog.spark.option import BadOption
from oncelog.spark.options import sink_options
from oncelog.spark.sink.batch import BatchWriter
from oncelog.spark.sink.columns import check_columns
from oncelog.spark.sink.direct import StreamWriter
from oncelog.spark.sink.option_checking import lane_properties
from tests.logged import messages

SERVERS = {"kafka.bootstrap.servers": "localhost:9092"}
PAIR = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
TURNED = StructType([StructField("value", BinaryType()), StructField("key", StringType())])
TYPES: dict[str, DataType] = {
    "string": StringType(),
    "binary": BinaryType(),
    "int": IntegerType(),
    "bigint": LongType(),
    "void": NullType(),
    "decimal": DecimalType(2, 1),
    "timestamp": TimestampType(),
    "timestamp_ntz": TimestampNTZType(),
    "headers": ArrayType(PAIR),
    "turned": ArrayType(TURNED),
    "strings": ArrayType(StringType()),
    "map": MapType(StringType(), BinaryType()),
}


def schema(words: str) -> StructType:
    """`name type, ...`"""
    return StructType([StructField(*named(each.split())) for each in words.split(",")])


def named(words: list[str]) -> tuple[str, DataType]:
    name, kind = words
    return name, TYPES[kind]


@pytest.mark.parametrize(
    ("columns", "written"),
    [
        ("value string", ("value",)),
        ("value binary, key string", ("key", "value")),
        ("key binary, value string, topic string, partition int, headers headers, timestamp timestamp", None),
        ("VALUE string, Key binary, timestamp timestamp_ntz", ("key", "value", "timestamp")),
        ("value binary, offset bigint, timestampType int", ("value",)),
        ("value string, key void, headers void", ("key", "value", "headers")),
    ],
)
def test_columns_of_these_types_are_written_and_others_left_alone(
    columns: str, written: tuple[str, ...] | None
) -> None:
    everything = ("topic", "key", "value", "headers", "partition", "timestamp")
    assert check_columns(schema(columns), None if written is None else "out") == (written or everything)


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ("value int", "column 'value' is int, and string or binary is needed: cast it"),
        ("value void", "column 'value' is void, and string or binary is needed"),
        ("text string", "Required attribute 'value' not found: the columns are text"),
        ("value string, key decimal", r"column 'key' is decimal\(2,1\), and string or binary is needed"),
        ("value string, headers strings", r"column 'headers' is array<string>, and array<struct<key: string, va"),
        ("value string, headers turned", "column 'headers' is"),
        ("value string, headers map", "column 'headers' is"),
        ("value string, partition bigint", "column 'partition' is bigint, and int is needed"),
        ("value string, timestamp bigint", "column 'timestamp' is bigint, and timestamp is needed"),
        ("value string, topic binary", "column 'topic' is binary, and string is needed"),
        ("value string, VALUE string", "column 'value' is there twice"),
    ],
)
def test_other_types_are_refused_with_the_one_that_is_needed(columns: str, words: str) -> None:
    with pytest.raises(BadOption, match=words):
        StreamWriter(SERVERS | {"topic": "out"}, schema(columns), False)


def test_without_a_topic_there_is_nowhere_to_write_to() -> None:
    with pytest.raises(BadOption, match="topic option required when no 'topic' attribute is present"):
        BatchWriter(SERVERS, schema("value string"), False)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"sink.nam": "x"}, "No such option: 'sink.nam'; the nearest known one is 'sink.name'"),
        ({"sink.name": "a b"}, "'a b' cannot be the name of a sink"),
        ({"kafka.acks": "1"}, "`acks` must be set to `all`"),
        ({"kafka.enable.idempotence": "false"}, "this sink writes every row once, and needs true"),
        ({"asyncProgressTrackingEnabled": "true"}, "asyncProgressTrackingEnabled cannot be used"),
        ({"kafka.compression.type": "brotli"}, "compression"),
    ],
)
def test_options_that_cannot_be_meant_are_refused_when_the_query_starts(given: dict[str, Any], words: str) -> None:
    with pytest.raises(BadOption, match=words):
        StreamWriter(SERVERS | {"topic": "out"} | given, schema("value string"), False)


def test_what_would_take_rows_back_is_refused() -> None:
    with pytest.raises(BadOption, match="complete mode"):
        StreamWriter(SERVERS | {"topic": "out"}, schema("value string"), True)
    with pytest.raises(BadOption, match="Save mode Overwrite is not allowed"):
        BatchWriter(SERVERS | {"topic": "out"}, schema("value string"), True)


def test_a_job_without_an_id_says_that_it_writes_at_least_once(caplog: pytest.LogCaptureFixture) -> None:
    BatchWriter(SERVERS | {"topic": "out", "job.id": "j"}, schema("value string"), False)
    assert not messages(caplog, "oncelog.spark")
    BatchWriter(SERVERS | {"topic": "out"}, schema("value string"), False)
    assert "at least once" in caplog.text and "job.id" in caplog.text


def test_a_lane_outlives_a_broker_that_restarts_unless_the_user_says_otherwise() -> None:
    def properties(**given: str) -> dict[str, str]:
        options = {f"kafka.{name.replace('_', '.')}": value for name, value in given.items()}
        return lane_properties(sink_options(SERVERS | {"topic": "out"} | options))

    assert properties()["message.timeout.ms"] == "120000"
    assert properties(delivery_timeout_ms="5000")["message.timeout.ms"] == "5000"
    assert properties(buffer_memory="1048576")["queue.buffering.max.kbytes"] == "1024"
