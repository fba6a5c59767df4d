"""What a broker that stands alone would own, as far as transactions need it, on a disk in memory."""

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any, TypeVar

from oncelog.clock import ManualClock
from oncelog.log.disk import Disk
from oncelog.log.work_steps import Pauses
from oncelog.producers import ProducerMap
from oncelog.records.build import build_batch
from oncelog.records.header import check_in_transaction
from oncelog.server.coordinator_topic import InTransaction
from oncelog.server.eagerly import Pending, begun
from oncelog.server.errors import ErrorCode
from oncelog.server.groups.coordinator import GroupCoordinator
from oncelog.server.groups.offsets import TopicPartition
from oncelog.server.groups.records import CommittedOffset
from oncelog.server.local_topics import LocalTopics
from oncelog.server.names import OFFSETS_TOPIC
from oncelog.server.ports import NoPeers
from oncelog.server.settings_reading import read_settings
from oncelog.server.topics import Partition
from oncelog.server.transactions.coordinator import Initialised, TransactionCoordinator
from oncelog.server.transactions.markers import Markers
from tests.server.groups.support import ManualTimers

FIRST_PID = 2**32
Result = TypeVar("Result")


def now(work: Coroutine[Any, Any, Result]) -> Result:
    """Nothing waits for anything here: the log follows each append."""
    found = begun(work)
    assert not isinstance(found, Pending)
    return found


class House:
    def __init__(self, disk: Disk, clock: ManualClock, first_pid: int = FIRST_PID, *given: str) -> None:
        settings = read_settings(["log.dir=/data", *given])
        self.disk = disk
        self.clock = clock
        self.timers = ManualTimers(clock)
        self.topics = LocalTopics(settings, disk, ProducerMap, clock.now())
        self.groups = GroupCoordinator(settings, self.topics, clock, self.timers.call_later)
        self.next_pid = first_pid
        self.pid_is_late: asyncio.Event | None = None
        self.pause_is_long: asyncio.Event | None = None
        self.flushes: list[Partition] = []  # that were asked for
        self.pauses = 0  # in which others would have had their turn
        self.steps = 0  # of what is gone through in turns
        self.markers = Markers(
            self.topics, self.groups, NoPeers, clock, self.flushes.append, self._pause, self._in_turns
        )
        self.transactions = TransactionCoordinator(
            settings,
            self.topics,
            clock,
            self.markers,
            take_pid=self._take_pid,
            request_flush=self.flushes.append,
            in_turns=self._in_turns,
            run=lambda steps: None,  # type: ignore[arg-type,return-value]
            broker_count=lambda: 1,
            call_later=self.timers.call_later,
        )
        self.groups.start()
        self.transactions.start()

    async def _take_pid(self, transactional_id: str) -> int:
        self.next_pid += 1
        if self.pid_is_late is not None:
            await self.pid_is_late.wait()
        return self.next_pid - 1

    async def _pause(self) -> None:
        self.pauses += 1
        if self.pause_is_long is not None:
            await self.pause_is_long.wait()

    def _in_turns(self, pauses: Pauses) -> None:
        for _ in pauses:
            self.steps += 1

    def flush(self) -> None:
        while self.flushes:
            partition = self.flushes.pop()
            partition.log.flush()
            partition.wake()

    async def flushed(self, work: Coroutine[Any, Any, Result]) -> Result:
        """What the work comes to, with all flushes that it waits for."""
        task = asyncio.create_task(work)
        while not task.done():
            await asyncio.sleep(0)
            self.flush()
        return await task

    def stop(self) -> None:
        self.groups.stop()
        self.transactions.stop()

    def partition(self, topic: str, index: int) -> Partition:
        found = self.topics.get(topic)
        assert found is not None
        return found.partitions[index]

    def init(self, name: str, timeout_ms: int = 60_000, host: str = "") -> Initialised:
        return now(self.transactions.init_producer(name, timeout_ms, None, host))

    def add(self, name: str, who: Initialised, topic: str, partitions: Iterable[int]) -> ErrorCode:
        places = [(topic, index) for index in partitions]
        return now(self.transactions.add_partitions(name, who.pid, who.epoch, places))

    def write(self, name: str, who: Initialised, topic: str, index: int, sequence: int, value: bytes) -> None:
        added = self.add(name, who, topic, [index])
        assert added is ErrorCode.none, added
        batch = build_batch(
            [(None, value, (), None)],
            producer_id=who.pid,
            producer_epoch=who.epoch,
            base_sequence=sequence,
            timestamp_ms=self.clock.now().wall_ms,
            is_transactional=True,
        )
        log = self.partition(topic, index).log
        staged = log.stage_in_transaction(batch, check_in_transaction(batch), self.clock.now())
        assert not staged.decision, staged
        log.commit()

    def commit_offset(self, name: str, who: Initialised, group: str, topic: str, offset: int) -> None:
        place = self.groups.partition_of(group)
        index = 0 if place is None else place.index
        added = self.add(name, who, OFFSETS_TOPIC, [index])
        assert added is ErrorCode.none, added
        committed = {TopicPartition(topic, 0): CommittedOffset(offset, -1, "", self.clock.now().wall_ms)}
        within = InTransaction(who.pid, who.epoch)
        settled = self.groups.in_transactions.put(group, committed, within, self.clock.now())
        assert settled is ErrorCode.none, settled

    def end(self, name: str, who: Initialised, *, is_commit: bool, raises: bool) -> Initialised:
        return now(self.transactions.end(name, who.pid, who.epoch, is_commit=is_commit, raises=raises))

    def offset(self, group: str, topic: str) -> int:
        found = self.groups.committed(group, topic, 0)
        return -1 if found is None else found.offset
