"""Requests about groups where there are other brokers, and the topic of groups before it is made."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from oncelog.log.work_steps import Steps, at_once
from oncelog.producers import ProducerMap
from oncelog.replication.leadership import Leadership
from oncelog.server.errors import ErrorCode
from oncelog.server.groups.messages import JoinAnswer
from oncelog.server.groups.offsets import TopicPartition
from oncelog.server.groups.records import CommittedOffset
from oncelog.server.local_topics import LocalTopics
from oncelog.server.names import OFFSETS_TOPIC
from oncelog.server.topics import Topic
from oncelog.server.turns import Turns
from tests.server.groups.support import House, joined
from tests.server.groups.two_brokers import (
    ELSEWHERE,
    LOADING,
    Broker,
    Gone,
    Held,
    all_have,
    ask,
    move,
    place,
    replicated,
    two_brokers,
)

LOOK_MS = 11 * 60_000  # a little more than offsets.retention.check.interval.ms


# Requests


def fetch(broker: Broker, turns: Turns | None = None, version: int = 7) -> Any:
    topics = [SimpleNamespace(name="t", partition_indexes=[0])]
    return ask(broker, 9, version, turns, group_id="g", topics=topics)


async def test_offsets_are_told_once_they_are_safe() -> None:
    house, _, second = two_brokers()
    partition = replicated(house)
    all_have(partition)
    second.groups.elected(partition, partition.log.leader_epoch)
    asked = asyncio.ensure_future(fetch(second, Gone(lambda: second.commit(6))))
    for _ in range(20):
        await asyncio.sleep(0)
    assert not asked.done()
    all_have(partition)
    answer = await asked
    assert (answer.error_code, answer.topics[0].partitions[0].committed_offset) == (ErrorCode.none, 6)


@pytest.mark.parametrize("comes_back", [False, True])
@pytest.mark.parametrize("version", [1, 7])
@pytest.mark.parametrize("turn", [2, 3, 4])
async def test_offsets_of_a_group_that_goes_while_they_are_read_are_not_told(
    turn: int, comes_back: bool, version: int
) -> None:
    """Who is told that there are none begins anew."""
    house, first, second = two_brokers()

    def goes() -> None:
        move(house, second, first)
        if comes_back:
            move(house, first, second)

    answer = await fetch(first, Gone(goes, turn), version)
    if version == 1:
        assert [each.error_code for each in answer.topics[0].partitions] == [ELSEWHERE]
    else:
        assert (answer.error_code, answer.topics) == (ELSEWHERE, ())


async def test_groups_are_described_and_listed_by_their_coordinator() -> None:
    held = Held()
    house, first, second = two_brokers(in_turns=held)
    held.finish()
    move(house, second, first)
    for broker, error in ((first, ELSEWHERE), (second, LOADING)):
        (described,) = (await ask(broker, 15, 6, groups=["g"])).groups
        assert described.error_code is error
    assert (await ask(first, 16, 4)).groups == ()
    assert (await ask(second, 16, 4)).error_code is LOADING
    held.finish()
    (described,) = (await ask(second, 15, 6, groups=["g"])).groups
    assert (described.error_code, described.group_state) == (ErrorCode.none, "Empty")
    listing = await ask(second, 16, 4)
    assert (listing.error_code, [each.group_id for each in listing.groups]) == (ErrorCode.none, ["g"])


async def test_the_coordinator_is_the_broker_that_leads_the_partition_of_the_group() -> None:
    house, first, _ = two_brokers()

    async def found() -> tuple[object, ...]:
        answer = await ask(first, 10, 3, key="g", key_type=0)
        return answer.error_code, answer.node_id, answer.host, answer.port

    assert await found() == (ErrorCode.none, 1, "one", 9092)
    place(house).leadership = Leadership((2, 1, 3), 2, 7, (2, 1))
    assert await found() == (ErrorCode.none, 2, "two", 9093)
    for leader in (3, -1):  # one that is not up, and nobody
        place(house).leadership = Leadership((2, 1, 3), leader, 8, (2, 1))
        assert await found() == (ErrorCode.coordinator_not_available, -1, "", -1)


# Before there is a topic


class SharedTopics(LocalTopics):
    """Those of one broker among others."""

    asked_copies: int | None = None

    @property
    def is_replicated(self) -> bool:
        return True

    def creating(self, *values: Any, replication: int = -1, **more: Any) -> Steps[Topic]:
        self.asked_copies = replication
        topic = yield from super().creating(*values, **more)
        for each in topic.partitions:
            each.leads = False  # until somebody is elected
        return topic


def among_others(*given: str, **how: Any) -> tuple[House, SharedTopics, Broker]:
    house = House("offsets.topic.num.partitions=1", "group.initial.rebalance.delay.ms=0", *given)
    house.groups.stop()
    topics = SharedTopics(house.settings, house.disk, ProducerMap, house.clock.now())
    house.topics = topics

    async def run(steps: Steps[Topic]) -> Topic:
        return at_once(steps)

    return house, topics, Broker(house, run=run, **how)


async def test_among_brokers_nobody_coordinates_a_group_before_its_topic_is_made() -> None:
    house, topics, broker = among_others()
    house.make_topic("t")
    assert broker.commit(5) is ELSEWHERE
    assert broker.offset() is ELSEWHERE
    assert isinstance(answer := broker.join(), JoinAnswer)
    assert answer.error is ELSEWHERE
    now = house.clock.now()
    committed = {TopicPartition("t", 0): CommittedOffset(5, -1, "", now.wall_ms)}
    assert broker.groups.commit("g", committed, now) is ELSEWHERE
    assert broker.groups.making_place(now) is None
    await asyncio.sleep(0)
    assert topics.get(OFFSETS_TOPIC) is None


async def test_among_brokers_the_topic_is_made_for_whoever_looks_for_a_coordinator() -> None:
    house, topics, broker = among_others(broker_count=lambda: 2)
    house.make_topic("t")
    for _ in range(2):
        answer = await ask(broker, 10, 3, key="g", key_type=0)
        assert answer.error_code is ErrorCode.coordinator_not_available
        await asyncio.sleep(0)
    partition = place(house)
    assert topics.asked_copies == 2, "of three, as there are no more brokers"
    assert broker.commit(5) is ELSEWHERE
    partition.leadership = Leadership((1, 2), 1, partition.log.leader_epoch, (1, 2))
    partition.leads = True
    broker.groups.elected(partition, partition.log.leader_epoch)
    assert (await ask(broker, 10, 3, key="g", key_type=0)).node_id == 1
    assert broker.commit(5) is ErrorCode.none


async def test_among_brokers_offsets_of_a_topic_that_is_not_known_yet_stay() -> None:
    """Who was elected may hear of a topic later than of the commits for it."""
    house, _, broker = among_others()
    house.make_topic("t")
    await ask(broker, 10, 3, key="g", key_type=0)
    await asyncio.sleep(0)
    partition = place(house)
    partition.leads = True
    broker.groups.elected(partition, partition.log.leader_epoch)
    assert broker.commit(5) is ErrorCode.none
    house.delete_topic("t")
    house.timers.advance(LOOK_MS)
    assert broker.offset() == 5
    house.timers.advance(LOOK_MS)
    assert broker.offset() is None


async def test_offsets_of_a_topic_that_was_deleted_while_they_were_read_go_at_the_next_look() -> None:
    held = Held()
    house, first, second = two_brokers(in_turns=held)
    held.finish()
    move(house, second, first)
    held.step()
    house.delete_topic("t")
    at_once(second.groups.forgetting("t", house.clock.now()))
    held.finish()
    assert second.offset() == 5
    house.timers.advance(LOOK_MS)
    held.finish()
    assert second.offset() is None


async def test_a_single_server_makes_one_copy() -> None:
    house = House()
    assert house.settings.offsets_topic_replication_factor == 3
    await joined(house)
    house.make_topic("t")
    assert house.commit("g2", "t", 5) is ErrorCode.none
    assert place(house).leadership is None
