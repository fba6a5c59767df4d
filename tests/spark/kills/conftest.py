"""Servers that may be killed, and drivers that are: apart from what the other tests of Spark share."""

from collections.abc import Iterator

import pytest

from tests.peers.apache import quick_kafka
from tests.peers.jars import MissingPeer, java, need_or_skip
from tests.peers.oncelog_process import OncelogProcess
from tests.peers.server_process import ServerProcess
from tests.spark.cluster import StandaloneCluster
from tests.spark.conftest import BOTH, IS_ALL, SETTINGS
from tests.spark.kills.cells import ARROW_ROWS
from tests.spark.kills.cluster_cells import CALM, CONF, UNBUFFERED
from tests.spark.kills.control import Controller
from tests.spark.kills.driver import QUICK_JVM, Driver


@pytest.fixture(scope="session")
def shared_controller() -> Iterator[Controller]:
    """The one whose address the processes of the shared drivers know."""
    try:
        java()
    except MissingPeer as missing:
        need_or_skip(missing)
    with Controller() as controller:
        yield controller


@pytest.fixture(autouse=True)
def nobody_is_held(request: pytest.FixtureRequest) -> Iterator[None]:
    """A test that failed would have the next one's processes stand at its own steps."""
    yield
    if "shared_controller" in request.fixturenames:
        controller: Controller = request.getfixturevalue("shared_controller")
        controller.let_go()


SERVERS = BOTH if IS_ALL else ("oncelog",)
QUICK_DAEMONS = {"SPARK_DAEMON_JAVA_OPTS": QUICK_JVM}
FORGETFUL = {**SETTINGS, "producer.id.expiration.ms": "3000", "producer.id.expiration.check.interval.ms": "500"}


@pytest.fixture(scope="session", params=SERVERS)
def server(request: pytest.FixtureRequest) -> ServerProcess:
    """Nobody kills it."""
    found: ServerProcess = request.getfixturevalue("oncelog_server" if request.param == "oncelog" else "kafka")
    return found


@pytest.fixture(scope="session", params=SERVERS)
def forgetful(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server that forgets producers after three seconds."""
    folder = tmp_path_factory.mktemp("forgetful")
    if request.param == "oncelog":
        settings = {name: value for name, value in FORGETFUL.items() if "check.interval" not in name}
        with OncelogProcess(folder, settings=settings) as server:
            yield server
        return
    with quick_kafka(folder, FORGETFUL) as kafka:
        yield kafka


@pytest.fixture(scope="session", params=SERVERS)
def mortal(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server that is killed in some tests, and is there again after each."""
    folder = tmp_path_factory.mktemp("mortal")
    if request.param == "kafka":
        with quick_kafka(folder, SETTINGS) as kafka:
            yield kafka
        return
    with OncelogProcess(folder, settings=SETTINGS) as server:
        yield server
        assert "Traceback" not in server.log_text(), server.log_text()[-4000:]


@pytest.fixture(scope="session")
def driver(tmp_path_factory: pytest.TempPathFactory, shared_controller: Controller) -> Iterator[Driver]:
    """local[2], where a task may fail: shared by the tests that kill something else, or start it again."""
    folder = tmp_path_factory.mktemp("driver")
    with Driver(folder, variables=shared_controller.variables, conf=UNBUFFERED, arrow_rows=ARROW_ROWS) as driver:
        yield driver


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneCluster]:
    """Two hosts with one core each; nobody's in particular, so it is fine to kill its executors."""
    with StandaloneCluster(tmp_path_factory.mktemp("cluster"), variables=QUICK_DAEMONS) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def cluster_driver(
    tmp_path_factory: pytest.TempPathFactory, cluster: StandaloneCluster, shared_controller: Controller
) -> Iterator[Driver]:
    folder = tmp_path_factory.mktemp("cluster-driver")
    variables = shared_controller.variables
    with Driver(folder, master=cluster.url, variables=variables, conf=CONF, arrow_rows=ARROW_ROWS) as driver:
        yield driver


@pytest.fixture(scope="session")
def calm_driver(tmp_path_factory: pytest.TempPathFactory, shared_controller: Controller) -> Iterator[Driver]:
    """On a cluster of its own, without speculation: each host has one half of a shuffle, and is not relieved of it."""
    variables = shared_controller.variables
    with StandaloneCluster(tmp_path_factory.mktemp("calm"), variables=QUICK_DAEMONS) as cluster:
        folder = tmp_path_factory.mktemp("calm-driver")
        with Driver(folder, master=cluster.url, variables=variables, conf=CALM, arrow_rows=ARROW_ROWS) as driver:
            yield driver
