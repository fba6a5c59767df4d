"""The cluster, as the page and /metrics tell of it: several brokers in this process, seen from one of them."""

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from oncelog.console.cluster import cluster_view
from oncelog.console.faults import FaultList
from oncelog.console.overview import overview
from oncelog.console.query import Query
from oncelog.console.serving import Console
from oncelog.server.exposition import exposition
from tests.cluster.brokers import Brokers, three
from tests.console.browser import DESKTOP, PHONE, Browser
from tests.raw import batch

COUNTS = {
    "without_leader": 0,
    "under_replicated": 0,
    "under_min_isr": 0,
    "at_min_isr": 0,
    "not_preferred": 0,
    "moving": 0,
}


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Brokers]:
    async with three(tmp_path) as found:
        yield found


async def view(cluster: Brokers, node: int, **query: str) -> dict[str, Any]:
    return await cluster_view(cluster.brokers[node].broker, Query(query))


def metrics(cluster: Brokers, node: int) -> dict[str, float]:
    told = "".join(exposition(cluster.brokers[node].broker))
    return {name: float(value) for name, value in re.findall(r"^([^#\s]\S*) (\S+)$", told, re.MULTILINE)}


async def test_brokers_leaders_and_how_far_followers_are_behind(cluster: Brokers) -> None:
    await cluster.create(partitions=3)
    assert (await cluster.produce(batch([b"a", b"b"]))).error_code == 0
    leader = cluster.leader("orders")
    found = await view(cluster, leader)
    assert [(row["id"], row["state"], row["leads"], row["replicas"]) for row in found["brokers"]] == [
        (node, "up", 1, 3) for node in (1, 2, 3)
    ]
    assert (found["node_id"], found["counts"], found["is_alone"]) == (leader, COUNTS, False)
    row = next(row for row in found["rows"] if row["partition"] == 0)
    assert (row["topic"], row["leader"], set(row["in_sync"]), row["eligible"]) == ("orders", leader, {1, 2, 3}, ())
    assert row["lags"] == [[node, 0] for node in (1, 2, 3) if node != leader]
    told = metrics(cluster, leader)
    other = next(node for node in (1, 2, 3) if node != leader)
    assert told[f'oncelog_follower_lag_records{{topic="orders",partition="0",broker="{other}"}}'] == 0
    assert told["oncelog_elections_total"] == found["elections"] >= 1


async def test_what_lacks_something_comes_first_and_is_counted(cluster: Brokers) -> None:
    await cluster.create("apart", partitions=1)
    await cluster.create(partitions=3)
    gone = cluster.leader("orders", 1)
    here = next(node for node in (1, 2, 3) if node != gone)
    assert await cluster.move("apart", 0, [node for node in (1, 2, 3) if node != gone], at=here) == 0
    await cluster.until(lambda: len(cluster.tree.leaderships("apart")[0].replicas) == 2)
    await cluster.settled("apart")
    before = metrics(cluster, here)
    await cluster.kill(gone)
    await cluster.settled()
    await cluster.settled("apart")
    found = await view(cluster, here)
    assert [row["topic"] for row in found["rows"]] == ["orders", "orders", "orders", "apart"]
    assert [row["state"] for row in found["brokers"]] == ["down" if node == gone else "up" for node in (1, 2, 3)]
    assert found["counts"].items() >= {"under_replicated": 3, "at_min_isr": 4, "without_leader": 0}.items()
    seen = await overview(cluster.brokers[here].broker, FaultList())
    assert (seen["brokers"], seen["under_replicated"]) == (3, 3)
    after = metrics(cluster, here)
    assert sum(value for name, value in after.items() if "under_replicated" in name) == 3
    assert after["oncelog_elections_total"] >= before["oncelog_elections_total"]


async def test_a_follower_that_hears_nothing_falls_behind(cluster: Brokers) -> None:
    await cluster.create(partitions=1)
    leader = cluster.leader("orders")
    silent = next(node for node in (1, 2, 3) if node != leader)
    partition = cluster.known(leader, "orders").partitions[0]
    assert (await cluster.produce(batch([b"a"]))).error_code == 0
    await cluster.kill(silent)
    for _ in range(2):
        assert (await cluster.produce(batch([b"b"]), acks=1)).error_code == 0
    assert partition.replica is not None
    assert partition.replica.lags[silent] == 2


async def test_the_page_says_which_broker_is_down_and_what_lacks_it(cluster: Brokers, browser: Browser) -> None:
    await cluster.create(partitions=3)
    gone = cluster.leader("orders", 1)
    here = next(node for node in (1, 2, 3) if node != gone)
    console = Console(cluster.brokers[here].broker, "127.0.0.1", 0)
    await console.start()

    def look(size: tuple[int, int], *words: str) -> None:
        browser.resize(size)
        browser.open("about:blank")
        browser.open(f"{console.address}#/overview")
        browser.wait("document.querySelector('a[href=\"#/cluster\"]') !== null", "the way to the cluster")
        browser.open(f"{console.address}#/cluster")
        for each in words:
            browser.sees(each)
        wide = browser.run("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert (wide <= 0, browser.errors) == (True, [])

    try:
        await asyncio.to_thread(look, DESKTOP, f"As broker {here} sees it.", "1, 2, 3")
        await cluster.kill(gone)
        await cluster.settled()
        await asyncio.to_thread(look, PHONE, "down", "too few")
    finally:
        await console.stop()
