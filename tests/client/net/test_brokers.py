"""All brokers of a cluster: found, followed where they go, asked again, and let go of without a trace."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from oncelog.client.errors import KafkaError, KafkaException
from oncelog.client.net.brokers import Brokers
from oncelog.client.net.connection import Endpoint
from tests.client.net.fake_broker import CLOSE, SILENT, Asked, FakeBroker

Make = Callable[..., Brokers]


@pytest.fixture
async def make(broker: FakeBroker) -> AsyncIterator[Make]:
    made: list[Brokers] = []

    def of(**more: Any) -> Brokers:
        fast = {"reconnect_backoff_ms": 1, "reconnect_backoff_max_ms": 5, "retry_backoff_ms": 1}
        brokers = Brokers(broker.settings(**{**fast, **more}), on_error=errors.append)
        made.append(brokers)
        return brokers

    errors: list[KafkaError] = []
    of.errors = errors  # type: ignore[attr-defined]
    yield of
    for brokers in made:
        await brokers.close()


async def error_of(coroutine: Any) -> KafkaError:
    with pytest.raises(KafkaException) as caught:
        await coroutine
    return caught.value.error


def addresses(*brokers: FakeBroker) -> str:
    return ",".join(f"{each.host}:{each.port}" for each in brokers)


async def test_a_cluster_is_found_by_any_of_the_addresses_given(broker: FakeBroker, make: Make) -> None:
    async with FakeBroker() as gone:
        dead = [(gone.host, gone.port)]
    given = ",".join([f"{host}:{port}" for host, port in dead] + [addresses(broker)])
    for _ in range(5):  # they are tried in a random order
        known = await make(bootstrap_servers=given).refresh(["t"])
        assert known.leader("t", 0) == (0, 1)


async def test_a_cluster_of_which_nobody_answers(broker: FakeBroker, make: Make) -> None:
    await broker.stop()
    error = await error_of(make().refresh())
    assert error == KafkaError._ALL_BROKERS_DOWN
    assert error.retriable()
    assert f"`bootstrap.servers` is 127.0.0.1:{broker.port}" in error.str()
    told = [each.code() for each in make.errors]  # type: ignore[attr-defined]
    assert told == [KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN]


async def test_start_does_not_wait_for_the_network(broker: FakeBroker, make: Make) -> None:
    await broker.stop()
    await make().start()


async def test_who_asks_for_the_same_at_the_same_time_shares_one_question(broker: FakeBroker, make: Make) -> None:
    brokers = make()
    await asyncio.gather(*(brokers.refresh(["t"]) for _ in range(50)))
    assert len(broker.asked_for("metadata")) == 1
    assert broker.connected_count == 1


async def test_who_gives_up_waiting_does_not_end_it_for_others(broker: FakeBroker, make: Make) -> None:
    brokers = make()
    may_answer = asyncio.Event()

    async def answer(asked: Asked) -> Any:
        await may_answer.wait()
        return broker.metadata_of(["t"])

    broker.answers["metadata"] = answer
    impatient, patient = (asyncio.create_task(brokers.refresh(["t"])) for _ in range(2))
    await broker.until(lambda: bool(broker.asked_for("metadata")))
    impatient.cancel()
    await asyncio.gather(impatient, return_exceptions=True)
    may_answer.set()
    assert (await patient).leader("t", 0) == (0, 1)
    assert impatient.cancelled()


async def test_a_topic_that_is_being_made_is_asked_for_until_it_is_there(broker: FakeBroker, make: Make) -> None:
    def answer(asked: Asked) -> Any:
        if len(broker.asked_for("metadata")) < 3:
            return {**broker.metadata_of([]), "topics": [{"name": "t", "error_code": 5}]}
        return broker.metadata_of(["t"])

    broker.answers["metadata"] = answer
    assert (await make().refresh(["t"])).leader("t", 0) == (0, 1)


async def test_an_unknown_topic_is_asked_for_once_unless_asking_makes_it(broker: FakeBroker, make: Make) -> None:
    broker.answers["metadata"] = lambda asked: {
        **broker.metadata_of([]),
        "topics": [{"name": "t", "error_code": 3}],
    }
    known = await make().refresh(["t"])
    assert (known.topics["t"].error_code, len(broker.asked_for("metadata"))) == (3, 1)
    await make(allow_auto_create_topics=True).refresh(["t"])
    assert len(broker.asked_for("metadata")) > 2


async def test_a_connection_that_breaks_while_metadata_is_asked_for_is_replaced(broker: FakeBroker, make: Make) -> None:
    broker.answers["metadata"] = lambda asked: (
        CLOSE if len(broker.asked_for("metadata")) == 1 else broker.metadata_of(["t"])
    )
    assert (await make().refresh(["t"])).leader("t", 0) == (0, 1)


async def test_what_is_asked_for_matches_all_some_or_no_topics(broker: FakeBroker, make: Make) -> None:
    brokers = make()
    for topics in (None, [], ["a"]):
        await brokers.refresh(topics)
    asked = [each.request.topics for each in broker.asked_for("metadata")]
    assert [None if topics is None else [each.name for each in topics] for topics in asked] == [None, [], ["a"]]


async def test_the_bootstrap_connection_becomes_the_brokers_own(broker: FakeBroker, make: Make) -> None:
    brokers = make()
    await brokers.refresh([])
    assert (await brokers.connection(0)).node_id == 0
    assert broker.connected_count == 1


async def test_each_broker_and_each_purpose_has_a_connection_of_its_own(broker: FakeBroker, make: Make) -> None:
    async with FakeBroker(1) as other:
        broker.neighbours.append(other)
        brokers = make()
        both = [await brokers.connection(0), await brokers.connection(1)]
        assert [each.node_id for each in both] == [0, 1]
        assert await brokers.connection(1) is both[1]
        assert await brokers.connection(1, "coordinator") is not both[1]
        await brokers.close()


async def test_a_broker_that_is_not_part_of_the_cluster(broker: FakeBroker, make: Make) -> None:
    error = await error_of(make().connection(7))
    assert error == KafkaError._UNKNOWN_BROKER
    assert "known: [0]" in error.str()


async def test_a_broker_is_followed_to_its_new_address(broker: FakeBroker, make: Make) -> None:
    async with FakeBroker(1) as old, FakeBroker(1) as new:
        broker.neighbours.append(old)
        brokers = make()
        before = await brokers.connection(1)
        broker.neighbours[1] = new
        await brokers.refresh([])
        assert before.is_closed
        assert (await brokers.connection(1)).endpoint.port == new.port
        await brokers.close()


async def test_a_broker_that_has_left_is_not_remembered_as_failing(broker: FakeBroker, make: Make) -> None:
    async with FakeBroker(1) as leaving:
        broker.neighbours.append(leaving)
        brokers = make()
        await brokers.refresh([])
    error = await error_of(brokers.connection(1))
    assert error == KafkaError._TRANSPORT
    left = Endpoint(leaving.host, leaving.port, 1)
    assert brokers.pool.failures(left) == 1
    broker.neighbours.pop()
    await brokers.refresh([])
    assert brokers.pool.failures(left) == 0


async def test_when_all_known_brokers_are_gone_the_given_addresses_are_tried_again(
    broker: FakeBroker, make: Make
) -> None:
    """The cluster moved to other machines; the name that the user gave leads to them (KIP-899)."""
    async with FakeBroker(1) as moved:
        broker.neighbours = [moved]
        brokers = make()
        await brokers.refresh([])
        assert set(brokers.metadata.brokers) == {1}
        await brokers.connection(1)
        broker.neighbours = [broker]
        broker.cut()
        await moved.stop()
        await broker.until(lambda: not broker.writers)
        while set((await brokers.refresh([])).brokers) != {0}:
            await asyncio.sleep(0)


async def test_without_rebootstrap_the_given_addresses_are_not_tried_again(broker: FakeBroker, make: Make) -> None:
    async with FakeBroker(1) as moved:
        broker.neighbours = [moved]
        brokers = make(metadata_recovery_strategy="none")
        await brokers.refresh([])
    broker.cut()
    await broker.until(lambda: not broker.writers)
    before = broker.connected_count
    assert await error_of(brokers.refresh([])) == KafkaError._ALL_BROKERS_DOWN
    assert broker.connected_count == before


async def test_a_broker_may_ask_for_a_new_bootstrap(broker: FakeBroker, make: Make) -> None:
    async with FakeBroker(1) as old:
        broker.neighbours = [old]
        old.answers["metadata"] = lambda asked: {"error_code": 129}
        brokers = make()
        await brokers.refresh([])
        await brokers.connection(1)
        broker.cut()
        broker.neighbours = [broker]
        assert set((await brokers.refresh([])).brokers) == {0}
        await brokers.close()


async def test_leaders_named_by_other_answers_are_known_without_asking(broker: FakeBroker, make: Make) -> None:
    brokers = make()
    await brokers.refresh(["t"])
    brokers.learn([("t", 0, 0, 9)])
    assert brokers.metadata.leader("t", 0) == (0, 9)


async def test_a_coordinator_is_asked_for_until_it_is_there(broker: FakeBroker, make: Make) -> None:
    def answer(asked: Asked) -> Any:
        code = 15 if len(broker.asked_for("find_coordinator")) < 3 else 0
        return {
            "coordinators": [{"key": "g", "node_id": 5, "host": "127.0.0.1", "port": broker.port, "error_code": code}]
        }

    broker.answers["find_coordinator"] = answer
    brokers = make()
    assert await brokers.coordinator("g") == 5
    assert (await brokers.connection(5, "group")).endpoint.port == broker.port


async def test_a_group_that_may_not_be_seen_is_an_error_at_once(broker: FakeBroker, make: Make) -> None:
    broker.answers["find_coordinator"] = lambda asked: {
        "coordinators": [{"key": "g", "error_code": 30, "error_message": "not you"}]
    }
    error = await error_of(make().coordinator("g"))
    assert error == KafkaError.GROUP_AUTHORIZATION_FAILED
    assert "not you" in error.str()
    assert len(broker.asked_for("find_coordinator")) == 1


async def test_the_controller_is_known(broker: FakeBroker, make: Make) -> None:
    assert await make().controller() == 0


async def test_topics_of_interest_are_asked_for_now_and_then(broker: FakeBroker, make: Make) -> None:
    brokers = make(topic_metadata_refresh_interval_ms=10)
    await brokers.start()
    await brokers.refresh(["t"])
    await brokers.refresh(["u"])

    def asked_for_both() -> bool:
        last = broker.asked_for("metadata")[-1].request.topics or ()
        return [topic.name for topic in last] == ["t", "u"]

    await broker.until(asked_for_both)


async def test_a_connection_that_carries_nothing_is_closed_when_asked_so(broker: FakeBroker, make: Make) -> None:
    brokers = make(connections_max_idle_ms=40)
    await brokers.start()
    await brokers.refresh([])
    await broker.until(lambda: not broker.writers)
    await brokers.refresh([])


async def test_a_connection_is_opened_again_after_a_loss(broker: FakeBroker, make: Make) -> None:
    brokers = make()
    first = await brokers.connection(0)
    broker.cut()
    await first.gone
    assert not (await brokers.connection(0)).is_closed


async def test_attempts_at_a_broker_that_is_down_wait_longer_and_longer(broker: FakeBroker) -> None:
    await broker.stop()
    brokers = Brokers(broker.settings(reconnect_backoff_ms=20, reconnect_backoff_max_ms=40), random=lambda: 1 / 3)
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    for _ in range(4):
        await error_of(brokers.refresh([]))
    assert loop.time() - began_s >= 0.020 + 0.040 + 0.040 - 0.005
    await brokers.close()


async def test_a_wrong_setting_is_told_when_the_client_is_made(broker: FakeBroker) -> None:
    with pytest.raises(KafkaException, match=r"`ssl.ca.location`: there is no file /nowhere"):
        Brokers(broker.settings(security_protocol="ssl", ssl_ca_location="/nowhere"))


async def test_close_ends_everything_and_tells_everyone_who_waits(broker: FakeBroker, make: Make) -> None:
    others = asyncio.all_tasks()
    brokers = make(connections_max_idle_ms=10_000)
    await brokers.start()
    await brokers.refresh([])
    broker.answers["metadata"] = lambda asked: SILENT
    answers = asyncio.gather(error_of(brokers.refresh(["t"])), error_of(brokers.refresh(["t"])))
    await broker.until(lambda: len(broker.asked_for("metadata")) == 2)
    await brokers.close()
    assert list(await answers) == [KafkaError._DESTROY] * 2
    await broker.until(lambda: not broker.writers)
    left = asyncio.all_tasks() - others
    assert [task for task in left if "net/fake_broker" not in repr(task)] == []
    assert await error_of(brokers.refresh([])) == KafkaError._DESTROY


async def test_close_ends_attempts_that_are_under_way(broker: FakeBroker, make: Make) -> None:
    broker.answers["api_versions"] = lambda asked: SILENT
    brokers = make()
    waiting = asyncio.create_task(error_of(brokers.connection(None)))
    await broker.until(lambda: bool(broker.asked))
    await brokers.close()
    assert await waiting == KafkaError._DESTROY
    await broker.until(lambda: not broker.writers)
