"""`foreachBatch(oncelog.spark.sealed(...))` on both servers: queries that do not repeat, and drivers that crash."""

import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from pyspark.sql import functions as F

import oncelog.spark
from oncelog.spark.option import BadOption
from oncelog.spark.sealed import milestones
from oncelog.spark.sealed.manifest import SealedError
from oncelog.spark.sealed.sealing import Sealed
from oncelog.spark.sink import milestones as sink_milestones
from oncelog.spark.sink.errors import SinkRefused
from tests.peers.server_process import ServerProcess
from tests.spark import milestones as here
from tests.spark.sealed.queries import Crashes, SealedQuery, batch_of, crashes
from tests.spark.sink.support import make_topic, messages_of, stored, values

__all__ = ["crashes"]
NewQuery = Callable[..., SealedQuery]


@pytest.fixture
def query(spark: Any, server: ServerProcess, topic: str, tmp_path: Path) -> NewQuery:
    make_topic(server, topic)

    def new(**options: Any) -> SealedQuery:
        return SealedQuery(spark, server, tmp_path / "query", **{"topic": topic, **options})

    return new


def words(*counted: bytes | None) -> list[str]:
    """Of `word count uuid` what is the same in each run."""
    return sorted(" ".join((each or b"").decode().split()[:2]) for each in counted)


def counting(rows: Any) -> Any:
    counted = rows.groupBy("value").count()
    return counted.selectExpr("value AS key", "concat_ws(' ', value, count, uuid()) AS value")


def running_counts(batches: list[list[str]]) -> list[str]:
    """What counting yields in update mode: each word of a batch with its count so far."""
    totals: Counter[str] = Counter()
    told = []
    for batch in batches:
        totals.update(batch)
        told += [f"{word} {totals[word]}" for word in set(batch)]
    return sorted(told)


CRASHES = [
    (milestones.WRITTEN, 0),
    (milestones.PUBLISHED, 1),
    (milestones.ADVANCED, 1),
    (sink_milestones.SENT, 2),
    (sink_milestones.BEFORE_SAVE, 2),
    (milestones.REMOVING, 3),
    (milestones.SAVED, 3),
]


@pytest.mark.thorough
def test_counts_in_update_mode_are_those_of_a_run_without_crashes(
    query: NewQuery, server: ServerProcess, topic: str, crashes: Crashes
) -> None:
    """State goes on although batches are run again, and no row comes twice although none is the same again."""
    job = query()
    job.mode, job.frame = "update", counting
    batches = [[f"w{number % (3 + at)}" for number in range(at, 20)] for at in range(5)]
    for batch in batches:
        job.add(*batch)
    crashes.wanted = list(CRASHES)
    for step, number in CRASHES:
        assert f"at '{step}' of batch {number}" in job.crash()
    job.run()
    found = values(server, topic)
    assert words(*found) == running_counts(batches)
    assert len(set(found)) == len(found)
    assert len({file.name.partition("-")[0] for file in Path(job.path).glob("*-*")}) == 2, "two batches are kept"


@pytest.mark.thorough
def test_windows_in_append_mode_are_those_of_a_run_without_crashes(
    query: NewQuery, server: ServerProcess, topic: str, crashes: Crashes
) -> None:
    job = query()
    seconds = F.window("time", "10 seconds")
    job.frame = lambda rows: (
        rows.select(F.timestamp_seconds(F.col("value").cast("bigint")).alias("time"))
        .withWatermark("time", "5 seconds")
        .groupBy(seconds)
        .count()
        .selectExpr("concat_ws(' ', unix_timestamp(window.start), count, rand()) AS value")
    )
    for batch in range(3):
        job.add(*range(100 + batch * 20, 125 + batch * 20))
    wanted = [(milestones.PUBLISHED, 1), (sink_milestones.SENT, 1), (milestones.SAVED, 3)]
    crashes.wanted = list(wanted)
    for _ in wanted:
        job.crash()
    job.run()
    found = values(server, topic)
    # Windows of ten seconds up to the watermark, 164 - 5; batches overlap by five seconds.
    expected = ["100 10", "110 10", "120 15", "130 10", "140 15"]
    assert words(*found) == expected, found


