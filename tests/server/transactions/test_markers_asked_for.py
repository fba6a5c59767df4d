"""WriteTxnMarkers of somebody who hangs up."""

import asyncio
import contextlib
from types import SimpleNamespace
from typing import Any

from oncelog.clock import ManualClock
from oncelog.server.api import apis
from oncelog.server.call import Call
from oncelog.server.memory import Memory
from oncelog.server.names import OFFSETS_TOPIC
from oncelog.server.turns import Turns
from tests.log.memory_disk import MemoryDisk
from tests.server.transactions.house import FIRST_PID, House

NAME, TOPIC, GROUPS = "copier", "t", ("one", "two", "three")


async def test_what_a_marker_ends_is_ended_whole_though_who_asked_for_it_hangs_up() -> None:
    """Else offsets of the transaction would wait for the next end of the same producer, and count with that one."""
    house = House(MemoryDisk(1), ManualClock(), FIRST_PID, "offsets.topic.num.partitions=1")
    house.topics.create(TOPIC, 1, {}, house.clock.now())
    who = house.init(NAME)
    for group in GROUPS:
        house.commit_offset(NAME, who, group, TOPIC, 5)
    turns = Turns(lambda: 0)
    broker: Any = SimpleNamespace(markers=house.markers, memory=Memory(-1), turns=turns)
    call = Call(broker, "write_txn_markers", 1, "test", "127.0.0.1", "PLAINTEXT", house.clock.now())
    marker = SimpleNamespace(
        producer_id=who.pid,
        producer_epoch=who.epoch,
        coordinator_epoch=0,
        transaction_result=True,
        topics=[SimpleNamespace(name=OFFSETS_TOPIC, partition_indexes=[0])],
    )
    handle = next(each.handle for each in apis().values() if each.name == "write_txn_markers")
    assert handle is not None
    house.pause_is_long = asyncio.Event()
    asked = asyncio.ensure_future(handle(SimpleNamespace(markers=[marker]), call))
    while not house.pauses:
        await asyncio.sleep(0)
    asked.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await asked
    house.pause_is_long.set()
    async with asyncio.timeout(20):
        while [house.offset(group, TOPIC) for group in GROUPS] != [5, 5, 5]:
            await asyncio.sleep(0)
    house.stop()
