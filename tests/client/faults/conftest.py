"""Both servers as processes of their own, each started once."""

from collections.abc import Iterator

import pytest

from tests.peers.oncelog_process import OncelogProcess
from tests.peers.server_process import ServerProcess


@pytest.fixture(scope="session")
def oncelog_servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with OncelogProcess(tmp_path_factory.mktemp("oncelog")) as server:
        yield server.bootstrap_servers
        assert "Traceback" not in server.log_text(), server.log_text()[-4000:]


@pytest.fixture(scope="session")
def kafka_servers(kafka: ServerProcess) -> str:
    return kafka.bootstrap_servers
