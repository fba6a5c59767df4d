"""Spark's own Kafka connector: batch write, batch read, and a stream with a checkpoint."""

import json
import subprocess
from pathlib import Path

import pytest

from tests.peers.jars import MissingPeer, java, need_or_skip, spark_connector_jars
from tests.peers.server_process import ServerProcess
from tests.peers.spark_environment import python_with_spark
from tests.raw import RawConnection

JOB = Path(__file__).with_name("spark_job.py")
JOB_SECONDS = 240


@pytest.mark.thorough
def test_spark_writes_reads_and_streams(oncelog_server: ServerProcess, topic: str, tmp_path: Path) -> None:
    try:
        java()
        python, jars = python_with_spark(), spark_connector_jars()
    except MissingPeer as missing:
        need_or_skip(missing)
    with RawConnection(oncelog_server.port) as connection:
        connection.create_topic(topic, 4)
        connection.create_topic(f"{topic}-out", 4)
    paths = ",".join(str(path) for path in sorted(jars.glob("*.jar")))
    order = [str(python), str(JOB), paths, oncelog_server.bootstrap_servers, topic, str(tmp_path)]
    done = subprocess.run(order, capture_output=True, text=True, timeout=JOB_SECONDS, check=False)
    said = next((line for line in done.stdout.splitlines() if line.startswith("RESULT ")), None)
    assert said is not None, done.stdout[-3000:] + done.stderr[-3000:]
    result = json.loads(said.removeprefix("RESULT "))
    assert result["read"]
    assert result["future"] == 0
    assert (result["streamed"], result["streamed_right"]) == (2000, True)
    assert result["version"] == "4.2.0"
