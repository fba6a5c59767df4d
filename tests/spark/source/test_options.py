"""Options are read as Spark's own source reads them; what cannot be meant is refused with words that lead on."""

import logging
import re
from dataclasses import fields
from pathlib import Path

import pytest

from oncelog.client.door import EARLIEST, LATEST
from oncelog.settings import Kind, Setting
from oncelog.spark.option import SINK, STREAM, BadOption
from oncelog.spark.option_table import OPTIONS, SOURCE, TARGET
from oncelog.spark.options import SinkOptions, SourceOptions, check_source_options, sink_options, source_options
from oncelog.spark.sink.option_checking import transaction_timeout_ms
from oncelog.spark.source.bounds import FROM_EARLIEST, FROM_LATEST, Offsets, Time, Times
from tests.spark.options_page import page

SERVERS = {"kafka.bootstrap.servers": "localhost:9092"}
READ_T = SERVERS | {"subscribe": "t"}


def test_what_is_not_given_has_sparks_defaults() -> None:
    batch = source_options(READ_T)
    stream = source_options(READ_T, is_streaming=True)
    assert (batch.start, batch.end) == (FROM_EARLIEST, FROM_LATEST)
    assert (stream.start, stream.end) == (FROM_LATEST, FROM_LATEST)
    assert batch.fail_on_data_loss and not batch.include_headers
    assert batch.client == {"bootstrap.servers": "localhost:9092", "isolation.level": "read_uncommitted"}
    assert sink_options(SERVERS).client["partitioner"] == "murmur2_random"


def test_names_are_read_without_their_case() -> None:
    given = {
        "KAFKA.bootstrap.servers": "h:1",
        "SUBSCRIBE": " a, b ,a",
        "startingoffsets": "EARLIEST",
        "failOnDataloss": "False",
    }
    found = source_options(given, is_streaming=True)
    assert found.topics == ("a", "b")
    assert found.start == FROM_EARLIEST
    assert not found.fail_on_data_loss


def test_every_option_of_a_stream_is_read() -> None:
    found = source_options(
        SERVERS
        | {
            "subscribePattern": "a.*",
            "startingOffsets": "earliest",
            "minPartitions": "3",
            "maxRecordsPerPartition": "7",
            "maxOffsetsPerTrigger": "100",
            "minOffsetsPerTrigger": "10",
            "maxTriggerDelay": "2m",
            "includeHeaders": "true",
            "groupIdPrefix": "x",
            "kafka.group.id": "g",
            "kafkaConsumer.pollTimeoutMs": "5000",
            "fetchOffset.numRetries": "1",
            "fetchOffset.retryIntervalMs": "20",
        },
        is_streaming=True,
    )
    assert (found.pattern, found.group_id, found.include_headers) == ("a.*", "g", True)
    assert (found.min_partitions, found.max_records_per_partition) == (3, 7)
    assert (found.min_offsets_per_trigger, found.max_offsets_per_trigger) == (10, 100)
    assert (found.max_trigger_delay_ms, found.patience_ms) == (120_000, 5000)
    assert (found.offset_retries, found.offset_retry_ms) == (1, 20)
    assert "group.id" not in found.client


