"""One server in this process for the tests of a module, a real Kafka for a few, and producers that are closed."""

import threading
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from oncelog.client.producer.producer import Producer
from oncelog.embedded import Server
from tests.peers.apache import ApacheKafka
from tests.peers.jars import MissingPeer, kafka_jars, need_or_skip
from tests.raw import RawConnection

QUICK_BROKER = ("-Xmx512m", "-XX:TieredStopAtLevel=1")
_numbers = count(1)

MakeProducer = Callable[..., Producer]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents and "kafka" in item.name:
            item.add_marker(pytest.mark.peers)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server() as server:
        yield server


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheKafka]:
    try:
        kafka_jars()
    except MissingPeer as missing:
        need_or_skip(missing)
    with ApacheKafka(tmp_path_factory.mktemp("kafka"), jvm=QUICK_BROKER) as server:
        yield server


@pytest.fixture
def raw(server: Server) -> Iterator[RawConnection]:
    with RawConnection(server.bootstrap_servers) as connection:
        yield connection


@pytest.fixture
def make_producer(server: Server) -> Iterator[MakeProducer]:
    before = producers_threads()
    made: list[Producer] = []

    def make(**more: Any) -> Producer:
        given = {name if name in CALLABLES else name.replace("_", "."): value for name, value in more.items()}
        producer = Producer({"bootstrap.servers": server.bootstrap_servers} | given)
        made.append(producer)
        return producer

    yield make
    for producer in made:
        producer.close(10)
    assert producers_threads() <= before, "a closed producer leaves no thread behind"


def producers_threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name == "oncelog-producer"}


CALLABLES = ("on_delivery", "error_cb")


def new_topic(raw: RawConnection, partitions: int = 1) -> str:
    name = f"topic-{next(_numbers)}"
    assert raw.create_topic(name, partitions) == 0
    return name


@pytest.fixture
def topic(raw: RawConnection) -> str:
    """The name of a new topic with one partition."""
    return new_topic(raw)
