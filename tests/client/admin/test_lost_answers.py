"""Asking again: how long, about what, and what a refusal means after a try whose answer was lost."""

import asyncio
from typing import Any

import pytest

from oncelog.client.admin import GroupOffsets, groups, topics
from oncelog.client.admin.timeouts import Timeouts
from oncelog.client.errors import KafkaError, KafkaException, exception_of
from oncelog.client.net.brokers import Brokers
from oncelog.client.types import NewTopic, TopicPartition
from tests.client.net.fake_broker import CLOSE, SILENT, FakeBroker

MS = 20_000
LONG_S = 5
CREATE, DELETE, COORDINATOR, COMMIT = 19, 20, 10, 8
EXISTS, UNKNOWN = KafkaError.TOPIC_ALREADY_EXISTS, KafkaError.UNKNOWN_TOPIC_OR_PART


async def for_ever(*_: object) -> Any:
    await asyncio.Event().wait()


async def test_a_try_that_hangs_ends_with_the_patience() -> None:
    async with asyncio.timeout(LONG_S):
        outcomes = await Timeouts(50).ask(["a"], for_ever)
    assert outcomes["a"].error == KafkaError._TIMED_OUT


async def test_who_answers_is_heard_though_another_does_not() -> None:
    timeouts = Timeouts(50)

    async def ask_node(node_id: int, keys: list[str]) -> dict[str, Any]:
        return dict.fromkeys(keys, "heard") if node_id == 1 else await for_ever()

    async with asyncio.timeout(LONG_S):
        outcomes = await timeouts.ask(["a", "b"], lambda left: timeouts.ask_nodes({1: ["a"], 2: ["b"]}, ask_node))
    assert outcomes["a"] == "heard"
    assert outcomes["b"].error == KafkaError._TIMED_OUT


@pytest.mark.parametrize("first", [KafkaError._TRANSPORT, KafkaError.REQUEST_TIMED_OUT, None])
async def test_what_a_lost_try_may_have_done_counts_as_done(first: int | None) -> None:
    tries = iter([{} if first is None else {"a": exception_of(first)}, {"a": exception_of(EXISTS)}])

    async def once(left: list[str]) -> dict[str, Any]:
        return next(tries)

    assert await Timeouts(MS).ask(["a"], once, done_already=EXISTS) == {"a": None}


@pytest.mark.parametrize("first", [None, KafkaError.NOT_CONTROLLER])
async def test_without_a_lost_try_it_is_a_refusal(first: int | None) -> None:
    tries = iter([exception_of(code) for code in (first, EXISTS) if code is not None])

    async def once(left: list[str]) -> dict[str, Any]:
        return {"a": next(tries)}

    assert (await Timeouts(MS).ask(["a"], once, done_already=EXISTS))["a"].error == EXISTS


def losing_the_first_answer(broker: FakeBroker, name: str, then: Any) -> None:
    broker.answers[name] = lambda asked: CLOSE if len(broker.asked_for(name)) == 1 else then


@pytest.mark.parametrize("validate_only", [False, True])
async def test_a_topic_made_by_a_try_whose_answer_was_lost_is_made(validate_only: bool) -> None:
    async with FakeBroker() as broker:
        broker.versions[CREATE] = (2, 5)
        losing_the_first_answer(broker, "create_topics", {"topics": [{"name": "t", "error_code": EXISTS}]})
        brokers = Brokers(broker.settings())
        outcomes = await topics.create_topics(brokers, [NewTopic("t")], Timeouts(MS), validate_only=validate_only)
        await brokers.close()
    assert (outcomes["t"] is None) == (not validate_only)


async def test_a_topic_removed_by_a_try_whose_answer_was_lost_is_removed() -> None:
    async with FakeBroker() as broker:
        broker.versions[DELETE] = (1, 5)
        losing_the_first_answer(broker, "delete_topics", {"responses": [{"name": "t", "error_code": UNKNOWN}]})
        brokers = Brokers(broker.settings())
        assert await topics.delete_topics(brokers, ["t"], Timeouts(MS)) == {"t": None}
        await brokers.close()


@pytest.mark.parametrize("version", [2, 8])
async def test_a_partition_that_the_answer_leaves_out_does_not_seem_committed(version: int) -> None:
    async with FakeBroker() as broker:
        broker.versions[COMMIT] = (2, version)
        broker.answers["find_coordinator"] = lambda asked: {
            "coordinators": [{"key": "g", "node_id": 0, "host": broker.host, "port": broker.port}],
        }
        broker.answers["offset_commit"] = lambda asked: {
            "topics": [{"name": "t", "partitions": [{"partition_index": 0}]}]
        }
        brokers = Brokers(broker.settings())
        wanted = GroupOffsets("g", [TopicPartition("t", 0, 5), TopicPartition("t", 1, 6)])
        told = await groups.alter_group_offsets(brokers, wanted, Timeouts(MS))
        await brokers.close()
    errors = [(each.partition, each.error) for each in told.topic_partitions or ()]
    assert errors == [(0, None), (1, KafkaError._BAD_MSG)]


async def test_groups_are_not_waited_for_longer_than_asked() -> None:
    async with FakeBroker() as broker:
        broker.answers["metadata"] = lambda asked: SILENT
        brokers = Brokers(broker.settings())
        with pytest.raises(KafkaException) as failed:
            async with asyncio.timeout(LONG_S):
                await groups.list_groups(brokers, Timeouts(50))
        assert failed.value.error == KafkaError._TIMED_OUT
        await brokers.close()
