"""`writeStream.format("oncelog")` on both servers."""

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.peers.server_process import ServerProcess
from tests.spark.sink.queries import Query
from tests.spark.sink.support import make_topic, messages_of, stored, values

NewQuery = Callable[..., Query]


@pytest.fixture
def query(spark: Any, server: ServerProcess, topic: str, tmp_path: Path) -> NewQuery:
    make_topic(server, topic)

    def new(**options: Any) -> Query:
        return Query(spark, server, tmp_path / "query", **{"topic": topic, **options})

    return new


@pytest.mark.parametrize("server", ["oncelog", "kafka"], indirect=True)  # both in `./dev test`
def test_a_query_writes_every_row_once_and_goes_on_where_it_stopped(
    query: NewQuery, server: ServerProcess, topic: str
) -> None:
    job = query()
    job.add(*range(100))
    job.add(*range(100, 150))
    job.run()
    job.add(*range(150, 200))
    job.run()
    job.forget_commit(2)
    job.run()
    assert sorted(int(value or b"") for value in values(server, topic)) == list(range(200))
    for rows in stored(server, topic).values():
        assert all(key == value for key, value in rows)


def test_a_replay_of_a_saved_batch_that_differs_stops_the_query(
    query: NewQuery, server: ServerProcess, topic: str
) -> None:
    job = query()
    job.add(*range(10))
    job.run()
    job.forget_commit(0)
    job.frame = lambda frame: frame.selectExpr("value AS key", "concat(value, if(value = 7, '!', '')) AS value")
    with pytest.raises(Exception, match=r"batch 0 of sink .*, lane 0: the replay is not what was written") as refused:
        job.run()
    assert "sealed" in str(refused.value)
    assert len(values(server, topic)) == 10


def test_rows_have_keys_headers_partitions_times_and_topics(query: NewQuery, server: ServerProcess, topic: str) -> None:
    other = f"{topic}-other"
    make_topic(server, other, 2)
    job = query(topic="")
    del job.options["topic"]
    job.frame = lambda frame: frame.selectExpr(
        f"if(value % 2 = 0, '{topic}', '{other}') AS topic",
        "CAST(NULL AS STRING) AS key",
        "value",
        "if(value % 3 = 0, array(named_struct('key', 'n', 'value', CAST(value AS BINARY))), NULL) AS headers",
        "if(value = 4, 3, NULL) AS partition",
        "if(value = 5, timestamp_millis(1234567890123), NULL) AS timestamp",
        "value AS left_out",
    )
    job.add(*range(12))
    job.add(*range(12, 24))
    job.run()
    even, odd = messages_of(server, topic), messages_of(server, other)
    found = {int(each.value()): each for messages in (*even.values(), *odd.values()) for each in messages}
    assert sorted(found) == list(range(24))
    assert {number for number, each in found.items() if each.topic() == topic} == set(range(0, 24, 2))
    assert found[6].headers() == [("n", b"6")]
    assert not found[4].headers()
    assert found[4].partition() == 3
    assert found[5].timestamp()[1] == 1234567890123
    assert found[7].timestamp()[1] > 1_700_000_000_000
    assert found[0].key() is None


@pytest.mark.parametrize("mode", ["update", "complete"])
def test_modes_that_take_rows_back_are_refused(
    spark: Any, oncelog_server: ServerProcess, topic: str, tmp_path: Path, mode: str
) -> None:
    job = Query(spark, oncelog_server, tmp_path / "query", topic=topic)
    job.mode = mode
    job.frame = lambda frame: frame.groupBy("value").count().selectExpr("value")
    job.add(1)
    with pytest.raises(Exception, match=re.compile(f"{mode}", re.IGNORECASE)):
        job.run()


def test_a_topic_that_is_not_there_is_named(
    spark: Any, oncelog_server: ServerProcess, topic: str, tmp_path: Path
) -> None:
    job = Query(spark, oncelog_server, tmp_path / "query", topic=topic)
    job.add(1)
    with pytest.raises(Exception, match=f"rows cannot be written to topic '{topic}': .*Unknown topic") as failed:
        job.run()
    assert "Traceback" not in str(failed.value)


def test_a_checkpoint_that_was_put_back_is_refused_with_both_numbers(
    spark: Any, oncelog_server: ServerProcess, topic: str, tmp_path: Path
) -> None:
    make_topic(oncelog_server, topic)
    job = Query(spark, oncelog_server, tmp_path / "query", topic=topic)
    job.add(1)
    job.run()
    shutil.copytree(job.checkpoint, tmp_path / "old")
    job.add(2)
    job.add(3)
    job.run()
    job.forget()
    shutil.copytree(tmp_path / "old", job.checkpoint)
    with pytest.raises(Exception, match=r"the checkpoint runs batch 1, and sink .* has saved batch 2"):
        job.run()
    assert values(oncelog_server, topic) == [b"1", b"2", b"3"]


def test_a_row_that_is_too_large_is_named_with_the_limit(
    spark: Any, oncelog_server: ServerProcess, topic: str, tmp_path: Path
) -> None:
    make_topic(oncelog_server, topic)
    job = Query(spark, oncelog_server, tmp_path / "query", topic=topic)
    job.frame = lambda frame: frame.selectExpr("repeat(value, if(value = 5, 2000000, 1)) AS value")
    job.add(*range(10))
    with pytest.raises(Exception, match=r"lane 0, row 5: 20000\d\d bytes where message.max.bytes is 1000000"):
        job.run()


def test_rows_without_a_topic_are_named(spark: Any, oncelog_server: ServerProcess, topic: str, tmp_path: Path) -> None:
    make_topic(oncelog_server, topic)
    job = Query(spark, oncelog_server, tmp_path / "query")
    job.frame = lambda frame: frame.selectExpr(f"if(value = 3, NULL, '{topic}') AS topic", "value")
    job.add(*range(5))
    with pytest.raises(Exception, match="row 3: null topic present in the data"):
        job.run()
