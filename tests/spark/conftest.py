"""One Spark session and one of each server for all tests that need no more: a JVM takes seconds to start."""

import os
from collections.abc import Iterator
from typing import Any

import pytest

import oncelog.spark
from tests.peers.apache import ABORTS_EVERY, quick_kafka
from tests.peers.jars import MissingPeer, java, need_or_skip, spark_connector_jars
from tests.peers.oncelog_process import OncelogProcess
from tests.peers.server_process import ServerProcess

BOTH = ("oncelog", "kafka")
SETTINGS = {
    "auto.create.topics.enable": "false",
    "group.initial.rebalance.delay.ms": "0",
    "log.cleaner.backoff.ms": "100",
    ABORTS_EVERY: "200",
}


IS_ALL = os.environ.get("KILLS_SCOPE") == "all"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """What is long is left out of the test command; docs/spark-kills.md and docs/spark.md say what that is."""
    long = [item for item in items if item.get_closest_marker("long")]
    if long and not IS_ALL:
        config.hook.pytest_deselected(items=long)
        items[:] = [item for item in items if item not in long]


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with quick_kafka(tmp_path_factory.mktemp("kafka"), SETTINGS) as server:
        yield server


@pytest.fixture(scope="session")
def oncelog_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with OncelogProcess(tmp_path_factory.mktemp("oncelog"), settings=SETTINGS) as server:
        yield server
        assert "Traceback" not in server.log_text(), server.log_text()[-4000:]


@pytest.fixture(scope="session", params=("oncelog", pytest.param("kafka", marks=pytest.mark.thorough)))
def server(request: pytest.FixtureRequest) -> ServerProcess:
    """Each of the two in turn: everything must hold on both."""
    found: ServerProcess = request.getfixturevalue("oncelog_server" if request.param == "oncelog" else "kafka")
    return found


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """local[2], with Spark's own Kafka connector beside our format; made as users make theirs."""
    try:
        java()
        jars = spark_connector_jars()
    except MissingPeer as missing:
        need_or_skip(missing)
    session = oncelog.spark.session(
        "tests",
        {
            "spark.jars": ",".join(str(path) for path in sorted(jars.glob("*.jar"))),
            "spark.driver.memory": "1g",
            "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
            "spark.sql.shuffle.partitions": 2,
            "spark.sql.session.timeZone": "UTC",
            "spark.local.dir": tmp_path_factory.mktemp("spark-local"),
            "spark.sql.warehouse.dir": tmp_path_factory.mktemp("warehouse"),
        },
        master="local[2]",
        progress=False,
    )
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()
