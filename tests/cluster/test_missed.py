"""A broker whose connection has ended: who asks for leaders waits for the next one, and it is listed for a while."""

import asyncio
from pathlib import Path

import pytest

from oncelog.clock import ManualClock
from oncelog.cluster import FileCluster, tree_cluster
from oncelog.cluster.documents import NodeDocument
from oncelog.cluster.tree_cluster import LISTED_MS, TreeCluster
from oncelog.log.disk import RealDisk
from oncelog.server.ports import Member
from tests.cluster.tree_memory import MemorySession, MemoryTree

LIFETIME_MS = 86_400_000


class Three:
    """Of which the first one looks at the others."""

    def __init__(self, folder: Path) -> None:
        self.clock, self.folder, self.tree = ManualClock(), folder, MemoryTree()
        self.sessions: dict[int, MemorySession] = {}

    async def join(self, number: int) -> TreeCluster:
        session = self.sessions[number] = self.tree.session(self.clock)
        await session.begin_session()
        own = FileCluster(
            RealDisk(),
            f"{self.folder}/{number}",
            self.clock,
            node_id=number,
            lease_lifetime_ms=LIFETIME_MS,
            is_member=True,
        )
        cluster = TreeCluster(own, session, self.clock, LIFETIME_MS)
        await cluster.join(NodeDocument(own.folder_id, Member({"PLAINTEXT": ("127.0.0.1", 9000 + number)})))
        return cluster


async def three(folder: Path) -> tuple[Three, TreeCluster, TreeCluster]:
    brokers = Three(folder)
    one, _, stopping = [await brokers.join(number) for number in (1, 2, 3)]
    await one.look_at_brokers()
    return brokers, one, stopping


async def test_who_asks_waits_until_the_missed_one_leads_nothing(tmp_path: Path) -> None:
    _, one, _ = await three(tmp_path)
    one.miss(2)
    asked = asyncio.ensure_future(one.until_nobody_is_missed())
    for leaders in ((2, 3), (2,), (1, 2)):
        one.miss_only(iter(leaders))
        await asyncio.wait([asked], timeout=2 * tree_cluster.SEEN_S)
        assert not asked.done()
    one.miss_only(iter((1, 3)))
    await asked


async def test_nobody_waits_for_long_nor_for_a_broker_that_is_not_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, one, _ = await three(tmp_path)
    monkeypatch.setattr(tree_cluster, "MISSED_S", 0.05)
    async with asyncio.timeout(30):
        one.miss(9)
        await one.until_nobody_is_missed()
        one.miss(2)
        one.miss(2)  # its other connection
        await one.until_nobody_is_missed()
        one.miss_only(iter((1, 3)))


async def test_a_broker_that_is_lost_is_listed_for_as_long_as_on_kafka_and_one_that_has_stopped_is_not(
    tmp_path: Path,
) -> None:
    brokers, one, stopping = await three(tmp_path)
    await stopping.say_stopping()
    await one.look_at_brokers()
    for number in (2, 3):
        await brokers.sessions[number].close()
    await one.look_at_brokers()
    assert (list(one.members), list(one.lost)) == ([1], [2])
    await brokers.join(2)
    await one.look_at_brokers()
    assert (list(one.members), list(one.lost)) == ([1, 2], [])
    await brokers.sessions[2].close()
    await one.look_at_brokers()
    brokers.clock.advance(LISTED_MS - 1)
    assert list(one.lost) == [2]
    brokers.clock.advance(1)
    assert list(one.lost) == []
