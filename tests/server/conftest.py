"""One server for the tests of a module; each test makes topics of its own."""

from collections.abc import Iterator

import pytest

from oncelog.embedded import Server
from tests.raw import RawConnection
from tests.raw.topics import new_topic


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server() as server:
        yield server


@pytest.fixture
def topic(raw: RawConnection) -> str:
    """The name of a new topic with one partition."""
    return new_topic(raw)
