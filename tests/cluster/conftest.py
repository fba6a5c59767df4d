"""Three brokers in this process, for the tests of a cluster."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.cluster.brokers import Brokers, three


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Brokers]:
    async with three(tmp_path) as found:
        yield found
