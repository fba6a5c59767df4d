"""Our members and librdkafka's in one group of a real Apache Kafka, with each assignor that both have."""

import pytest

from tests.client.groups.mixed import come_and_go, make_topic
from tests.client.groups.support import Ours, until
from tests.peers.apache import ApacheKafka

pytestmark = pytest.mark.peers


@pytest.fixture
def servers(kafka: ApacheKafka) -> str:
    return kafka.bootstrap_servers


@pytest.mark.parametrize("assignor", ["range", "roundrobin", "cooperative-sticky"])
async def test_members_share_partitions_while_they_come_and_go(servers: str, assignor: str) -> None:
    topic = f"shared-{assignor}"
    make_topic(servers, topic)
    await come_and_go(servers, topic, assignor)


async def test_a_static_member_keeps_its_partitions_over_a_restart(servers: str) -> None:
    make_topic(servers, "static")
    async with Ours(servers, "static", "range") as other:
        other.group.subscribe(["static"])
        async with Ours(servers, "static", "range", group_instance_id="one") as first:
            first.group.subscribe(["static"])
            await until(lambda: len(first.owned) == len(other.owned) == 3, [first, other])
            kept, told = set(first.owned), list(other.told)
        async with Ours(servers, "static", "range", group_instance_id="one") as again:
            again.group.subscribe(["static"])
            await until(lambda: again.group.is_settled, [again, other])
            assert again.owned == kept and other.told == told
