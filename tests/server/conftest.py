"""One server for the tests of a module; each test makes topics of its own."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from oncelog.embedded import Server
from oncelog.server import tokens as tokens_module
from oncelog.server.aside import Aside
from tests.raw import RawConnection
from tests.raw.topics import new_topic
from tests.server.jwks import Issuer


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server() as server:
        yield server


@pytest.fixture
def topic(raw: RawConnection) -> str:
    """The name of a new topic with one partition."""
    return new_topic(raw)


@pytest.fixture
def issuer(tmp_path: Path) -> Issuer:
    found = Issuer(tmp_path / "keys.json")
    found.new_key("one")
    found.publish()
    return found


@pytest.fixture
def threads() -> Iterator[Aside]:
    aside = Aside("test")
    yield aside
    aside.close()


class Reads:
    """How often the keys were read."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        real = tokens_module.read_keys

        def counted(*arguments: Any) -> Any:
            self.count += 1
            return real(*arguments)

        monkeypatch.setattr(tokens_module, "read_keys", counted)


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Reads:
    return Reads(monkeypatch)
