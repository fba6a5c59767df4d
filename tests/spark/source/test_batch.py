"""The same batch queries on our source and on Spark's own: the same rows, to the last column."""

import json
import time
from collections.abc import Callable
from typing import Any

import pytest

from oncelog.client.consumer.ranges import read_range
from oncelog.spark.option import BadOption
from oncelog.spark.source.columns import schema
from oncelog.spark.source.errors import SourceError
from oncelog.spark.source.reader import Reader
from tests.peers.server_process import ServerProcess
from tests.raw import RawConnection, Rec, batch
from tests.spark.source.conftest import OURS, SPARKS, Reads, Row
from tests.spark.source.filling import EPOCH_MS, delete_before, new_topic, options, produce
from tests.waiting import until

AT = EPOCH_MS + 50_500
LATE = EPOCH_MS + 10_000_000
WRITTEN = 80  # to the compacted topic


CASES: dict[str, dict[str, Any]] = {
    "subscribe": {"subscribe": "plain"},
    "subscribe with spaces and twice": {"subscribe": " plain , plain"},
    "subscribePattern": {"subscribePattern": "^pla.n$"},
    "assign": {"assign": '{"plain":[2,1]}'},
    "startingOffsets": {"subscribe": "plain", "startingOffsets": '{"plain":{"0":33,"1":-2,"2":-2}}'},
    "endingOffsets": {"subscribe": "plain", "endingOffsets": '{"plain":{"0":121,"1":0,"2":-1}}'},
    "startingOffsets and endingOffsets": {
        "assign": '{"plain":[0,2]}',
        "startingOffsets": '{"plain":{"0":39,"2":3}}',
        "endingOffsets": '{"plain":{"0":41,"2":4}}',
    },
    "minPartitions": {"subscribe": "plain", "minPartitions": "7"},
    "maxRecordsPerPartition": {"subscribe": "plain", "maxRecordsPerPartition": "13"},
    "startingTimestamp": {"assign": '{"plain":[0]}', "startingTimestamp": AT},
    "endingTimestamp": {"subscribe": "plain", "endingTimestamp": AT},
    "startingOffsetsByTimestamp": {
        "assign": '{"plain":[0]}',
        "startingOffsetsByTimestamp": json.dumps({"plain": {"0": AT}}),
    },
    "startingOffsetsByTimestampStrategy": {
        "subscribe": "plain",
        "startingOffsetsByTimestamp": json.dumps({"plain": {"0": AT, "1": AT, "2": LATE}}),
        "startingOffsetsByTimestampStrategy": "latest",
    },
    "endingOffsetsByTimestamp": {
        "subscribe": "plain",
        "endingOffsetsByTimestamp": json.dumps({"plain": {"0": AT, "1": AT, "2": LATE}}),
    },
    "kafka.*": {"subscribe": "plain", "kafka.isolation.level": "read_committed", "kafka.fetch.max.wait.ms": "100"},
}


@pytest.fixture(scope="module")
def answers(plain: str, spark: Any, server: ServerProcess) -> dict[str, dict[str, list[Row]]]:
    """What each source answers in each case; all cases are one job of Spark, because a job costs more than its rows."""
    reads = Reads(spark, server)
    return {source: reads.all_rows(source, CASES) for source in (OURS, SPARKS)}


@pytest.mark.parametrize("case", CASES)
def test_every_option_means_what_it_means_to_sparks_own_source(
    answers: dict[str, dict[str, list[Row]]], case: str
) -> None:
    assert answers[OURS][case] == answers[SPARKS][case]
    assert len(answers[OURS][case]) > 0


def test_the_schema_is_that_of_sparks_own_source(plain: str, reads: Reads) -> None:
    for has_headers in ("true", "false"):
        ours, sparks = (reads.frame(source, subscribe=plain, includeHeaders=has_headers) for source in (OURS, SPARKS))
        assert ours.schema == sparks.schema


def test_a_schema_chooses_the_columns_and_may_have_bytes_as_text(
    plain: str, reads: Reads, spark: Any, server: ServerProcess
) -> None:
    read = (
        spark.read.format(OURS).option("kafka.bootstrap.servers", server.bootstrap_servers).option("subscribe", plain)
    )
    found = read.schema("offset LONG, value STRING, partition INT").load().collect()
    whole = reads.frame(SPARKS, subscribe=plain).selectExpr("offset", "CAST(value AS STRING)", "partition").collect()
    assert sorted(map(tuple, found), key=str) == sorted(map(tuple, whole), key=str)
    assert read.schema("headers ARRAY<STRUCT<key: STRING, value: BINARY>>").load().count() == len(whole)


def test_an_empty_topic_has_no_rows(raw: RawConnection, topic: str, reads: Reads) -> None:
    new_topic(raw, topic, 2)
    assert reads.same(subscribe=topic) == []


def test_records_that_are_gone_are_an_error_or_left_out(
    server: ServerProcess, raw: RawConnection, topic: str, reads: Reads
) -> None:
    new_topic(raw, topic)
    produce(raw, topic, 0, 30)
    delete_before(server, topic, 0, 12)
    assert len(reads.same(subscribe=topic)) == 18
    gone = {"subscribe": topic, "startingOffsets": json.dumps({topic: {"0": 5}})}
    assert len(reads.same(**gone, failOnDataLoss="false")) == 18
    for source in (OURS, SPARKS):
        with pytest.raises(Exception, match=r"(?i)data|offset"):
            reads.rows(source, **gone)
    with pytest.raises(Exception, match=f"{topic}-0: offsets 5 to 30 are wanted, and the log goes from 12 to 30"):
        reads.rows(OURS, **gone)


