"""The servers that these tests ask, each started once: a real Apache Kafka and oncelog."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.peers.apache import ABORTS_EVERY
from tests.peers.oncelog_process import OncelogProcess
from tests.peers.server_process import ServerProcess

# Both servers get them; limits are small so that going over one is cheap.
COMMON_SETTINGS = {"message.max.bytes": "1048588", "auto.create.topics.enable": "true", "num.partitions": "1"}


@pytest.fixture(scope="session")
def oncelog_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    folder: Path = tmp_path_factory.mktemp("oncelog")
    settings = {**COMMON_SETTINGS, "group.initial.rebalance.delay.ms": "0", ABORTS_EVERY: "200"}
    with OncelogProcess(folder, settings=settings) as server:
        yield server
        assert "Traceback" not in server.log_text(), server.log_text()[-4000:]


@pytest.fixture(scope="session", params=("oncelog", pytest.param("kafka", marks=pytest.mark.thorough)))
def server(request: pytest.FixtureRequest) -> ServerProcess:
    """Each of the two in turn: what a client does must work on both."""
    found: ServerProcess = request.getfixturevalue("oncelog_server" if request.param == "oncelog" else "kafka")
    return found
