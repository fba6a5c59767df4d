"""One server in this process for the tests of a module, and consumers that are closed whatever happens."""

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from oncelog.client.consumer.consumer import Consumer
from oncelog.embedded import Server
from tests.raw import RawConnection
from tests.raw.topics import new_topic

SERVERS_THREADS = tuple(f"oncelog-{work}" for work in ("aside", "disk", "pids", "scrub", "flush", "housekeeping"))
MakeConsumer = Callable[..., Consumer]


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server(settings={"group.initial.rebalance.delay.ms": "0", "group.min.session.timeout.ms": "100"}) as server:
        yield server


@pytest.fixture
def make_consumer(server: Server) -> Iterator[MakeConsumer]:
    """Consumers that read from the start and commit only when told to, unless a test says otherwise."""
    before = set(threading.enumerate())
    made: list[Consumer] = []

    def make(**more: Any) -> Consumer:
        properties = {
            "bootstrap.servers": server.bootstrap_servers,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 50,
        } | {name if name == "on_commit" else name.replace("_", "."): value for name, value in more.items()}
        consumer = Consumer(properties)
        made.append(consumer)
        return consumer

    yield make
    for consumer in made:
        consumer.close()
    # The server is in this process, too, and has threads of its own for what takes long.
    left = {thread for thread in threading.enumerate() if not thread.name.startswith(SERVERS_THREADS)}
    assert left <= before, "a closed consumer leaves no thread behind"


@pytest.fixture
def topic(raw: RawConnection) -> str:
    """The name of a new topic with one partition."""
    return new_topic(raw)
