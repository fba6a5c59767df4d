"""Streaming queries on our source and on Spark's own: the same rows, and the same batches where a batch has a limit."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from oncelog.chaos.proxy import FaultProxy
from oncelog.client.consumer.consumer import Consumer
from oncelog.client.types import TopicPartition
from tests.peers.oncelog_process import OncelogProcess
from tests.peers.server_process import ServerProcess
from tests.raw import RawConnection
from tests.spark.source.conftest import OURS, SPARKS, Streams
from tests.spark.source.filling import WAIT_S, add_partitions, new_topic, produce
from tests.waiting import until

AVAILABLE_NOW = {"availableNow": True}
ONCE = {"once": True}


@pytest.mark.parametrize(
    "trigger",
    [AVAILABLE_NOW, ONCE, None, {"processingTime": "50 milliseconds"}],
    ids=["available now", "once", "default", "processing time"],
)
def test_every_trigger_reads_every_row_over_a_restart(
    raw: RawConnection, topic: str, streams: Streams, trigger: dict[str, Any] | None
) -> None:
    new_topic(raw, topic, 2)
    more: dict[str, Any] = {"subscribe": topic, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "30"}
    more["includeHeaders"] = "true"
    for first in (0, 40):
        produce(raw, topic, 0, 40, first=first)
        produce(raw, topic, 1, 10, first=first)
        if trigger in (AVAILABLE_NOW, ONCE):
            streams.run(OURS, "ours", trigger, **more)
        else:
            query = streams.start(OURS, "ours", trigger, **more)
            query.processAllAvailable()
            query.stop()
        if trigger == AVAILABLE_NOW:
            streams.run(SPARKS, "sparks", trigger, **more)
    if trigger == AVAILABLE_NOW:
        assert streams.batches["ours"] == streams.batches["sparks"]
    offsets = sorted((row[3], row[4]) for row in streams.rows("ours"))
    assert offsets == [(0, offset) for offset in range(80)] + [(1, offset) for offset in range(20)]
    if trigger == ONCE:
        assert list(map(len, streams.batches["ours"].values())) == [50, 50], "once means everything at once"


def test_what_a_query_tells_of_its_progress_reads_as_that_of_sparks_own_source(plain: str, streams: Streams) -> None:
    told = []
    for source in (OURS, SPARKS):
        query = streams.start(source, source, AVAILABLE_NOW, subscribe=plain, startingOffsets="earliest")
        assert query.awaitTermination(WAIT_S)
        told.append(query.lastProgress.sources[0])
    ours, sparks = told
    assert ours.numInputRows == sparks.numInputRows == 235
    end = json.loads(ours.endOffset)
    assert end.pop("$topics").keys() == {plain}
    assert end.pop("$start") == {plain: {"0": 0, "1": 0, "2": 0}}
    assert end == json.loads(sparks.endOffset)


def test_the_last_batch_is_run_again_alike_with_other_options(
    oncelog_server: ServerProcess, spark: Any, tmp_path: Path, topic: str
) -> None:
    """A kill between the batch and its commit: Spark runs it again from what its checkpoint says."""
    streams = Streams(spark, oncelog_server, tmp_path)
    columns = ("offset", "partition", "spark_partition_id()")
    with RawConnection(oncelog_server.port) as raw:
        new_topic(raw, topic, 2)
        for partition in range(2):
            produce(raw, topic, partition, 30)
        more = {"subscribe": topic, "startingOffsets": "latest"}
        first = streams.start(OURS, "q", None, columns, **more, minPartitions="5")
        first.processAllAvailable()
        produce(raw, topic, 0, 20)
        first.processAllAvailable()
        first.stop()
        assert len(streams.batches["q"][0]) == 0 and len(streams.batches["q"][1]) == 20
        _forget_commit(streams.checkpoint("q"), 1)
        produce(raw, topic, 1, 7)
        streams.run(OURS, "q", AVAILABLE_NOW, columns, **more, minPartitions="1", maxOffsetsPerTrigger="3")
    assert {row[2] for row in streams.batches["q"][1]} == {0, 1, 2, 3, 4}, "five tasks, as it was planned"
    rest = [row for number, rows in streams.batches["q"].items() if number > 1 for row in rows]
    assert sorted((row[1], row[0]) for row in rest) == [(1, offset) for offset in range(30, 37)]


def test_the_first_batch_is_run_again_alike_though_the_latest_offset_is_another_now(
    oncelog_server: ServerProcess, spark: Any, tmp_path: Path, topic: str
) -> None:
    streams = Streams(spark, oncelog_server, tmp_path)
    with RawConnection(oncelog_server.port) as raw:
        new_topic(raw, topic)
        produce(raw, topic, 0, 10)
        earliest = {"subscribe": topic, "startingOffsets": "earliest"}
        streams.run(OURS, "q", ONCE, ("offset",), **earliest)
        _forget_commit(streams.checkpoint("q"), 0)
        produce(raw, topic, 0, 10)
        # The same rows as before, or `streams` complains.
        streams.run(OURS, "q", AVAILABLE_NOW, ("offset",), **earliest | {"startingOffsets": "latest"})
    assert streams.rows("q") == sorted(((offset,) for offset in range(20)), key=str)


def _forget_commit(checkpoint: Path, number: int) -> None:
    commits = checkpoint / "commits"
    (commits / str(number)).unlink()
    (commits / f".{number}.crc").unlink(missing_ok=True)
    shutil.rmtree(checkpoint / "state", ignore_errors=True)


def test_new_partitions_and_topics_are_read_while_the_query_runs(
    server: ServerProcess, raw: RawConnection, topic: str, streams: Streams
) -> None:
    new_topic(raw, f"{topic}-a")
    produce(raw, f"{topic}-a", 0, 5)
    queries = [
        streams.start(
            source,
            source,
            None,
            ("topic", "partition", "offset", "value"),
            subscribePattern=f"{topic}-.",
            startingOffsets="earliest",
        )
        for source in (OURS, SPARKS)
    ]
    for query in queries:
        query.processAllAvailable()
    add_partitions(server, raw, f"{topic}-a", 3)
    new_topic(raw, f"{topic}-b")
    for name, partition in ((f"{topic}-a", 2), (f"{topic}-b", 0), (f"{topic}-a", 0)):
        produce(raw, name, partition, 7, first=5)
    until(
        lambda: len(streams.rows(OURS)) >= 26 and len(streams.rows(SPARKS)) >= 26,
        "all 26 rows on both",
        give_up_seconds=60,
    )
    for query in queries:
        query.stop()
    assert streams.rows(OURS) == streams.rows(SPARKS)
    assert len(streams.rows(OURS)) == 26


def test_a_deleted_topic_ends_the_query_with_words_or_is_left_out(
    oncelog_server: ServerProcess, spark: Any, tmp_path: Path, topic: str
) -> None:
    streams = Streams(spark, oncelog_server, tmp_path)
    with RawConnection(oncelog_server.port) as raw:
        for name in ("a", "b"):
            new_topic(raw, f"{topic}-{name}")
            produce(raw, f"{topic}-{name}", 0, 5)
        more = {"subscribe": f"{topic}-a,{topic}-b", "startingOffsets": "earliest", "fetchOffset.numRetries": "0"}
        strict = streams.start(OURS, "strict", None, ("topic", "offset"), **more)
        lenient = streams.start(OURS, "lenient", None, ("topic", "offset"), **more, failOnDataLoss="false")
        for query in (strict, lenient):
            query.processAllAvailable()
        assert raw.delete_topic(f"{topic}-b") == 0
        with pytest.raises(Exception, match=f"there is no topic {topic}-b on"):
            strict.awaitTermination(WAIT_S)
        produce(raw, f"{topic}-a", 0, 5)
        lenient.processAllAvailable()
        lenient.stop()
    assert [row[1] for row in streams.rows("lenient") if row[0] == f"{topic}-a"] == list(range(10))


def test_a_broker_that_is_away_for_a_while_costs_the_query_nothing_but_time(
    spark: Any, tmp_path: Path, topic: str
) -> None:
    with OncelogProcess(tmp_path / "server", settings={"auto.create.topics.enable": "false"}) as server:
        streams = Streams(spark, server, tmp_path)
        with RawConnection(server.port) as raw:
            new_topic(raw, topic)
            produce(raw, topic, 0, 10)
        quick = {"kafka.reconnect.backoff.ms": "10", "kafka.reconnect.backoff.max.ms": "100"}
        query = streams.start(OURS, "q", None, ("offset",), subscribe=topic, startingOffsets="earliest", **quick)
        query.processAllAvailable()
        for _ in range(2):
            server.kill()
            server.start()
            with RawConnection(server.port) as raw:
                raw.await_leaders(topic, [0])
                produce(raw, topic, 0, 10)
            until(lambda: query.processAllAvailable() is None, "the query to go on")
        query.stop()
    assert sorted(row[0] for row in streams.rows("q")) == list(range(30))


def test_a_query_goes_on_when_its_brokers_refuse_connections_while_it_reads(
    oncelog_server: ServerProcess, spark: Any, tmp_path: Path, topic: str
) -> None:
    with RawConnection(oncelog_server.port) as raw:
        new_topic(raw, topic)
        produce(raw, topic, 0, 500)
    with FaultProxy(oncelog_server.bootstrap_servers) as proxy:
        streams = Streams(spark, proxy, tmp_path)
        quick = {"kafka.reconnect.backoff.ms": "10", "kafka.reconnect.backoff.max.ms": "100"}
        more = {"subscribe": topic, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "100"}
        query = streams.start(OURS, "q", None, ("offset",), **more, **quick)
        for _ in range(3):
            until(lambda: proxy.open_connections > 0, "a connection to cut")
            proxy.refuse(True)
            proxy.cut_all()
            proxy.refuse(False)
        query.processAllAvailable()
        query.stop()
    assert sorted(row[0] for row in streams.rows("q")) == list(range(500))


def test_the_group_is_where_the_query_is_when_it_ends(
    server: ServerProcess, raw: RawConnection, topic: str, streams: Streams
) -> None:
    new_topic(raw, topic)
    produce(raw, topic, 0, 10)
    more = {"subscribe": topic, "startingOffsets": "earliest", "kafka.group.id": topic}
    streams.run(OURS, "q", ONCE, ("offset",), **more)
    with Consumer({"bootstrap.servers": server.bootstrap_servers, "group.id": topic}) as asking:

        def committed() -> int:
            return asking.committed([TopicPartition(topic, 0)], WAIT_S)[0].offset

        until(lambda: committed() == 10, "the end of the only batch in the group")
