"""Two coordinators over one log stand for two brokers whose logs are equal."""

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from oncelog.clock import ManualClock
from oncelog.log.partition import PartitionLog
from oncelog.log.work_steps import Pauses
from oncelog.producers import ProducerMap
from oncelog.records.build import build_batch
from oncelog.records.header import read_header
from oncelog.server.api import apis
from oncelog.server.call import Call
from oncelog.server.errors import ErrorCode
from oncelog.server.groups.coordinator import GroupCoordinator
from oncelog.server.groups.messages import SyncRequest
from oncelog.server.groups.offsets import TopicPartition
from oncelog.server.groups.records import CommittedOffset, encode_committed
from oncelog.server.memory import Memory
from oncelog.server.names import OFFSETS_TOPIC
from oncelog.server.topics import Partition
from oncelog.server.turns import Turns
from tests.server.groups.support import House, join_request

LOADING, ELSEWHERE = ErrorCode.coordinator_load_in_progress, ErrorCode.not_coordinator


class Broker:
    """One of two, as far as groups need it."""

    def __init__(self, house: House, **how: Any) -> None:
        self.house = house
        self.groups = GroupCoordinator(
            house.settings, house.topics, house.clock, house.timers.call_later, house.flushes.append, **how
        )
        self.groups.start()

    def commit(self, offset: int, group_id: str = "g", topic: str = "t") -> Any:
        now = self.house.clock.now()
        error = self.groups.check_commit(group_id, "", None, -1, now)
        if error is not ErrorCode.none:
            return error
        committed = {TopicPartition(topic, 0): CommittedOffset(offset, -1, "", now.wall_ms)}
        return self.groups.commit(group_id, committed, now)

    def offset(self, group_id: str = "g", topic: str = "t") -> Any:
        """As it would be told, or why not."""
        settled = self.groups.settled(group_id)
        if settled is not ErrorCode.none:
            return settled
        found = self.groups.committed(group_id, topic, 0)
        return None if found is None else found.offset

    def heartbeat(self, member_id: str = "m1", generation: int = 1) -> ErrorCode:
        return self.groups.heartbeat("g", member_id, None, generation, self.house.clock.now())

    def join(self, **more: Any) -> Any:
        answer = self.groups.join("g", join_request(**more), self.house.clock.now())
        self.house.timers.advance(0)
        return answer

    def sync(self, generation: int = 1) -> Any:
        request = SyncRequest(member_id="m1", generation=generation, assignments={"m1": b"share"})
        return self.groups.sync("g", request, self.house.clock.now())


def place(house: House, index: int = 0) -> Partition:
    partition = house.topics.partition(OFFSETS_TOPIC, index)
    assert partition is not None
    return partition


def two_brokers(*given: str, **how: Any) -> tuple[House, Broker, Broker]:
    """The first one leads, and a group has committed 5 there."""
    house = House("offsets.topic.num.partitions=1", "group.initial.rebalance.delay.ms=0", *given)
    house.groups.stop()
    house.make_topic("t")
    first, second = Broker(house), Broker(house, **how)
    assert first.commit(5) is ErrorCode.none
    return house, first, second


def move(house: House, to: Broker, *others: Broker, index: int = 0) -> int:
    partition = place(house, index)
    epoch = partition.log.leader_epoch + 1
    partition.log.begin_epoch(epoch)
    for each in others:
        each.groups.resigned(partition, epoch)
    to.groups.elected(partition, epoch)
    return epoch


class Held:
    """Turns that a test gives."""

    def __init__(self) -> None:
        self.work: list[Pauses] = []

    def __call__(self, steps: Pauses) -> None:
        self.work.append(steps)

    def step(self) -> bool:
        """Of all that is under way; whether any is left."""
        work, self.work = self.work, []
        self.work = [steps for steps in work if next(steps, self) is not self] + self.work
        return bool(self.work)

    def finish(self) -> None:
        while self.step():
            pass


def replicated(house: House) -> Partition:
    """Its high watermark is moved by hand from here on."""
    partition = place(house)
    folder, config = partition.log.folder, partition.log.config
    epoch = partition.log.leader_epoch
    partition.close().close()
    now = house.clock.now()
    partition.open(PartitionLog.open(house.disk, folder, config, ProducerMap(), now, replicated=True))
    partition.log.begin_epoch(epoch + 1)
    partition.leads = True
    return partition


def append(partition: Partition, offset: int) -> None:
    """A commit of another broker, as this one followed it."""
    batch = build_batch(
        [(*encode_committed("g", "t", 0, CommittedOffset(offset, -1, "", 0)), (), None)],
        leader_epoch=partition.log.leader_epoch,
    )
    partition.log.append(batch, read_header(batch), ManualClock().now())


def all_have(partition: Partition) -> None:
    partition.log.advance_high_watermark(partition.log.next_offset)
    partition.wake()


class Gone(Turns):
    """Something happens in one of the turns that others have."""

    def __init__(self, happens: Callable[[], None] = lambda: None, turn: int = 1) -> None:
        super().__init__(lambda: 0)
        self.happens = happens
        self.left = turn

    def is_over(self) -> bool:
        return True

    async def next(self) -> None:
        self.left -= 1
        if self.left == 0:
            self.happens()


async def ask(broker: Broker, api_key: int, version: int, turns: Turns | None = None, **values: Any) -> Any:
    house = broker.house
    server: Any = SimpleNamespace(
        groups=broker.groups,
        topics=house.topics,
        turns=turns or Gone(),
        memory=Memory(-1),
        settings=house.settings,
        node_id=1,
        cluster=SimpleNamespace(until_nobody_is_missed=lambda: asyncio.sleep(0)),
        brokers=lambda listener, local_host: [(1, "one", 9092, None), (2, "two", 9093, None)],
    )
    api = apis()[api_key]
    assert api.handle is not None
    call = Call(server, api.name, version, "test", "127.0.0.1", "PLAINTEXT", house.clock.now())
    return await api.handle(SimpleNamespace(**values), call)
