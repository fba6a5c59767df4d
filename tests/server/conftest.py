"""One server for the tests of a module; each test makes topics of its own."""

from collections.abc import Iterator
from itertools import count

import pytest

from oncelog.embedded import Server
from tests.raw import RawConnection

_numbers = count(1)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server() as server:
        yield server


@pytest.fixture
def raw(server: Server) -> Iterator[RawConnection]:
    with RawConnection(server.bootstrap_servers) as connection:
        yield connection


@pytest.fixture
def topic(raw: RawConnection) -> str:
    """The name of a new topic with one partition."""
    return new_topic(raw)


def new_topic(raw: RawConnection, partitions: int = 1, **configs: str) -> str:
    name = f"topic-{next(_numbers)}"
    error = raw.create_topic(name, partitions, {key.replace("_", "."): value for key, value in configs.items()})
    assert error == 0, error
    return name