def test_offsets_and_times_are_read_from_json_and_times_go_first() -> None:
    offsets = '{"t":{"0":23,"1":-2}}'
    assert source_options(READ_T | {"startingOffsets": offsets}).start == Offsets({("t", 0): 23, ("t", 1): EARLIEST})
    assert source_options(READ_T | {"endingOffsets": '{"t":{"0":-1}}'}).end == Offsets({("t", 0): LATEST})
    times = READ_T | {"startingOffsets": offsets, "startingOffsetsByTimestamp": '{"t":{"0":5}}'}
    assert source_options(times).start == Times({("t", 0): 5})
    assert source_options(times | {"startingTimestamp": " 77 "}).start == Time(77)
    assert source_options(SERVERS | {"assign": '{"t":[2,0],"s":[1]}'}).partitions == (("s", 1), ("t", 0), ("t", 2))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, "One of the following options must be specified"),
        ({"subscribe": "t", "assign": '{"t":[0]}'}, "Only one of the following options can be specified"),
        ({"subscribe": " , "}, "No topics to subscribe to"),
        ({"subscribePattern": " "}, "Pattern to subscribe is empty"),
        ({"subscribePattern": "a("}, "no regular expression"),
        ({"assign": "t"}, "No topicpartitions to assign"),
        ({"assign": '{"t":0}'}, r'Expected e.g. {"topicA":\[0,1\],"topicB":\[0,1\]}, got {"t":0}'),
        (
            {"subscribe": "t", "startingOffsets": "sometimes"},
            r'Option .startingOffsets.: Expected e.g. {"topicA":{"0":23',
        ),
        ({"subscribe": "t", "startingOffsets": '{"t":{"0":-3}}'}, "Expected e.g."),
        ({"subscribe": "t", "startingOffsets": '{"t":{"0":1.5}}'}, "Expected e.g."),
        ({"subscribe": "t", "startingOffsets": '{"t":{"zero":1}}'}, "Expected e.g."),
        ({"subscribe": "t", "startingOffsets": '{"t":'}, "Expected e.g."),
        ({"subscribe": "t", "startingTimestamp": "noon"}, "Expected a single long value, got noon"),
        ({"subscribe": "t", "startingOffsets": "latest"}, "starting offset can't be latest for batch queries"),
        ({"subscribe": "t", "startingOffsets": '{"t":{"0":-1}}'}, "startingOffsets for t-0 can't be latest"),
        ({"subscribe": "t", "endingOffsets": "earliest"}, "ending offset can't be earliest for batch queries"),
        ({"subscribe": "t", "endingOffsets": '{"t":{"0":-2}}'}, "ending offset for t-0 can't be earliest"),
        (
            {"subscribe": "t", "startingOffsets": '{"t":{"0":9}}', "endingOffsets": '{"t":{"0":5}}'},
            "starting offset 9 of t-0 is greater than the ending offset 5",
        ),
        (
            {"subscribe": "t", "startingOffsets": '{"t":{"0":1}}', "endingOffsets": '{"t":{"1":5}}'},
            "name different partitions: t-0, t-1",
        ),
        ({"subscribe": "t", "startingTimestamp": "9", "endingTimestamp": "5"}, "9 is greater than endingTimestamp 5"),
        ({"subscribe": "t", "minPartitions": "0"}, "minPartitions must be positive"),
        ({"subscribe": "t", "maxRecordsPerPartition": "-1"}, "maxRecordsPerPartition.* a whole number"),
        ({"subscribe": "t", "failOnDataLoss": "perhaps"}, "takes true or false, not 'perhaps'"),
        ({"subscribe": "t", "startingOffsetsByTimestampStrategy": "guess"}, "takes error or latest"),
        ({"subscribe": "t", "kafka.auto.offset.reset": "latest"}, "startingOffsets"),
        ({"subscribe": "t", "kafka.key.deserializer": "x"}, "keys are deserialized as byte arrays"),
        ({"subscribe": "t", "kafka.value.deserializer": "x"}, "values are deserialized as byte arrays"),
        ({"subscribe": "t", "kafka.enable.auto.commit": "true"}, "'enable.auto.commit' is not supported"),
        ({"subscribe": "t", "kafka.interceptor.classes": "x"}, "'interceptor.classes' is not supported"),
        ({"subscribe": "t", "kafka.isolation.level": "strict"}, "isolation.level"),
        ({"subscribe": "t", "topic": "x"}, "Option 'topic' belongs to write and writeStream, not to read"),
    ],
)
def test_what_cannot_be_meant_for_a_batch_is_refused(given: dict[str, str], words: str) -> None:
    with pytest.raises(BadOption, match=words):
        source_options(SERVERS | given)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"endingOffsets": "latest"}, "ending offset not valid in streaming queries"),
        ({"endingOffsetsByTimestamp": '{"t":{"0":1}}'}, "ending timestamp not valid in streaming queries"),
        ({"endingTimestamp": "1"}, "ending timestamp not valid in streaming queries"),
        (
            {"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "5"},
            r"minOffsetPerTrigger\(9\) is higher than the maxOffsetsPerTrigger\(5\)",
        ),
        ({"maxTriggerDelay": "soon"}, "takes a time such as 500ms"),
    ],
)
def test_what_cannot_be_meant_for_a_stream_is_refused(given: dict[str, str], words: str) -> None:
    with pytest.raises(BadOption, match=words):
        source_options(READ_T | given, is_streaming=True)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"subscrbe": "t"}, "No such option: 'subscrbe'; the nearest known one is 'subscribe'"),
        ({"startingOffset": "x"}, "nearest known one is 'startingOffsets'"),
        ({"bootstrap.servers": "x"}, "nearest known one is 'kafka.bootstrap.servers'"),
        ({"kafka.bootstrap.server": "x"}, "nearest known one is 'kafka.bootstrap.servers'"),
        ({"group.id": "x"}, "nearest known one is 'kafka.group.id'"),
        ({"kafka.fetch.max.wait": "1"}, "nearest known one is 'kafka.fetch.max.wait.ms'"),
    ],
)
def test_an_unknown_option_is_refused_and_the_nearest_one_named(given: dict[str, str], words: str) -> None:
    for is_streaming in (False, True):
        with pytest.raises(BadOption, match=words):
            source_options(READ_T | given, is_streaming=is_streaming)


