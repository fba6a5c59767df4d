"""Brokers of a cluster in this process, all on one loop, agreeing by one tree in memory that remembers who led when."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from oncelog.clock import Now, SystemClock
from oncelog.cluster.cluster_broker import ClusterBroker
from oncelog.cluster.documents import TOPICS, TopicDocument, decode_topic
from oncelog.cluster.tree import Change
from oncelog.cluster.tree_nodes import Writes
from oncelog.replication.leadership import Leadership
from oncelog.server.errors import ErrorCode
from oncelog.server.settings_reading import read_settings
from oncelog.server.topic import Topic
from tests.cluster.tree_memory import MemorySession, MemoryTree
from tests.raw import RawConnection

PATIENCE_S = 20
ALL = (1, 2, 3)


class RememberingTree(MemoryTree):
    def __init__(self) -> None:
        super().__init__()
        self.leaders: dict[tuple[str, int, int], set[int]] = defaultdict(set)  # by topic id, partition and epoch

    def carry_out(self, number: int, changes: tuple[Change, ...]) -> Writes:
        writes = super().carry_out(number, changes)
        for path, stored in writes.items():
            if path.startswith(f"{TOPICS}/") and stored is not None:
                document = decode_topic(stored.node.value)
                for index, state in enumerate(document.partitions):
                    if state.leader >= 0:
                        self.leaders[str(document.id), index, state.epoch].add(state.leader)
        return writes

    def document(self, name: str) -> TopicDocument | None:
        stored = self.nodes.get(f"{TOPICS}/{name}")
        return None if stored is None else decode_topic(stored.node.value)

    def leaderships(self, name: str) -> tuple[Leadership, ...]:
        document = self.document(name)
        return () if document is None else document.partitions


class Ahead(SystemClock):
    """It goes on, and may be put forward."""

    ms = 0

    def now(self) -> Now:
        wall_ms, monotonic_ms = super().now()
        return Now(wall_ms + self.ms, monotonic_ms + self.ms)


class Brokers:
    """Two of three must have what acks=all acknowledges."""

    def __init__(self, folder: Path, **settings: str) -> None:
        self.folder = folder
        self.settings = {name.replace("_", "."): value for name, value in settings.items()}
        self.clock = Ahead()
        self.tree = RememberingTree()
        self.sessions: dict[int, MemorySession] = {}
        self.brokers: dict[int, ClusterBroker] = {}
        self._ticks = patch("oncelog.cluster.supervisor.TICK_S", 0.02)  # instead of half a second
        self._waits = patch("oncelog.cluster.fetcher.MAX_WAIT_MS", 50)  # which an end waits for
        self._ticks.start()
        self._waits.start()

    async def start(self, *nodes: int, **settings: str) -> None:
        for node in nodes:
            given = {
                "node.id": str(node),
                "log.dir": str(self.folder / str(node)),
                "listeners": "PLAINTEXT://127.0.0.1:0",
                "default.replication.factor": "3",
                "min.insync.replicas": "2",
                "offsets.topic.replication.factor": "3",
                "offsets.topic.num.partitions": "1",
            }
            given |= self.settings | {name.replace("_", "."): value for name, value in settings.items()}
            session = self.tree.session(self.clock)
            broker = ClusterBroker(read_settings(given), session, clock=self.clock)
            try:
                await broker.start()
            except BaseException:
                await broker.stop()
                raise
            self.sessions[node], self.brokers[node] = session, broker

    async def stop(self, node: int) -> None:
        """In an orderly way."""
        await self.brokers.pop(node).stop()

    async def kill(self, node: int) -> None:
        """It says nothing to the others, who see that its session is over."""
        self.sessions[node].suspend()
        self.sessions[node].expire()
        await self.stop(node)

    async def close(self) -> None:
        for node in list(self.brokers):
            await self.kill(node)
        self._ticks.stop()
        self._waits.stop()

    async def until(self, is_so: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not is_so():
                await asyncio.sleep(0)

    # What brokers know

    def topic(self, node: int, name: str) -> Topic | None:
        return self.brokers[node].broker.topics.get(name)

    def known(self, node: int, name: str) -> Topic:
        topic = self.topic(node, name)
        assert topic is not None
        return topic

    def next_offset(self, node: int) -> int:
        return self.known(node, "orders").partitions[0].log.next_offset

    def epoch(self, node: int) -> int:
        state = self.known(node, "orders").partitions[0].leadership
        return -1 if state is None else state.epoch

    def leader(self, name: str, index: int = 0) -> int:
        return self.tree.leaderships(name)[index].leader

    def folders(self, node: int, name: str) -> list[str]:
        return sorted(path.name for path in (self.folder / str(node)).glob(f"{name}-*"))

    def is_settled(self, name: str) -> bool:
        """Everybody sees the same, who is to lead leads, and all that are up are in sync."""
        document = self.tree.document(name)
        return document is not None and all(self._is_settled_at(node, name, document) for node in self.brokers)

    def _is_settled_at(self, node: int, name: str, document: TopicDocument) -> bool:
        topic, states = self.topic(node, name), document.partitions
        return (
            topic is not None
            and topic.id == document.id
            and [each.leadership for each in topic.partitions] == list(states)
            and [each.is_open for each in topic.partitions] == [node in state.replicas for state in states]
            and [each.leads for each in topic.partitions] == [state.leader == node for state in states]
            and all(state.leader in self.brokers for state in states)
            and all(set(state.in_sync) == self.brokers.keys() & set(state.replicas) for state in states)
        )

    async def settled(self, name: str = "orders") -> None:
        await self.until(lambda: self.is_settled(name))

    def check_epochs(self) -> None:
        """Nobody but one was elected in each."""
        assert {each: led for each, led in self.tree.leaders.items() if len(led) > 1} == {}

    # What clients ask

    async def call(self, node: int, work: Callable[[RawConnection], Any]) -> Any:
        port = self.brokers[node].broker.ports["PLAINTEXT"]

        def called() -> Any:
            with RawConnection(port) as raw:
                return work(raw)

        return await asyncio.to_thread(called)

    async def ask(self, node: int, name: str, version: int, **values: Any) -> Any:
        return await self.call(node, lambda raw: raw.call(name, version, **values))

    async def create(
        self, name: str = "orders", partitions: int = 3, *, at: int = 1, settled: bool = True
    ) -> ErrorCode:
        topic = {"name": name, "num_partitions": partitions, "replication_factor": -1, "assignments": [], "configs": []}
        answer = await self.ask(at, "create_topics", 5, topics=[topic], timeout=20_000, validate_only=False)
        error: ErrorCode = answer.topics[0].error_code
        if settled and not error:
            await self.settled(name)
        return error

    async def move(self, name: str, index: int, replicas: list[int] | None, *, at: int) -> ErrorCode:
        topics = [{"name": name, "partitions": [{"partition_index": index, "replicas": replicas}]}]
        answer = await self.ask(at, "alter_partition_reassignments", 0, timeout=20_000, topics=topics)
        error: ErrorCode = answer.responses[0].partitions[0].error_code
        return error

    async def delete(self, name: str = "orders", *, at: int = 1) -> ErrorCode:
        error: ErrorCode = await self.call(at, lambda raw: raw.delete_topic(name))
        return error

    async def produce(
        self, records: bytes, name: str = "orders", index: int = 0, *, at: int = 0, acks: int = -1
    ) -> Any:
        """At the leader, unless said otherwise."""
        node = at or self.leader(name, index)
        return await self.call(node, lambda raw: raw.produce(name, index, records, acks=acks))

    async def end(self, name: str = "orders", index: int = 0, *, at: int = 0) -> Any:
        return await self.call(at or self.leader(name, index), lambda raw: raw.offset_at(name, index, -1))


@asynccontextmanager
async def three(folder: Path, **settings: str) -> AsyncIterator[Brokers]:
    """All are up; at the end nobody but one was elected in each epoch."""
    found = Brokers(folder, **settings)
    try:
        await found.start(*ALL)
        yield found
    finally:
        await found.close()
    found.check_epochs()
