"""`df.write.format("oncelog")` on both servers."""

from typing import Any

import pytest

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
    with pytest.raises(Exception, match=r"batch 0 of sink .* the replay is not what was written"):
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