def read_as(option: Setting, name: str, value: str) -> object:
    """Where it belongs, beside what is needed there."""
    given = SERVERS | {name: value}
    if option in TARGET:
        return sink_options(given, is_streaming=SINK in option.roles)
    return source_options({"subscribe": "t"} | given, is_streaming=STREAM in option.roles)


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.name)
def test_each_option_without_its_last_letter_is_refused_and_named(option: Setting) -> None:
    with pytest.raises(BadOption, match=f"the nearest known one is '{re.escape(option.name)}'"):
        read_as(option, option.name[:-1], "1")


@pytest.mark.parametrize(
    "option", [each for each in OPTIONS if each.kind is not Kind.TEXT or each.convert], ids=lambda option: option.name
)
def test_each_option_names_itself_where_its_value_cannot_be_meant(option: Setting) -> None:
    value = " " if option.kind is Kind.TEXT else "?"
    with pytest.raises(BadOption, match=re.escape(option.name)):
        read_as(option, option.name, value)


def test_without_servers_nothing_is_read_or_written() -> None:
    with pytest.raises(BadOption, match=r"'kafka.bootstrap.servers' must be specified for configuring Kafka consumer"):
        source_options({"subscribe": "t"})
    with pytest.raises(BadOption, match=r"'kafka.bootstrap.servers' must be specified for configuring Kafka producer"):
        sink_options({"topic": "t"})


def test_what_only_a_stream_has_is_ignored_by_a_batch_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "oncelog.spark"):
        source_options(READ_T | {"maxOffsetsPerTrigger": "5"})
    assert "maxOffsetsPerTrigger option ignored in batch queries" in caplog.text


def test_before_it_is_known_whether_it_is_a_stream_only_what_neither_takes_is_refused() -> None:
    check_source_options(READ_T | {"endingOffsets": "latest"})
    check_source_options(READ_T | {"startingOffsets": "latest", "maxOffsetsPerTrigger": "5"})
    with pytest.raises(BadOption, match="nearest"):
        check_source_options(READ_T | {"endingOffset": "latest"})


def test_properties_by_the_names_of_kafkas_java_client_become_ours() -> None:
    found = source_options(
        READ_T
        | {
            "kafka.fetch.max.wait.ms": "7",
            "kafka.request.timeout.ms": "8000",
            "kafka.receive.buffer.bytes": "-1",
            "kafka.metadata.max.age.ms": "9000",
            "kafka.max.poll.records": "3",
            "kafka.isolation.level": "read_committed",
            "kafka.security.protocol": "SASL_SSL",
            "kafka.sasl.mechanism": "SCRAM-SHA-512",
            "kafka.sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required "
            'username="me" password="a\\"b";',
            "kafka.ssl.truststore.type": "PEM",
            "kafka.ssl.truststore.location": "/ca.pem",
        }
    ).client
    assert found == {
        "bootstrap.servers": "localhost:9092",
        "isolation.level": "read_committed",
        "fetch.wait.max.ms": "7",
        "socket.timeout.ms": "8000",
        "socket.receive.buffer.bytes": "0",
        "topic.metadata.refresh.interval.ms": "9000",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "me",
        "sasl.password": 'a"b',
        "ssl.ca.location": "/ca.pem",
    }


