"""One server in this process for the tests of a module, and producers that are closed."""

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from oncelog.client.producer.producer import Producer
from oncelog.embedded import Server
from tests.raw import RawConnection
from tests.raw.topics import new_topic

MakeProducer = Callable[..., Producer]


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server() as server:
        yield server


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


@pytest.fixture
def topic(raw: RawConnection) -> str:
    """The name of a new topic with one partition."""
    return new_topic(raw)
