"""Both kinds of server: oncelog in this process, and a real Kafka that forgets a producer after three seconds."""

from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio

from oncelog.client.net.brokers import Brokers
from oncelog.client.properties import producer_settings
from oncelog.embedded import Server
from tests.peers.apache import ApacheKafka, quick_kafka
from tests.raw import RawConnection

BOTH = ("oncelog", "kafka")
FORGETFUL = {
    "producer.id.expiration.ms": "3000",
    "producer.id.expiration.check.interval.ms": "200",
    "auto.create.topics.enable": "false",
}


@pytest.fixture(scope="session")
def forgetful_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheKafka]:
    with quick_kafka(tmp_path_factory.mktemp("forgetful"), FORGETFUL) as server:
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


@pytest_asyncio.fixture
async def brokers(bootstrap_servers: str) -> AsyncIterator[Brokers]:
    found = Brokers(producer_settings({"bootstrap.servers": bootstrap_servers}))
    await found.start()
    yield found
    await found.close()
