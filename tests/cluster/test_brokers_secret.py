"""The secret by which brokers know each other stands where they agree: one for all of them, whoever came first."""

import asyncio
import json
from pathlib import Path

from oncelog.clock import ManualClock
from oncelog.cluster import FileCluster
from oncelog.cluster.documents import CONFIG
from oncelog.cluster.tree import ABSENT, Put
from oncelog.cluster.tree_cluster import TreeCluster
from oncelog.log.disk import RealDisk
from tests.cluster.tree_memory import MemoryTree

LIFETIME_MS = 86_400_000


async def broker(folder: Path, tree: MemoryTree, number: int) -> TreeCluster:
    clock, session = ManualClock(), tree.session(ManualClock())
    await session.begin_session()
    own = FileCluster(
        RealDisk(), f"{folder}/{number}", clock, node_id=number, lease_lifetime_ms=LIFETIME_MS, is_member=True
    )
    return TreeCluster(own, session, clock, LIFETIME_MS)


async def test_brokers_that_begin_at_once_have_the_same_secret(tmp_path: Path) -> None:
    tree = MemoryTree()
    brokers = [await broker(tmp_path, tree, number) for number in (1, 2, 3)]
    await asyncio.gather(*(each.agree() for each in brokers))
    first, *others = [each.secret for each in brokers]
    assert len(first) > 40 and others == [first, first]


async def test_brokers_of_a_version_that_had_none_get_one(tmp_path: Path) -> None:
    tree = MemoryTree()
    first = await broker(tmp_path, tree, 1)
    before = {"cluster_id": "theirs", "oncelog.lease.lifetime.ms": LIFETIME_MS}
    await first.tree.change(Put(CONFIG, json.dumps(before).encode(), ABSENT))
    second = await broker(tmp_path, tree, 2)
    await asyncio.gather(first.agree(), second.agree())
    assert first.secret and first.secret == second.secret
    node = await first.tree.get(CONFIG)
    assert node is not None and json.loads(node.value) == {**before, "secret": first.secret}
