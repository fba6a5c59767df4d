"""Markers for other brokers do not wait for those that are here."""

import asyncio
from types import SimpleNamespace
from typing import Any

from oncelog.clock import ManualClock
from oncelog.server.eagerly import Pending, begun
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

    markers = Markers(topics, house.groups, lambda: peers, clock, house.flushes.append, pause)  # type: ignore[arg-type]
    places = frozenset({(TOPIC, 0), (TOPIC, 1)})
    decided = Transaction(
        pid=FIRST_PID, epoch=0, timeout_ms=60_000, state=State.PREPARE_COMMIT, partitions=places, updated_wall_ms=0
    )
    entry = Entry("name", decided, 0)
    entry.missing = set(places)
    going_on = begun(markers.write(entry, decided))  # as the coordinator begins it
    assert isinstance(going_on, Pending)
    writing = asyncio.get_running_loop().create_task(going_on.rest)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert house.flushes and not writing.done()  # the one that is here waits for the disk
    assert peers.nodes == [7]
    house.flush()
    assert not await writing
    assert entry.missing == {(TOPIC, 1)}
    house.stop()
