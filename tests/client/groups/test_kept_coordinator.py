"""Who asks a group's coordinator asks the one that is kept, and looks for another when that has moved."""

from collections.abc import AsyncIterator

import pytest

from oncelog.client.admin import groups
from oncelog.client.admin.timeouts import Timeouts
from oncelog.client.admin.values import GroupOffsets
from oncelog.client.errors import KafkaError, KafkaException
from oncelog.client.groups.commits import ToCommit, commit_to_group
from oncelog.client.net import retry
from oncelog.client.net.brokers import Brokers
from oncelog.client.register import offsets
from oncelog.client.register.offsets import OffsetsKeeper
from oncelog.client.types import TopicPartition
from tests.client.net.fake_broker import SILENT, FakeBroker

PLACE = ("t", 0)
OFFSET_COMMIT, OFFSET_FETCH = 8, 9


@pytest.fixture
async def broker() -> AsyncIterator[FakeBroker]:
    async with FakeBroker() as broker:
        broker.versions |= {OFFSET_COMMIT: (2, 8), OFFSET_FETCH: (2, 7)}
        broker.answers["find_coordinator"] = lambda asked: {
            "coordinators": [{"key": "g", "node_id": 0, "host": broker.host, "port": broker.port}],
        }
        yield broker


def moved_at_first(broker: FakeBroker, request: str) -> int:
    return KafkaError.NOT_COORDINATOR if len(broker.asked_for(request)) == 1 else 0


def commits(broker: FakeBroker) -> None:
    broker.answers["offset_commit"] = lambda asked: {
        "topics": [
            {
                "name": "t",
                "partitions": [{"partition_index": 0, "error_code": moved_at_first(broker, "offset_commit")}],
            }
        ]
    }


async def test_a_commit_finds_the_coordinator_once_and_again_when_it_has_moved(broker: FakeBroker) -> None:
    commits(broker)
    brokers = Brokers(broker.settings())
    with pytest.raises(KafkaException) as refused:
        await commit_to_group(brokers, "g", {PLACE: ToCommit(5)})
    assert refused.value.error == KafkaError.NOT_COORDINATOR
    for _ in range(2):
        assert await commit_to_group(brokers, "g", {PLACE: ToCommit(5)}) == {PLACE: 0}
    await brokers.close()
    assert len(broker.asked_for("find_coordinator")) == 2


async def test_an_admin_finds_the_coordinator_once_and_again_when_it_has_moved(broker: FakeBroker) -> None:
    commits(broker)
    brokers = Brokers(broker.settings())
    for _ in range(2):
        told = await groups.alter_group_offsets(
            brokers, GroupOffsets("g", [TopicPartition("t", 0, 5)]), Timeouts(60_000)
        )
        assert [each.error for each in told.topic_partitions or ()] == [None]
    await brokers.close()
    assert len(broker.asked_for("find_coordinator")) == 2


async def test_a_keeper_finds_the_coordinator_once_and_again_when_it_has_moved(broker: FakeBroker) -> None:
    broker.answers["offset_fetch"] = lambda asked: {"error_code": moved_at_first(broker, "offset_fetch"), "topics": []}
    brokers = Brokers(broker.settings())
    keeper = OffsetsKeeper(brokers, "g", "i")
    with pytest.raises(KafkaException) as refused:
        await keeper.held()
    assert refused.value.error == KafkaError.NOT_COORDINATOR and refused.value.error.retriable()
    for _ in range(2):
        assert await keeper.held() == []
    await brokers.close()
    assert len(broker.asked_for("find_coordinator")) == 2


async def test_a_coordinator_that_hangs_leaves_a_keeper_time_to_ask_another(
    broker: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(offsets, "ANSWER_MS", 300)
    nothing = {"error_code": 0, "topics": []}
    broker.answers["offset_fetch"] = lambda asked: SILENT if len(broker.asked_for("offset_fetch")) == 1 else nothing
    brokers = Brokers(broker.settings())
    keeper = OffsetsKeeper(brokers, "g", "i")
    assert await retry.ask(keeper.held, retry.Patience()) == []
    await brokers.close()
    assert len(broker.asked_for("find_coordinator")) >= 2


async def test_who_has_lost_the_coordinator_finds_one_for_all(broker: FakeBroker) -> None:
    brokers = Brokers(broker.settings())
    assert await brokers.coordinators.anew("g") == await brokers.coordinators.anew("g") == 0
    assert len(broker.asked_for("find_coordinator")) == 2
    assert await brokers.coordinators.node("g") == 0
    await brokers.close()
    assert len(broker.asked_for("find_coordinator")) == 2
