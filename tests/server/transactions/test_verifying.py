"""What a broker asks a transaction's coordinator before it appends."""

import asyncio

import pytest

from oncelog.clock import ManualClock
from oncelog.server.errors import ErrorCode
from oncelog.server.ports import NoPeers
from oncelog.server.settings_reading import read_settings
from oncelog.server.transactions.verifying import Verifying
from tests.log.memory_disk import MemoryDisk
from tests.server.transactions.house import House

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
