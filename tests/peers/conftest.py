"""The servers that these tests ask, each started once: a real Apache Kafka and oncelog."""

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.peers.apache import ApacheKafka
from tests.peers.jars import MissingPeer, kafka_jars, need_or_skip
from tests.peers.oncelog_process import OncelogProcess
from tests.peers.server_process import ServerProcess
from tests.raw import RawConnection

_numbers = itertools.count()
BOTH = ("oncelog", "kafka")
QUICK_BROKER = ("-Xmx512m", "-XX:TieredStopAtLevel=1")

# Both servers get them; limits are small so that going over one is cheap.
COMMON_SETTINGS = {"message.max.bytes": "1048588", "auto.create.topics.enable": "true", "num.partitions": "1"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.peers)


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    try:
        kafka_jars()
    except MissingPeer as missing:
        need_or_skip(missing)
    with ApacheKafka(tmp_path_factory.mktemp("kafka"), settings=COMMON_SETTINGS, jvm=QUICK_BROKER) as server:
        yield server


@pytest.fixture(scope="session")
def oncelog_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    folder: Path = tmp_path_factory.mktemp("oncelog")
    settings = {**COMMON_SETTINGS, "group.initial.rebalance.delay.ms": "0"}
    with OncelogProcess(folder, settings=settings) as server:
        yield server
        assert "Traceback" not in server.log_text(), server.log_text()[-4000:]


@pytest.fixture(scope="session", params=("oncelog", pytest.param("kafka", marks=pytest.mark.thorough)))
def server(request: pytest.FixtureRequest) -> ServerProcess:
    """Each of the two in turn: what a client does must work on both."""
    found: ServerProcess = request.getfixturevalue("oncelog_server" if request.param == "oncelog" else "kafka")
    return found


@pytest.fixture
def raw(server: ServerProcess) -> Iterator[RawConnection]:
    with RawConnection(server.port) as connection:
        yield connection


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A name of its own for every test."""
    letters = "".join(letter if letter.isalnum() else "-" for letter in request.node.name.lower())
    return f"{letters[:120]}-{next(_numbers)}"