@pytest.mark.parametrize(
    "wanted",
    [
        [(milestones.SENDING, 0)],
        pytest.param(
            [(milestones.WRITTEN, 0), (milestones.SENDING, 0), (milestones.SAVED, 1)], marks=pytest.mark.thorough
        ),
    ],
    ids=["one crash", "three crashes"],
)
def test_rows_of_a_shuffle_with_random_values_in_many_tasks_stand_once(
    query: NewQuery, server: ServerProcess, topic: str, crashes: Crashes, wanted: list[tuple[str, int]]
) -> None:
    """More than a driver sends by itself: tasks of Spark's read the files, one each."""
    job = query()
    job.frame = lambda rows: rows.selectExpr(
        "CAST(value % 7 AS STRING) AS key", "concat(value, ' x ', uuid(), repeat('.', 200)) AS value"
    ).repartition(3)
    crashes.wanted = list(wanted)
    job.add(*range(6000))
    job.add(*range(6000, 12_000))
    for _ in wanted:
        job.crash()
    job.run()
    found = [(each or b"").split()[0] for each in values(server, topic)]
    assert sorted(found, key=int) == [str(number).encode() for number in range(12_000)]
    assert (sink_milestones.SENT, 0) not in crashes.seen, "the driver sent nothing itself"
    keys = [{key for key, _ in rows} for rows in stored(server, topic).values()]
    assert sum(map(len, keys)) == len(set().union(*keys)) == 7


def test_a_table_that_changes_before_a_batch_is_run_again_changes_nothing(
    query: NewQuery, spark: Any, server: ServerProcess, topic: str, crashes: Crashes, tmp_path: Path
) -> None:
    table = tmp_path / "table"

    def save(word: str) -> None:
        spark.range(10).selectExpr("CAST(id AS STRING) AS value", f"'{word}' AS word").write.mode("overwrite").parquet(
            str(table)
        )

    job = query()
    job.frame = lambda rows: rows.join(spark.read.parquet(str(table)), "value").selectExpr(
        "concat(value, word) AS value"
    )
    save("old")
    job.add(*range(5))
    crashes.wanted = [(sink_milestones.SENT, 0)]
    job.crash()
    save("new")
    job.add(*range(5, 8))
    job.run()
    assert values(server, topic) == [b"0old", b"1old", b"2old", b"3old", b"4old", b"5new", b"6new", b"7new"]


def test_rows_have_keys_headers_partitions_times_and_topics(query: NewQuery, server: ServerProcess, topic: str) -> None:
    job = query(topic="")
    del job.options["topic"]
    job.frame = lambda rows: rows.selectExpr(
        f"'{topic}' AS Topic",
        "NULL AS key",
        "value",
        "if(value % 3 = 0, array(named_struct('key', 'n', 'value', CAST(value AS BINARY))), NULL) AS headers",
        "if(value = 4, 3, NULL) AS partition",
        "timestamp_millis(1234567890123) AS timestamp",
        "value AS left_out",
    )
    job.add(*range(12))
    job.run()
    found = {int(each.value()): each for messages in messages_of(server, topic).values() for each in messages}
    assert sorted(found) == list(range(12))
    assert found[6].headers() == [("n", b"6")] and not found[4].headers()
    assert found[4].partition() == 3 and found[4].key() is None
    assert {each.timestamp()[1] for each in found.values()} == {1234567890123}


def test_batches_without_rows_are_saved_too(query: NewQuery, server: ServerProcess, topic: str) -> None:
    job = query()
    job.frame = lambda rows: rows.where("value % 2 = 0").selectExpr("value")
    job.add(1, 3)
    job.add(2, 4)
    job.add(5)
    job.run()
    job.forget_commit(2)
    job.run()
    job.add(6)
    job.run()
    assert values(server, topic) == [b"2", b"4", b"6"]


# --- two drivers


