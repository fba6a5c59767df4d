"""One server for the tests of a module, and the commands spoken to it."""

from collections.abc import Iterator
from itertools import count

import pytest

from oncelog.cli import produce
from oncelog.cli.parts import consume_loop
from oncelog.embedded import Server
from tests.cli.running import Oncelog
from tests.raw import RawConnection

_numbers = count(1)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    settings = {"group.initial.rebalance.delay.ms": "0", "auto.create.topics.enable": "false"}
    with Server(settings=settings) as server:
        yield server


@pytest.fixture
def oncelog(server: Server) -> Oncelog:
    return Oncelog(server.bootstrap_servers)


@pytest.fixture(params=["record by record", "in columns"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """How a command works where records are few, and how where they are many."""
    if request.param == "in columns":
        monkeypatch.setattr(consume_loop, "MANY_RECORDS", 1)
        monkeypatch.setattr(consume_loop, "FIRST_RECORDS", 1)
        monkeypatch.setattr(produce, "MANY_LINES", 0)
    return str(request.param)


@pytest.fixture
def topic(server: Server) -> str:
    """The name of a new topic with three partitions."""
    name = f"topic-{next(_numbers):04d}"  # all of a length, since tables show them
    with RawConnection(server.bootstrap_servers) as raw:
        assert raw.create_topic(name, 3, {}) == 0
    return name
