"""Brokers with the replicas of one topic, in one loop, wired by hand: leaderships as given, no tree."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch
from uuid import UUID

from oncelog.clock import Now
from oncelog.cluster.fetcher import Fetcher
from oncelog.cluster.links import Links
from oncelog.embedded import open_broker
from oncelog.log.config import LogConfig
from oncelog.log.disk import RealDisk
from oncelog.log.partition import PartitionLog
from oncelog.producers import ProducerMap
from oncelog.records.header import headers, read_header
from oncelog.replication.following import Answer, NextFetch, Refusal
from oncelog.replication.leader import Rules
from oncelog.replication.leadership import Leadership, Peer
from oncelog.replication.replica import Fetching, Replica
from oncelog.server.service import Service
from oncelog.server.settings_reading import read_settings
from oncelog.server.topic import Partition
from tests.log.support import batch as small
from tests.raw import RawConnection

TOPIC_ID = UUID(int=77)
FETCH = 1
CONFIG = LogConfig(segment_bytes=20_000, retention_ms=-1)
PEERS = {broker: Peer(1) for broker in (1, 2, 3)}
PATIENCE_S = 30


class Watched(Replica):
    """Tells when something was appended, taken or acknowledged, and how often it was asked for."""

    changed: asyncio.Event
    fetches = 0

    def fetched(self, fetching: Fetching, now_ms: int) -> Refusal | None:
        self.fetches += 1
        return super().fetched(fetching, now_ms)

    def move_high_watermark(self) -> None:
        super().move_high_watermark()
        self.changed.set()

    def take(self, asked: NextFetch, answered: Answer, now: Now) -> None:
        super().take(asked, answered, now)
        self.changed.set()

    async def until(self, is_so: Callable[[PartitionLog], bool]) -> None:
        assert isinstance(self.log, PartitionLog)
        async with asyncio.timeout(PATIENCE_S):
            while not is_so(self.log):
                self.changed.clear()
                await self.changed.wait()


class Node:
    """A broker with the replicas of one topic."""

    def __init__(self, folder: Path, number: int, partitions: int = 1) -> None:
        self.number = number
        self.folder = folder / str(number)
        given = {"log.dir": str(self.folder / "own"), "listeners": "PLAINTEXT://127.0.0.1:0", "node.id": str(number)}
        self.service = Service(open_broker(read_settings(given)))
        self.broker = self.service.broker
        self.fetchers: list[Fetcher] = []
        self.missed: list[int] = []  # leaders that have ended a connection
        topics = self.broker.topics
        topic = topics.get("orders")
        if topic is None:
            with patch("oncelog.server.local_topics.uuid4", lambda: TOPIC_ID):
                topic = topics.create("orders", partitions, {}, self.now)
        for partition in topic.partitions:
            partition.close().abandon()
            self.open(partition)

    @property
    def now(self) -> Now:
        return self.broker.clock.now()

    def open(self, partition: Partition) -> None:
        folder = str(self.folder / f"orders-{partition.index}")
        log = PartitionLog.open(RealDisk(), folder, CONFIG, ProducerMap(), self.now, replicated=True)
        partition.open(log)
        partition.replica = replica = Watched(self.number, log, Rules(min_in_sync=2), is_clean=True)
        replica.changed = asyncio.Event()

    def partition(self, index: int = 0) -> Partition:
        found = self.broker.topics.partition("orders", index)
        assert found is not None
        return found

    def replica(self, index: int = 0) -> Watched:
        found = self.partition(index).replica
        assert isinstance(found, Watched)
        return found

    def log(self, index: int = 0) -> PartitionLog:
        return self.partition(index).log

    def see(self, state: Leadership, index: int = 0) -> None:
        partition = self.partition(index)
        self.replica(index).see(state, self.now.monotonic_ms)
        partition.leadership = state
        partition.leads = self.replica(index).leader is not None
        partition.wake()

    def lead(self, state: Leadership, index: int = 0) -> Leadership:
        """What it is elected with."""
        self.see(state, index)
        change = self.replica(index).change(PEERS, self.now.monotonic_ms)
        assert change is not None
        self.see(change.state, index)
        return change.state

    @property
    def address(self) -> tuple[str, int]:
        return "127.0.0.1", self.broker.ports["PLAINTEXT"]

    def follow(self, leader: "Node", indexes: Iterator[int] | range = range(1)) -> Fetcher:
        fetcher = Fetcher(
            self.broker,
            leader.number,
            lambda: leader.address,
            lambda _: None,
            self.missed.append,
            lambda: 1,
            self.links,
        )
        self.fetchers.append(fetcher)
        for index in indexes:
            fetcher.follow(self.partition(index))
        fetcher.start()
        return fetcher

    @property
    def links(self) -> Links:
        return Links(self.broker.settings, lambda: "")

    @contextmanager
    def asked(self) -> Iterator[RawConnection]:
        with closing(RawConnection(self.address[1])) as raw:
            yield raw

    async def produce(self, records: bytes, index: int = 0, acks: int = -1) -> Any:
        with self.asked() as raw:
            return await asyncio.to_thread(raw.produce, "orders", index, records, acks=acks)

    def append(self, *values: bytes, index: int = 0) -> None:
        for value in values:
            found = small(value)
            self.log(index).append(found, read_header(found), self.now)
        self.partition(index).appended()

    async def stop(self) -> None:
        for fetcher in self.fetchers:
            await fetcher.stop()
        self.fetchers.clear()
        await self.service.stop()

    async def kill(self) -> None:
        """As far as logs are concerned: nothing is written at the end."""
        for fetcher in self.fetchers:
            await fetcher.stop()
        self.fetchers.clear()
        topic = self.broker.topics.get("orders")
        assert topic is not None
        for partition in topic.partitions:
            partition.close().abandon()
        await self.service.stop()


def content(log: PartitionLog) -> bytes:
    found, offset = b"", log.log_start_offset
    while offset < log.next_offset:
        part = log.read(offset, 1 << 20, limit_offset=log.next_offset)
        for at, header in headers(part):
            found += part[at : at + header.size_bytes]
            offset = header.last_offset + 1
    return found


Start = Callable[..., Awaitable[Node]]
