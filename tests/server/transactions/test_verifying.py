"""What a broker asks a transaction's coordinator before it appends."""

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from oncelog.clock import ManualClock
from oncelog.server.errors import ErrorCode
from oncelog.server.ports import NoPeers
from oncelog.server.produce_transactions import ADDS, Verification, Wanted
from oncelog.server.settings_reading import read_settings
from oncelog.server.topics import Partition
from oncelog.server.transactions.verifying import Verifying
from tests.log.memory_disk import MemoryDisk
from tests.server.transactions.house import FIRST_PID, House

AT = ("t", 0)


@pytest.mark.parametrize("is_over_in_time", [True, False])
async def test_the_next_transaction_waits_a_little_for_the_end_of_the_one_before(is_over_in_time: bool) -> None:
    house = House(MemoryDisk(1), ManualClock())
    house.topics.create("t", 1, {}, house.clock.now())
    most_ms = 60_000 if is_over_in_time else 3
    settings = read_settings(
        [
            "log.dir=/data",
            "add.partitions.to.txn.retry.backoff.ms=1",
            f"add.partitions.to.txn.retry.backoff.max.ms={most_ms}",
        ]
    )
    verifying = Verifying(house.transactions, NoPeers, settings)
    who = house.init("id")
    assert (await verifying.ask("id", who.pid, who.epoch, [AT], adds=True))[AT] is ErrorCode.none
    house.pause_is_long = asyncio.Event()  # so its marker is not written yet
    ended = house.end("id", who, is_commit=True, raises=True)
    asked = asyncio.create_task(verifying.ask("id", ended.pid, ended.epoch, [AT], adds=True))
    await asyncio.sleep(0)
    if is_over_in_time:
        house.pause_is_long.set()
    found = (await asked)[AT]
    assert found is (ErrorCode.none if is_over_in_time else ErrorCode.concurrent_transactions)
    house.stop()


class Elsewhere:
    """The coordinator is another broker, which knows the transaction; something happens before its answer is here."""

    def __init__(self, house: House, meanwhile: Callable[[Partition], None]) -> None:
        self.partition = house.partition(*AT)
        self._meanwhile = meanwhile
        coordinator = SimpleNamespace(
            partition_of=lambda _: SimpleNamespace(leads=False, leadership=SimpleNamespace(leader=7))
        )
        settings = read_settings(["log.dir=/data"])
        self.verifying = Verifying(coordinator, lambda: self, settings)  # type: ignore[arg-type]

    async def ask(self, *_: Any) -> Any:
        self._meanwhile(self.partition)
        place = SimpleNamespace(partition_index=AT[1], partition_error_code=0)
        topic = SimpleNamespace(name=AT[0], results_by_partition=[place])
        return SimpleNamespace(error_code=0, results_by_transaction=[SimpleNamespace(topic_results=[topic])])


def no_end(partition: Partition) -> None:
    """Nothing has happened."""


def end(partition: Partition) -> None:
    now = ManualClock().now()
    partition.log.end_transaction(FIRST_PID, 0, 0, now, is_commit=False, raises_epoch=False)


@pytest.mark.parametrize(
    ("version", "meanwhile", "may_write"),
    [(ADDS - 1, no_end, True), (ADDS - 1, end, False), (ADDS, no_end, True), (ADDS, end, True)],
    ids=["first", "ended", "adds", "adds when the one before has ended"],
)
async def test_an_answer_from_before_the_end_of_a_transaction_says_nothing_of_what_comes_after_it(
    version: int, meanwhile: Callable[[Partition], None], may_write: bool
) -> None:
    house = House(MemoryDisk(1), ManualClock())
    house.topics.create("t", 1, {}, house.clock.now())
    there = Elsewhere(house, meanwhile)
    wanted = [Wanted(there.partition, FIRST_PID, 0)]
    await Verification(there, bytearray(), "id", version, wanted).run()  # type: ignore[arg-type]
    assert there.partition.log.producers.may_write_in_transaction(FIRST_PID, 0) is may_write
    adds, expected = version >= ADDS, ErrorCode.none if may_write else ErrorCode.invalid_txn_state
    for_groups = await there.verifying.ask_for_groups(there.partition, "id", FIRST_PID, 0, adds=adds)
    assert for_groups is expected
    house.stop()
