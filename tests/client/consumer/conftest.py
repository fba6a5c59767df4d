"""One server in this process for the tests of a module, and consumers that are closed whatever happens."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from oncelog.client.consumer.consumer import Consumer
from oncelog.client.consumer.operations import Operations
from oncelog.clock import monotonic_s
from oncelog.embedded import Server
from tests.lives.own_threads import own_threads
from tests.raw import RawConnection
from tests.raw.topics import new_topic
from tests.waiting import until

MAX_POLL_INTERVAL_S = 300  # by default
MakeConsumer = Callable[..., Consumer]


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server(settings={"group.initial.rebalance.delay.ms": "0", "group.min.session.timeout.ms": "100"}) as server:
        yield server


@pytest.fixture
def make_consumer(server: Server) -> Iterator[MakeConsumer]:
    """Consumers that read from the start and commit only when told to, unless a test says otherwise."""
    before = own_threads()
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
    assert own_threads() <= before, "a closed consumer leaves no thread behind"


@pytest.fixture
def stop_polling(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """To be called by who has polled for the last time: lets pass all the time that a group waits for the next poll,
    by its own clock, and as soon as the member has seen that no more of them come."""
    seen: list[object] = []
    ahead_s = 0.0
    activity = Operations.activity

    def look(self: Operations) -> object:
        seen.append(activity(self))
        return seen[-1]

    monkeypatch.setattr(Operations, "activity", look)
    monkeypatch.setattr("oncelog.client.consumer.subscription.POLLS_LOOK_MS", 10)
    monkeypatch.setattr("oncelog.client.groups.coordinator.monotonic_s", lambda: monotonic_s() + ahead_s)

    def stop() -> None:
        nonlocal ahead_s
        seen.clear()
        until(lambda: len(seen) >= 3 and seen[-1] is not None and seen[-1] == seen[-2], "a look that finds no poll")
        ahead_s += MAX_POLL_INTERVAL_S

    return stop


@pytest.fixture
def topic(raw: RawConnection) -> str:
    """The name of a new topic with one partition."""
    return new_topic(raw)
