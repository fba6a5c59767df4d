"""Markers that wait to be safe: nothing else waits with them, and their transaction ends when they are."""

import asyncio
from types import SimpleNamespace
from typing import Any

from oncelog.clock import ManualClock
from oncelog.log.work_steps import at_once
from oncelog.server.coordinator_topic import InTransaction
from oncelog.server.eagerly import Pending, begun
from oncelog.server.errors import ErrorCode
from oncelog.server.groups.offsets import TopicPartition
from oncelog.server.groups.records import CommittedOffset
from oncelog.server.names import OFFSETS_TOPIC
from oncelog.server.transactions.markers import Markers
from oncelog.server.transactions.memory import Entry
from oncelog.transactions.machine import Transaction
from oncelog.transactions.states import State
from tests.log.memory_disk import MemoryDisk
from tests.server.transactions.house import FIRST_PID, House

TOPIC = "topic"


class Asked:
    def __init__(self) -> None:
        self.nodes: list[int] = []

    async def ask(self, node_id: int, name: str, version: int, request: Any) -> Any:
        self.nodes.append(node_id)
        raise ConnectionError


async def test_other_brokers_are_told_while_a_marker_here_is_not_safe_yet() -> None:
    clock = ManualClock()
    house = House(MemoryDisk(1), clock, FIRST_PID, "oncelog.flush=every")
    house.topics.create(TOPIC, 1, {}, clock.now())
    elsewhere = SimpleNamespace(leads=False, leadership=SimpleNamespace(leader=7))
    topic = SimpleNamespace(partitions=[house.partition(TOPIC, 0), elsewhere])
    peers, topics = Asked(), {TOPIC: topic}

    async def pause() -> None:
        """Nobody else is here."""

    markers = Markers(topics, house.groups, lambda: peers, clock, house.flushes.append, pause, at_once)  # type: ignore[arg-type]
    places = frozenset({(TOPIC, 0), (TOPIC, 1)})
    decided = Transaction(
        pid=FIRST_PID, epoch=0, timeout_ms=60_000, state=State.PREPARE_COMMIT, partitions=places, updated_wall_ms=0
    )
    entry = Entry("name", decided, 0)
    entry.missing = set(places)
    going_on = begun(markers.write(entry, decided))  # as the coordinator begins it
    assert isinstance(going_on, Pending)
    assert not await asyncio.get_running_loop().create_task(going_on.rest)
    assert house.flushes and peers.nodes == [7]
    assert (entry.missing, entry.waiting) == (set(places), {(TOPIC, 0)})  # the one that is here waits for the disk
    log, elsewhere.leadership = house.partition(TOPIC, 0).log, SimpleNamespace(leader=8)
    end_offset = log.next_offset
    assert not await markers.write(entry, decided)  # the other is tried again, of who leads it by now
    assert peers.nodes == [7, 8]
    assert log.next_offset == end_offset
    house.flush()
    assert (entry.missing, entry.waiting) == ({(TOPIC, 1)}, set())
    house.stop()


async def test_a_transaction_ends_when_its_markers_are_safe() -> None:
    clock = ManualClock()
    house = House(MemoryDisk(1), clock, FIRST_PID, "oncelog.flush=every", "offsets.topic.num.partitions=1")
    house.topics.create(TOPIC, 2, {}, clock.now())

    transactions, places = house.transactions, [(OFFSETS_TOPIC, 0), (TOPIC, 0), (TOPIC, 1)]
    async with asyncio.timeout(20):
        who = await house.flushed(transactions.init_producer("id", 60_000, None))
        assert await house.flushed(transactions.add_partitions("id", who.pid, who.epoch, places)) is ErrorCode.none
        offsets = {TopicPartition(TOPIC, 0): CommittedOffset(5, -1, "", clock.now().wall_ms)}
        within = InTransaction(who.pid, who.epoch)
        house.groups.in_transactions.put("group", offsets, within, clock.now())
        house.flush()
        ending = asyncio.create_task(transactions.end("id", who.pid, who.epoch, is_commit=True, raises=False))
        while not house.flushes:
            await asyncio.sleep(0)
        state, entry = house.flushes.pop(), transactions.entries["id"]
        state.log.flush()
        state.wake()
        assert (await ending).error is ErrorCode.none
        assert (entry.now.state, entry.waiting) == (State.PREPARE_COMMIT, set(places))
        assert house.offset("group", TOPIC) == -1
        while entry.now.state is not State.COMPLETE_COMMIT:
            house.flush()
            await asyncio.sleep(0)
    assert not entry.waiting
    assert house.offset("group", TOPIC) == 5
    house.stop()
