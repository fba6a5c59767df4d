"""Both servers as processes of their own, each started once; what asks the real Kafka is marked."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.peers.apache import ApacheKafka
from tests.peers.jars import MissingPeer, kafka_jars, need_or_skip
from tests.peers.oncelog_process import OncelogProcess

QUICK_BROKER = ("-Xmx512m", "-XX:TieredStopAtLevel=1")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents and "kafka" in item.name:
            item.add_marker(pytest.mark.peers)


@pytest.fixture(scope="session")
def oncelog_servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with OncelogProcess(tmp_path_factory.mktemp("oncelog")) as server:
        yield server.bootstrap_servers
        assert "Traceback" not in server.log_text(), server.log_text()[-4000:]


@pytest.fixture(scope="session")
def kafka_servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    try:
        kafka_jars()
    except MissingPeer as missing:
        need_or_skip(missing)
    with ApacheKafka(tmp_path_factory.mktemp("kafka"), jvm=QUICK_BROKER) as server:
        yield server.bootstrap_servers
