"""How the tests share a machine: what takes seconds to start is started once, in one of the processes that run them."""

from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

# The files below each of these run in one process, and share what they start there: a Spark session, a Kafka.
# Every other file is by itself. The order is that of their beginning, the longest first.
TOGETHER = (
    "tests/spark/kills/",
    "tests/spark/sink/",
    "tests/spark/source/",
    "tests/spark/",
    "tests/peers/",
    "tests/client/faults/",
    "tests/client/saving/",
)


def together(nodeid: str) -> str:
    path = nodeid.split("::", 1)[0]
    return next((place for place in TOGETHER if path.startswith(place)), path)


class ByWhatIsShared(LoadScopeScheduling):
    def _split_scope(self, nodeid: str) -> str:
        return together(nodeid)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByWhatIsShared:
    return ByWhatIsShared(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    def begins(item: pytest.Item) -> int:
        place = together(item.nodeid)
        return TOGETHER.index(place) if place in TOGETHER else len(TOGETHER)

    items.sort(key=begins)
