"""Our members and librdkafka's in one group on our server, with each assignor that both have."""

from collections.abc import Iterator
from itertools import count

import pytest

from oncelog.embedded import Server
from tests.client.groups.mixed import Theirs, are_shared, come_and_go, make_topic
from tests.client.groups.support import CONSUMER, Ours, until

_numbers = count()


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with Server(settings={"group.consumer.heartbeat.interval.ms": 100}) as server:
        yield server.bootstrap_servers


@pytest.fixture
def topic(servers: str) -> str:
    name = f"topic-{next(_numbers)}"
    make_topic(servers, name)
    return name


@pytest.mark.parametrize(
    "assignor", ["range", pytest.param("roundrobin", marks=pytest.mark.thorough), "cooperative-sticky", CONSUMER]
)
async def test_ours_and_librdkafkas_members_share_partitions_while_they_come_and_go(
    servers: str, topic: str, assignor: str
) -> None:
    await come_and_go(servers, topic, assignor)


@pytest.mark.parametrize("assignor", ["cooperative-sticky", CONSUMER])
async def test_a_cooperative_member_keeps_what_need_not_move(servers: str, topic: str, assignor: str) -> None:
    async with Ours(servers, topic, assignor) as first:
        first.group.subscribe([topic])
        await until(lambda: first.group.is_steady, [first])
        async with Theirs(servers, topic, assignor) as second:
            await until(lambda: are_shared([first], [second]), [first])
            kept = set(first.owned)
    gave = next(partitions for what, partitions in first.told if what == "revoked")
    assert len(kept) == len(gave) == 3 and not kept & set(gave)
