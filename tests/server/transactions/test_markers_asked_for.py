"""WriteTxnMarkers: each marker is settled for itself, and also where whoever asked for it has hung up."""

import asyncio
import contextlib
from types import SimpleNamespace
from typing import Any, Self

from oncelog.clock import ManualClock
from oncelog.server.api import apis
from oncelog.server.call import Call
from oncelog.server.coordinator_topic import InTransaction
from oncelog.server.errors import ErrorCode
from oncelog.server.groups.offsets import TopicPartition
from oncelog.server.groups.records import CommittedOffset
from oncelog.server.memory import Memory
from oncelog.server.names import OFFSETS_TOPIC
from oncelog.server.turns import Turns
from tests.log.memory_disk import MemoryDisk
from tests.server.transactions.house import FIRST_PID, House

NAME, TOPIC, GROUPS = "copier", "t", ("one", "two", "three")


class Asked:
    """The markers of a transaction with offsets, as its coordinator asks for them; they wait for the disk."""

    def __init__(self, house: House, answer: "asyncio.Future[Any]") -> None:
        self.house = house
        self.answer = answer

    @classmethod
    async def ask(cls) -> Self:
        clock = ManualClock()
        house = House(MemoryDisk(1), clock, FIRST_PID, "oncelog.flush=every", "offsets.topic.num.partitions=1")
        house.topics.create(TOPIC, 1, {}, clock.now())
        transactions, places = house.transactions, [(OFFSETS_TOPIC, 0)]
        who = await house.flushed(transactions.init_producer(NAME, 60_000, None))
        assert await house.flushed(transactions.add_partitions(NAME, who.pid, who.epoch, places)) is ErrorCode.none
        offsets = {TopicPartition(TOPIC, 0): CommittedOffset(5, -1, "", clock.now().wall_ms)}
        for group in GROUPS:
            house.groups.in_transactions.put(group, offsets, InTransaction(who.pid, who.epoch), clock.now())
        house.flush()
        broker: Any = SimpleNamespace(markers=house.markers, memory=Memory(-1), turns=Turns(lambda: 0))
        call = Call(broker, "write_txn_markers", 1, "test", "127.0.0.1", "PLAINTEXT", clock.now())
        marker = SimpleNamespace(
            producer_id=who.pid,
            producer_epoch=who.epoch,
            coordinator_epoch=0,
            transaction_result=True,
            topics=[SimpleNamespace(name=name, partition_indexes=[0]) for name in (TOPIC, OFFSETS_TOPIC)],
        )
        handle = next(each.handle for each in apis().values() if each.name == "write_txn_markers")
        assert handle is not None
        answer = asyncio.ensure_future(handle(SimpleNamespace(markers=[marker]), call))
        while len(house.flushes) < 2:
            await asyncio.sleep(0)
        return cls(house, answer)

    def flush(self, name: str) -> None:
        partition = self.house.partition(name, 0)
        partition.log.flush()
        partition.wake()

    @property
    def offsets(self) -> list[int]:
        return [self.house.offset(group, TOPIC) for group in GROUPS]


async def test_what_a_marker_ends_is_ended_whole_though_who_asked_for_it_hangs_up() -> None:
    """Else offsets of the transaction would wait for the next end of the same producer, and count with that one."""
    asked = await Asked.ask()
    asked.answer.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await asked.answer
    assert asked.offsets == [-1, -1, -1]
    asked.flush(OFFSETS_TOPIC)
    assert asked.offsets == [5, 5, 5]
    asked.house.stop()


async def test_offsets_count_when_their_own_marker_is_safe_whatever_the_others_wait_for() -> None:
    asked = await Asked.ask()
    asked.flush(OFFSETS_TOPIC)
    assert asked.offsets == [5, 5, 5]
    assert not asked.answer.done()
    asked.flush(TOPIC)
    async with asyncio.timeout(20):
        (marker,) = (await asked.answer).markers
    assert [each.partitions[0].error_code for each in marker.topics] == [ErrorCode.none] * 2
    asked.house.stop()