class Meeting:
    """Drivers that wait for each other at a step, so that both are there before either goes on."""

    def __init__(self, step: str) -> None:
        self.step = step
        self.barrier = threading.Barrier(2)
        self.won: list[bool] = []

    def reached(self, step: str, facts: dict[str, Any]) -> None:
        if step == milestones.PUBLISHED:
            self.won.append(bool(facts["won"]))
        if step == self.step:
            self.barrier.wait(60)


@pytest.mark.parametrize("step", [milestones.SEALING, milestones.WRITTEN, milestones.SENDING])
def test_two_drivers_that_run_one_batch_at_once_send_the_rows_of_one(
    spark: Any, server: ServerProcess, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    make_topic(server, topic)
    meeting = Meeting(step)
    monkeypatch.setattr(here, "reached", meeting.reached)
    failures: list[BaseException] = []

    def drive() -> None:
        try:
            with batch_of(spark, f"query-of-{topic}") as call:
                frame = spark.range(0, 50, 1, 3).selectExpr("concat(id, ' ', uuid()) AS value")
                call(new_sink(server, topic, tmp_path / "sealed"), frame, 0)
        except BaseException as failure:
            failures.append(failure)

    drivers = [threading.Thread(target=drive) for _ in range(2)]
    for driver in drivers:
        driver.start()
    for driver in drivers:
        driver.join()
    assert failures == [], "\n".join(map(str, failures))
    assert sorted(meeting.won) == [False, True]
    assert [each.split()[0] for each in values(server, topic) if each] == sorted(
        str(number).encode() for number in range(50)
    )
    assert len(list((tmp_path / "sealed").glob("0-*"))) == 1, "the loser's files are gone"


def new_sink(server: ServerProcess, topic: str, path: Path | str, **options: Any) -> Sealed:
    servers = {"kafka.bootstrap.servers": server.bootstrap_servers}
    return oncelog.spark.sealed(path=str(path), topic=topic, **servers, **options)


# --- refusals


@pytest.mark.parametrize("path", ["", "  ", None])
def test_a_path_is_needed(path: Any) -> None:
    with pytest.raises(BadOption, match="needs a path"):
        oncelog.spark.sealed(path=path, topic="t")


def test_an_unknown_option_is_refused_when_the_sink_is_made() -> None:
    with pytest.raises(BadOption, match=r"No such option: 'sink\.nam'; the nearest known one is 'sink\.name'"):
        oncelog.spark.sealed(path="p", topic="t", **{"kafka.bootstrap.servers": "x:1", "sink.nam": "n"})


def test_what_is_not_exactly_once_is_refused_when_the_sink_is_made() -> None:
    with pytest.raises(BadOption, match="acks"):
        oncelog.spark.sealed(path="p", topic="t", **{"kafka.bootstrap.servers": "x:1", "kafka.acks": 1})


def test_columns_of_a_wrong_type_are_refused_before_a_row_is_read(
    spark: Any, oncelog_server: ServerProcess, topic: str, tmp_path: Path
) -> None:
    with batch_of(spark, "q") as call, pytest.raises(BadOption, match="column 'value' is bigint"):
        call(new_sink(oncelog_server, topic, tmp_path / "p"), spark.range(3).selectExpr("id AS value"), 0)
    assert not (tmp_path / "p").exists()


def test_a_frame_of_no_query_is_refused(spark: Any, oncelog_server: ServerProcess, topic: str, tmp_path: Path) -> None:
    with pytest.raises(BadOption, match="no streaming query calls this"):
        new_sink(oncelog_server, topic, tmp_path)(spark.range(3).selectExpr("CAST(id AS STRING) AS value"), 0)


def test_a_path_of_another_query_is_refused(
    spark: Any, oncelog_server: ServerProcess, topic: str, tmp_path: Path
) -> None:
    make_topic(oncelog_server, topic)
    frame = spark.range(3).selectExpr("CAST(id AS STRING) AS value")
    with batch_of(spark, "one") as call:
        call(new_sink(oncelog_server, topic, tmp_path / "p"), frame, 0)
    with batch_of(spark, "two") as call, pytest.raises(SealedError, match="belongs to query 'one'"):
        call(new_sink(oncelog_server, topic, tmp_path / "p"), frame, 0)
    assert len(values(oncelog_server, topic)) == 3


def test_a_second_frame_of_a_batch_is_refused_and_goes_on_with_a_sink_of_its_own(
    spark: Any, oncelog_server: ServerProcess, topic: str, tmp_path: Path
) -> None:
    """It was taken for the first frame, run again, so its rows were dropped without a word."""
    make_topic(oncelog_server, topic)
    sink = new_sink(oncelog_server, topic, tmp_path / "p")
    other = new_sink(oncelog_server, topic, tmp_path / "other")
    named = new_sink(oncelog_server, topic, tmp_path / "other", **{"sink.name": f"other-{topic}"[:200]})
    frames = [spark.range(at, at + 3).selectExpr("CAST(id AS STRING) AS value") for at in (0, 3)]
    for first, second in ((sink, sink), (sink, new_sink(oncelog_server, topic, tmp_path / "p")), (sink, other)):
        run = str(uuid4())
        with batch_of(spark, topic, run) as call:
            call(first, frames[0], 0)
            with pytest.raises(SealedError, match=r"batch 0 was given to a sealed sink with .* before"):
                call(second, frames[1], 0)
    with batch_of(spark, topic, str(uuid4())) as call:
        call(sink, frames[0], 0)
        call(named, frames[1], 0)
    with batch_of(spark, "two") as call, pytest.raises(SealedError, match="belongs to query 'test"):
        call(sink, frames[1], 0)
    assert values(oncelog_server, topic) == [b"%d" % number for number in range(6)]


@pytest.mark.thorough
def test_spark_says_which_run_brings_a_batch(spark: Any, query: NewQuery, server: ServerProcess, topic: str) -> None:
    """Two frames of one batch to one sink, as a `foreachBatch` may send them."""
    job = query()
    sink = new_sink(server, topic, job.path)
    job.add("a", "b")
    rows = spark.readStream.schema("value STRING").text(str(job.input))

    def twice(frame: Any, batch: int) -> None:
        for _ in range(2):
            sink(frame, batch)

    writer = rows.writeStream.foreachBatch(twice)
    with pytest.raises(Exception, match="batch 0 was given to a sealed sink with path"):
        writer.option("checkpointLocation", str(job.checkpoint)).trigger(availableNow=True).start().awaitTermination(60)


def test_the_checkpoint_is_no_path(query: NewQuery) -> None:
    job = query()
    job.path = str(job.checkpoint)
    job.add(1)
    assert "which is not of a sealed sink" in job.crash()


def test_lost_files_of_a_written_batch_stop_the_query(
    query: NewQuery, server: ServerProcess, topic: str, crashes: Crashes
) -> None:
    job = query()
    job.add(1, 2, 3)
    crashes.wanted = [(milestones.SAVED, 0)]
    job.crash()
    for path in Path(job.path).glob("0*"):
        path.rename(path.parent.parent / path.name)
    assert "batch 0 of sink" in (said := job.crash()) and "there is no manifest of it" in said
    for path in Path(job.path).parent.glob("0*"):
        path.rename(Path(job.path) / path.name)
    job.run()
    assert values(server, topic) == [b"1", b"2", b"3"]


def test_a_sink_of_another_query_is_refused_before_anything_is_written(
    spark: Any, oncelog_server: ServerProcess, topic: str, tmp_path: Path
) -> None:
    make_topic(oncelog_server, topic)
    frame = spark.range(3).selectExpr("CAST(id AS STRING) AS value")
    named = {"sink.name": f"shared-{topic}"[:200]}
    with batch_of(spark, "one") as call:
        call(new_sink(oncelog_server, topic, tmp_path / "p1", **named), frame, 0)
    with batch_of(spark, "two") as call, pytest.raises(SinkRefused, match="belongs to query one"):
        call(new_sink(oncelog_server, topic, tmp_path / "p2", **named), frame, 0)
    assert [path.name for path in (tmp_path / "p2").iterdir()] == ["query.json"]
