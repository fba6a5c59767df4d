"""A transaction that several processes share asks the coordinator that it knows, and another one when it is told so."""

import asyncio
from typing import Any

import pytest

from oncelog.client.errors import KafkaError, KafkaException, exception_of
from oncelog.client.net.brokers import Brokers
from oncelog.client.net.coordinators import MOST_KEPT, Coordinators
from oncelog.client.net.transaction import Transaction, TransactionName, begin_transaction
from oncelog.client.properties import producer_settings
from oncelog.slots import Identity, Place
from tests.client.net.fake_broker import CLOSE, SILENT, Asked, FakeBroker

PATIENCE_S = 20.0
ADD, END = 24, 26


@pytest.mark.parametrize(
    ("first", "lookups"),
    [
        (0, 1),
        (KafkaError.CONCURRENT_TRANSACTIONS, 1),
        (KafkaError.NOT_COORDINATOR, 2),
        (KafkaError.COORDINATOR_LOAD_IN_PROGRESS, 1),
        (CLOSE, 2),
    ],
)
async def test_the_coordinator_is_kept_until_it_moves_or_is_lost(broker: FakeBroker, first: Any, lookups: int) -> None:
    broker.versions |= {ADD: (0, 3), END: (0, 4)}
    found = {"node_id": 0, "host": broker.host, "port": broker.port}
    broker.answers["find_coordinator"] = lambda asked: {"coordinators": [{"key": "t", **found}]}
    broker.answers["init_producer_id"] = lambda asked: {"producer_id": 7, "producer_epoch": 1}

    def added(asked: Asked) -> Any:
        is_first = len(broker.asked_for("add_partitions_to_txn")) == 1
        if is_first and first is CLOSE:
            return CLOSE
        partition = {"partition_index": 0, "partition_error_code": first if is_first else 0}
        return {"results_by_topic_v3_and_below": [{"name": "a", "results_by_partition": [partition]}]}

    broker.answers |= {"add_partitions_to_txn": added, "end_txn": lambda asked: {}}
    brokers = Brokers(producer_settings({"bootstrap.servers": f"{broker.host}:{broker.port}"}))
    await brokers.start()
    try:
        for _ in range(2):
            name = await begin_transaction(brokers, "t", 60_000, PATIENCE_S)
            transaction = Transaction(brokers, name, PATIENCE_S)
            await transaction.add([Place("a", 0)])
            await transaction.add([Place("a", 1)])
            await transaction.end(commits=True)
    finally:
        await brokers.close()
    assert len(broker.asked_for("find_coordinator")) == lookups
    assert len(broker.asked_for("end_txn")) == 2


async def test_the_next_write_does_not_ask_a_silent_coordinator_again(broker: FakeBroker) -> None:
    broker.versions |= {ADD: (0, 3)}
    found = {"node_id": 0, "host": broker.host, "port": broker.port}
    broker.answers["find_coordinator"] = lambda asked: {"coordinators": [{"key": "t", **found}]}
    broker.answers["add_partitions_to_txn"] = lambda asked: SILENT
    brokers = Brokers(producer_settings({"bootstrap.servers": f"{broker.host}:{broker.port}"}))
    finding, looked_up = brokers.coordinator, list[str]()

    async def find(key: str, kind: int = 0) -> int:
        """Over the connection that was silent nothing else can be asked."""
        looked_up.append(key)
        return await finding(key, kind) if len(looked_up) == 1 else 0

    brokers.coordinator = find  # type: ignore[method-assign]
    await brokers.start()
    try:
        transaction = Transaction(brokers, TransactionName("t", Identity(7, 1)), PATIENCE_S)
        for lookups in (["t"], ["t", "t"]):
            broker.asked.clear()
            adding = asyncio.create_task(transaction.add([Place("a", 0)]))
            await broker.until(lambda: bool(broker.asked_for("add_partitions_to_txn")))
            adding.cancel()
            await asyncio.wait([adding])
            assert looked_up == lookups
    finally:
        await brokers.close()


async def test_a_coordinator_is_forgotten_by_who_gives_up_before_it_answers() -> None:
    found = iter(range(9))

    async def find(key: str, kind: int) -> int:
        return next(found)

    coordinators = Coordinators(find)
    for expected in (0, 1):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0), coordinators.at("a") as node_id:
                assert node_id == expected
                await asyncio.Event().wait()
    for code, after in ((KafkaError.COORDINATOR_LOAD_IN_PROGRESS, 2), (KafkaError.NETWORK_EXCEPTION, 3)):
        with pytest.raises(KafkaException):
            async with coordinators.at("a") as node_id:
                assert node_id == 2
                raise exception_of(code)
        assert await coordinators.node("a") == after


async def test_coordinators_are_not_kept_without_end() -> None:
    asked: list[tuple[str, int]] = []

    async def find(key: str, kind: int) -> int:
        asked.append((key, kind))
        return len(asked)

    coordinators = Coordinators(find)
    assert [await coordinators.node("a"), await coordinators.node("a", 1), await coordinators.node("a")] == [1, 2, 1]
    for number in range(MOST_KEPT):
        await coordinators.node(str(number))
    assert await coordinators.node("a") == MOST_KEPT + 3
