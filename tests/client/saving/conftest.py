"""Both kinds of server: oncelog in this process, and a real Kafka that forgets a producer after three seconds."""

import itertools
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from oncelog.client.net.brokers import Brokers
from oncelog.client.properties import producer_settings
from oncelog.embedded import Server
from tests.peers.apache import ApacheKafka
from tests.peers.jars import MissingPeer, kafka_jars, need_or_skip
from tests.raw import RawConnection

BOTH = ("oncelog", "kafka")
QUICK_BROKER = ("-Xmx512m", "-XX:TieredStopAtLevel=1")
FORGETFUL = {
    "producer.id.expiration.ms": "3000",
    "producer.id.expiration.check.interval.ms": "200",
    "auto.create.topics.enable": "false",
}
_numbers = itertools.count()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What asks the real Kafka is left out where there is none."""
    for item in items:
        if Path(__file__).parent in item.path.parents and "kafka" in item.name:
            item.add_marker(pytest.mark.peers)


@pytest.fixture(scope="session")
def forgetful_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheKafka]:
    try:
        kafka_jars()
    except MissingPeer as missing:
        need_or_skip(missing)
    with ApacheKafka(tmp_path_factory.mktemp("forgetful"), settings=FORGETFUL, jvm=QUICK_BROKER) as server:
        yield server


@pytest.fixture(scope="session")
def own_server() -> Iterator[Server]:
    with Server(settings={"group.initial.rebalance.delay.ms": "0"}) as server:
        yield server


@pytest.fixture(params=BOTH)
def bootstrap_servers(request: pytest.FixtureRequest) -> str:
    """Each of the two in turn: saving and resuming must work on both."""
    if request.param == "oncelog":
        own: Server = request.getfixturevalue("own_server")
        return own.bootstrap_servers
    kafka: ApacheKafka = request.getfixturevalue("forgetful_kafka")
    return kafka.bootstrap_servers


@pytest.fixture
def raw(bootstrap_servers: str) -> Iterator[RawConnection]:
    with RawConnection(bootstrap_servers) as connection:
        yield connection


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A name of its own for every test."""
    letters = "".join(letter if letter.isalnum() else "-" for letter in request.node.name.lower())
    return f"{letters[:120]}-{next(_numbers)}"


@pytest_asyncio.fixture
async def brokers(bootstrap_servers: str) -> AsyncIterator[Brokers]:
    found = Brokers(producer_settings({"bootstrap.servers": bootstrap_servers}))
    await found.start()
    yield found
    await found.close()
