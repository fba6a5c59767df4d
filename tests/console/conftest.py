"""A server in this process with its page, and views asked on its own loop."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from itertools import count
from typing import Any

import pytest

from oncelog.console.faults import FaultList
from oncelog.console.query import Query
from oncelog.console.serving import Console
from oncelog.embedded import Server
from oncelog.log.partition import PartitionLog
from oncelog.server.broker import Broker
from tests.console.browser import Browser, chromium
from tests.console.stage import Stage
from tests.peers.jars import MissingPeer, need_or_skip

View = Callable[[Broker, Query], Awaitable[dict[str, Any]]]
_numbers = count(1)
ANSWER_SECONDS = 30


@pytest.fixture(scope="module")
def one_browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    try:
        chromium()
    except MissingPeer as missing:
        need_or_skip(missing)
    with Browser(tmp_path_factory.mktemp("profile")) as browser:
        yield browser


@pytest.fixture
def browser(one_browser: Browser) -> Browser:
    one_browser.leave()
    return one_browser


class Shown:
    """A server, and what its page would show of it."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.stage = Stage(server.bootstrap_servers)

    def run(self, coroutine: Any) -> Any:
        """On the server's loop, as the page does it."""
        return self.server.call(lambda: asyncio.wait_for(coroutine, ANSWER_SECONDS))

    def view(self, view: View, **query: object) -> dict[str, Any]:
        given = Query({name: str(value) for name, value in query.items()})
        found: dict[str, Any] = self.run(view(self.server.broker, given))
        return found

    def log(self, topic: str) -> PartitionLog:
        """Of its first partition."""
        found = self.server.broker.topics.get(topic)
        assert found is not None
        return found.partitions[0].log

    def new_topic(self, partitions: int = 1, **configs: str) -> str:
        return self.stage.topic(f"topic-{next(_numbers)}", partitions, **configs)


@pytest.fixture(scope="module")
def shown() -> Iterator[Shown]:
    with Server(oncelog_records_check="off") as server:  # anything may stand in a log, from earlier versions at least
        found = Shown(server)
        yield found
        found.stage.close()


@pytest.fixture(scope="module")
def faults() -> FaultList:
    return FaultList()


@pytest.fixture(scope="module")
def console(shown: Shown, faults: FaultList) -> Iterator[Console]:
    console = Console(shown.server.broker, "127.0.0.1", 0, faults)
    shown.run(console.start())
    yield console
    shown.run(console.stop())
