"""Servers that may be killed, and drivers that are: apart from what the other tests of Spark share."""

from collections.abc import Iterator

import pytest

from tests.peers.jars import MissingPeer, java, need_or_skip
from tests.peers.oncelog_process import OncelogProcess
from tests.peers.server_process import ServerProcess
from tests.spark.conftest import SETTINGS
from tests.spark.kills.control import Controller
from tests.spark.kills.driver import Driver


@pytest.fixture
def controller() -> Iterator[Controller]:
    with Controller() as controller:
        yield controller


@pytest.fixture(scope="session")
def shared_controller() -> Iterator[Controller]:
    """The one whose address the processes of the shared drivers know."""
    try:
        java()
    except MissingPeer as missing:
        need_or_skip(missing)
    with Controller() as controller:
        yield controller


@pytest.fixture(scope="session")
def mortal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """An oncelog server that is killed in some tests, and is there again after each."""
    with OncelogProcess(tmp_path_factory.mktemp("mortal"), settings=SETTINGS) as server:
        yield server
        assert "Traceback" not in server.log_text(), server.log_text()[-4000:]


@pytest.fixture(scope="session")
def driver(tmp_path_factory: pytest.TempPathFactory, shared_controller: Controller) -> Iterator[Driver]:
    """local[2], where a task may fail: shared by the tests that kill something else, or start it again."""
    with Driver(tmp_path_factory.mktemp("driver"), variables=shared_controller.variables) as driver:
        yield driver
