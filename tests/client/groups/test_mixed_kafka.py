"""Our members and librdkafka's in one group of a real Apache Kafka, with each assignor that both have, and KIP-848."""

from pathlib import Path

import pytest

from tests.client.groups.mixed import come_and_go, make_topic
from tests.client.groups.support import CONSUMER, Ours, until
from tests.peers.apache import ApacheKafka, quick_kafka

pytestmark = pytest.mark.peers
OFTEN_MS = "100"


@pytest.fixture
def servers(kafka: ApacheKafka) -> str:
    return kafka.bootstrap_servers


@pytest.mark.parametrize(
    "assignor", ["range", pytest.param("roundrobin", marks=pytest.mark.thorough), "cooperative-sticky"]
)
async def test_members_share_partitions_while_they_come_and_go(servers: str, assignor: str) -> None:
    topic = f"shared-{assignor}"
    make_topic(servers, topic)
    await come_and_go(servers, topic, assignor)


@pytest.mark.thorough
async def test_members_share_partitions_as_the_broker_has_it(tmp_path: Path) -> None:
    """`test_against_kafka.py` has one member of KIP-848 in every run."""
    often = dict.fromkeys((f"group.consumer.{least}heartbeat.interval.ms" for least in ("min.", "")), OFTEN_MS)
    with quick_kafka(tmp_path, often) as kafka:
        make_topic(kafka.bootstrap_servers, "told")
        await come_and_go(kafka.bootstrap_servers, "told", CONSUMER)
        await a_static_member_comes_back(kafka.bootstrap_servers, "static", CONSUMER)
        async with Ours(kafka.bootstrap_servers, "patterns", CONSUMER) as one:
            one.group.subscribe([], "(^t.*)|(^\\pLtatic)")
            await until(lambda: {topic for topic, _ in one.owned} == {"told", "static"}, [one])


async def test_a_static_member_keeps_its_partitions_over_a_restart(servers: str) -> None:
    await a_static_member_comes_back(servers, "static", "range")


async def a_static_member_comes_back(servers: str, topic: str, assignor: str) -> None:
    make_topic(servers, topic)
    async with Ours(servers, topic, assignor) as other:
        other.group.subscribe([topic])
        async with Ours(servers, topic, assignor, group_instance_id="one") as first:
            first.group.subscribe([topic])
            await until(lambda: len(first.owned) == len(other.owned) == 3, [first, other])
            kept, told = set(first.owned), list(other.told)
        async with Ours(servers, topic, assignor, group_instance_id="one") as again:
            again.group.subscribe([topic])
            await until(lambda: again.group.is_steady, [again, other])
            assert again.owned == kept and other.told == told