def test_an_end_beyond_the_log_is_an_error_or_the_logs_end(raw: RawConnection, topic: str, reads: Reads) -> None:
    new_topic(raw, topic)
    produce(raw, topic, 0, 10)
    beyond = {"subscribe": topic, "endingOffsets": json.dumps({topic: {"0": 20}})}
    with pytest.raises(Exception, match=f"{topic}-0: offsets 0 to 20 are wanted, and the log goes from 0 to 10"):
        reads.rows(OURS, **beyond)
    assert len(reads.rows(OURS, **beyond, failOnDataLoss="false")) == 10


def test_what_compaction_took_is_no_loss(server: ServerProcess, raw: RawConnection, topic: str, reads: Reads) -> None:
    compacted = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", "segment.ms": "1"}
    new_topic(raw, topic, configs=compacted)
    for at in range(WRITTEN // 10):
        produce_keyed(raw, topic, at)
    until(Settled(lambda: offsets(server, topic)), "the log cleaner")
    rows = reads.same(subscribe=topic)
    assert len(rows) < WRITTEN
    middle = rows[len(rows) // 2][4]
    for start, end in ((0, WRITTEN), (1, middle), (middle, middle + 1), (middle + 1, WRITTEN - 1)):
        bounds = {
            "startingOffsets": json.dumps({topic: {"0": start}}),
            "endingOffsets": json.dumps({topic: {"0": end}}),
        }
        assert reads.same(subscribe=topic, **bounds) == [row for row in rows if start <= row[4] < end]


def produce_keyed(raw: RawConnection, topic: str, at: int) -> None:
    records = [Rec(b"%d" % at, b"key %d" % (i * (at % 3)), (), i) for i in range(10)]
    assert raw.produce(topic, 0, batch(records, timestamp_ms=EPOCH_MS + at * 100_000)).error_code == 0


class Settled:
    """Whether the log cleaner, which looks ten times a second, has taken some and no more of them for a while."""

    def __init__(self, look: Callable[[], set[int]]) -> None:
        self._look = look
        self._last: set[int] = set()
        self._since_s = 0.0

    def __call__(self) -> bool:
        found = self._look()
        if found != self._last:
            self._last, self._since_s = found, time.monotonic()
        return len(found) < WRITTEN and time.monotonic() - self._since_s > 1


def offsets(server: ServerProcess, topic: str) -> set[int]:
    properties = {"bootstrap.servers": server.bootstrap_servers}
    found = read_range(properties, topic, 0, 0, WRITTEN, columns=frozenset({"offset"}))
    return {offset for rows in found for offset in rows["offset"].to_pylist()}


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"subscribe": "nowhere"}, "there is no topic nowhere on 127.0.0.1"),
        ({"assign": '{"plain":[7]}'}, "there is no partition plain-7 on 127.0.0.1"),
        (
            {"subscribe": "plain", "startOffsets": "x"},
            "No such option: 'startOffsets'; the nearest known one is 'startingOffsets'",
        ),
        ({"subscribe": "plain", "startingOffsets": '{"plain":'}, "Expected e.g. {"),
        ({"subscribe": "plain", "startingOffsets": '{"plain":{"0":3}}'}, "you must specify all TopicPartitions"),
        ({"subscribe": "plain", "assign": '{"plain":[0]}'}, "Only one of the following options"),
        ({"subscribe": "plain", "startingOffsets": "latest"}, "starting offset can't be latest for batch queries"),
        (
            {"subscribe": "plain", "startingTimestamp": LATE},
            "No offset matched from request of topic-partition plain-0",
        ),
        (
            {"subscribe": "plain", "kafka.bootstrap.servers": "127.0.0.1:1", "kafkaConsumer.pollTimeoutMs": "300"},
            "127.0.0.1:1 did not answer within 0.3 s",
        ),
    ],
    ids=lambda more: " ".join(more) if isinstance(more, dict) else "",
)
def test_what_is_wrong_is_said_in_words(plain: str, server: ServerProcess, more: dict[str, Any], words: str) -> None:
    given = options(server, **{"fetchOffset.numRetries": "0"} | more)
    with pytest.raises((BadOption, SourceError)) as failed:
        Reader(given, schema(given)).partitions()
    assert words in str(failed.value)


def test_what_is_wrong_reaches_the_user_through_spark(reads: Reads) -> None:
    """The words alone, without frames."""
    with pytest.raises(Exception, match=r"there is no topic nowhere on 127\.0\.0\.1") as failed:
        reads.rows(OURS, subscribe="nowhere", **{"fetchOffset.numRetries": "0"})
    assert "Traceback" not in str(failed.value)


def test_a_query_with_a_wrong_option_fails_when_it_is_written_down(plain: str, reads: Reads) -> None:
    with pytest.raises(Exception, match="nearest known one is 'subscribe'"):
        reads.frame(OURS, subscrib="plain")
