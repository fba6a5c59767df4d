"""On a cluster whose machines have Spark and nothing of ours, the environment comes along with the job."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.peers.server_process import ServerProcess
from tests.raw import RawConnection
from tests.spark.cluster import StandaloneCluster
from tests.spark.session.packing import make_environment, pack
from tests.spark.session.running import environment, result_of

JOB = Path(__file__).with_name("cluster_job.py")
JOB_SECONDS = 280


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `environment/` and `environment.tar.gz`."""
    folder = tmp_path_factory.mktemp("packed")
    pack(make_environment(folder))
    return folder


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneCluster]:
    with StandaloneCluster(tmp_path_factory.mktemp("cluster"), workers=2, cores=1) as running:
        yield running


@pytest.mark.long  # packing and unpacking half a gigabyte takes minutes
def test_a_packed_environment_reads_and_writes_on_every_host(
    cluster: StandaloneCluster, packed: Path, oncelog_server: ServerProcess, topic: str
) -> None:
    with RawConnection(oncelog_server.port) as connection:
        connection.create_topic(topic, 2)
    order = [sys.executable, str(JOB), cluster.url, str(packed / "environment.tar.gz")]
    order += [oncelog_server.bootstrap_servers, topic]
    done = subprocess.run(order, cwd=packed, env=environment(), capture_output=True, text=True, timeout=JOB_SECONDS)
    result = result_of(done.returncode, done.stdout, done.stderr)
    assert result["rows"]
    hosts = {host for host, _, _ in result["tasks"]}
    assert hosts == {cluster.host(0), cluster.host(1)}
    for _, prefix, where in result["tasks"]:
        assert Path(where).is_relative_to(prefix), "oncelog came from somewhere else"
        assert Path(prefix).is_relative_to(cluster.folder), "the interpreter is not the one that was shipped"


def test_where_the_archive_is_not_unpacked_beside_the_driver_one_line_says_what_to_do(tmp_path: Path) -> None:
    order = [
        sys.executable,
        str(JOB),
        "spark://127.0.0.1:1",
        str(tmp_path / "environment.tar.gz"),
        "127.0.0.1:1",
        "none",
    ]
    done = subprocess.run(order, cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=JOB_SECONDS)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        "oncelog.spark.session.SparkMissing: executors run ./environment/bin/python, and Spark plans with the same "
        "path here, where there is none: unpack the archive into 'environment' of the folder that you start from."
    )