def test_a_producers_properties_become_ours() -> None:
    found = sink_options(
        SERVERS
        | {
            "kafka.buffer.memory": "33554432",
            "kafka.max.request.size": "2000000",
            "kafka.compression.type": "zstd",
            "kafka.compression.zstd.level": "3",
            "kafka.compression.gzip.level": "9",
            "kafka.max.block.ms": "1",
        }
    ).client
    assert found == {
        "bootstrap.servers": "localhost:9092",
        "partitioner": "murmur2_random",
        "queue.buffering.max.kbytes": "32768",
        "message.max.bytes": "2000000",
        "compression.type": "zstd",
        "compression.level": "3",
    }


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("sasl.jaas.config", "com.sun.security.auth.module.Krb5LoginModule required;", "kafka.sasl.username"),
        ("ssl.truststore.location", "/store.jks", "of type JKS cannot be read here; give PEM files"),
        ("ssl.keystore.location", "/store.p12", "kafka.ssl.key.location"),
        ("transactional.id", "x", "transactional.id"),
        ("key.serializer", "x", "keys are serialized with ByteArraySerializer"),
        ("partitioner.class", "x", "names a Java class"),
        ("partitioner.ignore.keys", "true", "records with a key go where it says"),
        ("buffer.memory", "much", "takes a whole number, not 'much'"),
        ("linger.ms", "soon", "linger.ms"),
        ("transaction.timeout.ms", "soon", "transaction.timeout.ms"),
    ],
)
def test_properties_that_cannot_be_honoured_are_refused(name: str, value: str, words: str) -> None:
    with pytest.raises(BadOption, match=words):
        sink_options(SERVERS | {f"kafka.{name}": value})


def test_the_sinks_options_are_read() -> None:
    given = {
        "topic": "out",
        "sink.name": "s",
        "sink.first.batch": "4",
        "checkpointLocation": "/c",
        "queryName": "q",
        "asyncProgressTrackingEnabled": "true",
    }
    found = sink_options(SERVERS | given)
    assert (found.topic, found.sink_name, found.first_batch) == ("out", "s", 4)
    assert (found.checkpoint_location, found.query_name, found.async_progress_tracking) == ("/c", "q", True)
    assert sink_options(SERVERS | {"job.id": "j"}, is_streaming=False).job_id == "j"
    with pytest.raises(BadOption, match=r"'job.id' belongs to write, not to writeStream"):
        sink_options(SERVERS | {"job.id": "j"})


def test_the_time_of_a_transaction_is_that_of_the_option() -> None:
    assert transaction_timeout_ms(sink_options(SERVERS)) == 300_000
    assert transaction_timeout_ms(sink_options(SERVERS | {"kafka.transaction.timeout.ms": "120000"})) == 120_000


def test_a_value_may_stand_elsewhere_and_nothing_shows_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WHO", "me")
    (tmp_path / "password").write_text("hush")
    given = {
        "kafka.bootstrap.servers": "b:1",
        "kafka.sasl.username": "${env:WHO}",
        "kafka.sasl.password": f"${{dir:{tmp_path}:password}}",
    }
    for options in (source_options(given | {"subscribe": "t"}), sink_options(given)):
        assert options.client["sasl.username"] == "me"
        assert options.client["sasl.password"] == "hush"
        assert "hush" not in repr(options)


@pytest.mark.parametrize("value", ["${env:NOBODY_SET_THIS}", "${file:/nowhere:key}", "${vault:a:b}"])
def test_a_value_that_stands_nowhere_is_refused_by_its_reference(value: str) -> None:
    with pytest.raises(BadOption, match=re.escape(f"Option kafka.SASL.password={value}: ")):
        sink_options({"kafka.bootstrap.servers": "b:1", "kafka.SASL.password": value})


def test_the_page_of_options_is_current() -> None:
    written = Path(__file__).parents[3] / "docs" / "spark-options.md"
    assert written.read_text() == page(), "run: python -m tests.spark.options_page > docs/spark-options.md"


def test_every_option_has_a_place_where_its_value_goes() -> None:
    read = {each.name for each in fields(SourceOptions)} | {"start_time", "start_times", "end_time", "end_times"}
    assert {each.attribute for each in SOURCE} - {"group_id_prefix"} <= read
    assert {each.attribute for each in TARGET} <= {each.name for each in fields(SinkOptions)}
