"""Both kinds of server: oncelog in this process, and a real Kafka."""

from collections.abc import Iterator

import pytest

from oncelog.embedded import Server


@pytest.fixture(scope="session")
def own_server() -> Iterator[Server]:
    with Server(settings={"group.initial.rebalance.delay.ms": "0"}) as found:
        yield found


@pytest.fixture(params=("oncelog", pytest.param("kafka", marks=pytest.mark.thorough)))
def servers(request: pytest.FixtureRequest) -> str:
    """Where each of the two is, in turn."""
    found = request.getfixturevalue("own_server" if request.param == "oncelog" else "kafka")
    return str(found.bootstrap_servers)
