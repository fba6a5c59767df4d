"""What all tests share, and how they share a machine.

What takes seconds to start is started once in each of the processes that run the tests.
"""

import itertools
from collections.abc import Iterator
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

from tests import depth
from tests.peers.apache import ABORTS_EVERY, quick_kafka
from tests.peers.server_process import ServerProcess
from tests.raw import RawConnection

_numbers = itertools.count()

# Where a path begins with this, the files run in one process, which has what is named behind it: they share a Spark
# session or a Kafka. Every other file is by itself. They begin in this order, the longest first.
TOGETHER = {
    "tests/spark/source/": "Spark",
    "tests/spark/sink/": "Spark",
    "tests/spark/sealed/": "Spark",
    "tests/spark/copying/": "Spark",
    "tests/spark/test_examples.py": "Spark",
    "tests/spark/test_secured.py": "Spark",
    "tests/spark/": "drivers of their own",  # more than two of Spark's machines at once are too many for two processors
    "tests/peers/": "Kafka",
    "tests/client/faults/": "Kafka",
    "tests/client/consumer/test_against_kafka.py": "Kafka",
    "tests/client/groups/test_mixed_kafka.py": "Kafka",
    "tests/client/producer/test_on_kafka.py": "Kafka",
    "tests/client/producer/test_raw.py": "Kafka",
    "tests/client/producer/test_remembering.py": "Kafka",
    "tests/records/test_kafka_reads_ours.py": "Kafka",
    "tests/runner/": "Kafka",
    "tests/server/groups/test_against_kafka.py": "Kafka",
    "tests/client/saving/": "a Kafka that forgets",
}
ORDER = list(dict.fromkeys(TOGETHER.values()))
OF_PEERS = ("tests/peers/", "tests/spark/")


def together(nodeid: str) -> str:
    """The name of what runs in one process."""
    path = nodeid.split("::", 1)[0]
    return next((name for place, name in TOGETHER.items() if path.startswith(place)), path)


class ByWhatIsShared(LoadScopeScheduling):
    def __init__(self, config: pytest.Config, log: Any) -> None:
        config.option.loadscopereorder = False
        super().__init__(config, log)

    def _split_scope(self, nodeid: str) -> str:
        return together(nodeid)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByWhatIsShared:
    return ByWhatIsShared(config, log)


def is_rest(config: pytest.Config) -> bool:
    """Whether this is what `./dev test --all` runs."""
    return bool(config.option.markexpr == "thorough")


def pytest_configure(config: pytest.Config) -> None:
    depth.choose(is_deep=is_rest(config))


def needs_a_peer(item: pytest.Item) -> bool:
    of_a_case = getattr(getattr(item, "callspec", None), "id", "")
    return (
        item.nodeid.startswith(OF_PEERS)
        or "kafka" in getattr(item, "fixturenames", ())
        or (item.nodeid.startswith("tests/client/") and "kafka" in of_a_case)
        or (item.nodeid.startswith("tests/cluster/") and "zookeeper" in of_a_case)
    )


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> Iterator[None]:
    """Marks are set before `-m` looks at them; the order is the last word."""
    for item in items:
        if needs_a_peer(item):
            item.add_marker(pytest.mark.peers)
        if is_rest(config) and depth.is_of_chance(item):
            item.add_marker(pytest.mark.thorough)
            item.add_marker(pytest.mark.timeout(depth.LIMIT_S))
    yield
    items.sort(key=lambda item: ORDER.index(found) if (found := together(item.nodeid)) in ORDER else len(ORDER))


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A real one with its defaults, but that it looks more often for what there is to do; for all who make topics and
    groups of their own in it."""
    settings = {"log.cleaner.backoff.ms": "100", ABORTS_EVERY: "200"}
    with quick_kafka(tmp_path_factory.mktemp("kafka"), settings) as server:
        yield server


@pytest.fixture
def raw(server: Any) -> Iterator[RawConnection]:
    """To the server of this folder or file."""
    with RawConnection(server.bootstrap_servers) as connection:
        yield connection


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A name of its own for every test."""
    letters = "".join(letter if letter.isalnum() else "-" for letter in request.node.name.lower())
    return f"{letters[:120]}-{next(_numbers)}"
