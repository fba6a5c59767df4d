"""A topic of many partitions: its logs are opened, and let go, in turns, so nobody waits until all of them are."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from pathlib import Path

import pytest

from oncelog.clock import Now
from oncelog.cluster.cluster_topics import ClusterTopics
from oncelog.server.errors import ErrorCode
from oncelog.server.folders import Folders
from oncelog.server.topic import Partition
from oncelog.server.turns import TURN_MS
from tests.cluster.brokers import Brokers

PARTITIONS = 40
AT_ONCE = TURN_MS + 1  # the first is done before there is a turn


class Rounds:
    """How much was done in each round of the loop, where each takes a millisecond of the brokers' clock."""

    def __init__(self, cluster: Brokers) -> None:
        self._cluster = cluster
        self._round = 0
        self._done: Counter[int] = Counter()

    async def count(self) -> None:
        while True:
            self._round += 1
            await asyncio.sleep(0)

    def note(self, count: int = 1) -> None:
        self._done[self._round] += count
        self._cluster.clock.ms += count

    def take(self) -> tuple[int, int]:
        """In all, and the most in one."""
        done, self._done = self._done, Counter()
        return done.total(), max(done.values(), default=0)


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Brokers]:
    found = Brokers(tmp_path, default_replication_factor="1", min_insync_replicas="1")
    try:
        await found.start(1)
        yield found
    finally:
        await found.close()


@pytest.fixture
async def rounds(cluster: Brokers, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Rounds]:
    found = Rounds(cluster)
    open_here, mark_deleted = ClusterTopics.open_here, Folders.mark_deleted

    def opened(self: ClusterTopics, partition: Partition, now: Now) -> None:
        found.note()
        open_here(self, partition, now)

    def marked(self: Folders, topic: str, indexes: Iterable[int]) -> None:
        indexes = tuple(indexes)
        found.note(len(indexes))
        mark_deleted(self, topic, indexes)

    monkeypatch.setattr(ClusterTopics, "open_here", opened)
    monkeypatch.setattr(Folders, "mark_deleted", marked)
    counting = asyncio.create_task(found.count())
    yield found
    counting.cancel()


async def test_the_logs_of_a_topic_are_opened_in_turns(cluster: Brokers, rounds: Rounds) -> None:
    assert await cluster.create(partitions=PARTITIONS) is ErrorCode.none
    in_all, most = rounds.take()
    assert (in_all, most <= AT_ONCE) == (PARTITIONS, True), f"{most} in one round"
    await cluster.kill(1)
    await cluster.start(1)
    in_all, most = rounds.take()
    assert (in_all, most <= AT_ONCE) == (PARTITIONS, True), f"{most} in one round of a start"


async def test_the_logs_of_a_deleted_topic_are_let_go_in_turns(cluster: Brokers, rounds: Rounds) -> None:
    await cluster.create(partitions=PARTITIONS)
    rounds.take()
    assert await cluster.delete() is ErrorCode.none
    await cluster.until(lambda: not cluster.folders(1, "orders"))
    in_all, most = rounds.take()
    assert (in_all, most <= AT_ONCE) == (PARTITIONS, True), f"{most} in one round"


async def test_a_topic_that_is_made_again_at_once_has_folders_of_its_own(cluster: Brokers, rounds: Rounds) -> None:
    await cluster.create(partitions=PARTITIONS)
    before = cluster.known(1, "orders").id
    assert await cluster.delete() is ErrorCode.none
    assert await cluster.create(partitions=PARTITIONS) is ErrorCode.none
    assert cluster.known(1, "orders").id != before
    assert len(cluster.folders(1, "orders")) == PARTITIONS
    assert [each.log.offline for each in cluster.known(1, "orders").partitions] == [None] * PARTITIONS
