"""`df.write.format("oncelog")` on both servers."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import oncelog.spark
from tests.peers.server_process import ServerProcess
from tests.peers.stored import stored_codecs
from tests.spark.sink.support import make_topic, values


def write(frame: Any, server: ServerProcess, topic: str, mode: str = "append", **options: str) -> None:
    given = {name.replace("_", "."): value for name, value in options.items()}
    given |= {"kafka.bootstrap.servers": server.bootstrap_servers, "topic": topic}
    frame.write.format("oncelog").options(**given).mode(mode).save()


def test_a_job_that_is_run_again_has_written_once(spark: Any, server: ServerProcess, topic: str) -> None:
    make_topic(server, topic)
    rows = spark.range(0, 1000, 1, 2).selectExpr("CAST(id AS STRING) AS value")
    for _ in range(2):
        write(rows, server, topic, job_id=f"job-{topic}")
    assert sorted(int(value or b"") for value in values(server, topic)) == list(range(1000))
    others = spark.range(0, 1000, 1, 2).selectExpr("CAST(id + 1 AS STRING) AS value")
    with pytest.raises(Exception, match=r"batch 0 of sink .* the replay is not .* needs another `job.id`"):
        write(others, server, topic, job_id=f"job-{topic}")
    write(others, server, topic, job_id=f"another-{topic}")
    assert len(values(server, topic)) == 2000


def test_without_a_job_id_it_is_written_again(spark: Any, server: ServerProcess, topic: str) -> None:
    make_topic(server, topic)
    rows = spark.range(0, 100, 1, 2).selectExpr("CAST(id AS STRING) AS value")
    for _ in range(2):
        write(rows, server, topic, kafka_compression_type="zstd")
    assert len(values(server, topic)) == 200
    assert set().union(*(stored_codecs(server, topic, partition) for partition in range(4))) == {"zstd"}


@pytest.mark.parametrize("mode", ["overwrite", "ignore", "error"])
def test_only_append_is_allowed(spark: Any, oncelog_server: ServerProcess, topic: str, mode: str) -> None:
    with pytest.raises(Exception, match=r"(?i)append|overwrite|mode"):
        write(spark.range(3).selectExpr("CAST(id AS STRING) AS value"), oncelog_server, topic, mode)


def test_a_job_of_another_topic_is_another_job(spark: Any, oncelog_server: ServerProcess, topic: str) -> None:
    other = f"{topic}-other"
    for name in (topic, other):
        make_topic(oncelog_server, name)
    rows = spark.range(0, 10, 1, 2).selectExpr("CAST(id AS STRING) AS value")
    write(rows, oncelog_server, topic, job_id=topic)
    with pytest.raises(Exception, match=f"wrote its rows to {topic}, once, .* to {other}: .* needs another `job.id`"):
        write(rows, oncelog_server, other, job_id=topic)
    write(rows, oncelog_server, topic, job_id=topic)
    assert (len(values(oncelog_server, topic)), values(oncelog_server, other)) == (10, [])


def test_a_thread_that_has_asked_for_the_session_can_write(
    spark: Any, oncelog_server: ServerProcess, topic: str
) -> None:
    """Spark looks for the format in the session that is active in the thread, and a new thread has none."""
    make_topic(oncelog_server, topic)
    rows = spark.range(0, 10, 1, 2).selectExpr("CAST(id AS STRING) AS value")

    def in_thread() -> None:
        oncelog.spark.session(progress=False)
        write(rows, oncelog_server, topic, job_id=topic)

    with ThreadPoolExecutor(1) as threads:
        threads.submit(in_thread).result()
    assert len(values(oncelog_server, topic)) == 10
