"""A coordinator on a disk in memory, with a clock and a timer that tests turn by hand."""

from collections.abc import Callable
from dataclasses import dataclass

from oncelog.clock import ManualClock
from oncelog.log.disk import Disk
from oncelog.log.work_steps import at_once
from oncelog.producers import ProducerMap
from oncelog.server.groups.coordinator import GroupCoordinator
from oncelog.server.groups.messages import JoinAnswer, JoinRequest
from oncelog.server.groups.offsets import TopicPartition
from oncelog.server.groups.records import CommittedOffset
from oncelog.server.local_topics import LocalTopics
from oncelog.server.settings import Settings
from oncelog.server.settings_reading import read_settings
from oncelog.server.topics import Partition
from tests.log.memory_disk import MemoryDisk

SESSION_MS = 10_000


@dataclass
class Timer:
    due_ms: int
    callback: Callable[[], None]
    is_cancelled: bool = False

    def cancel(self) -> None:
        self.is_cancelled = True


class ManualTimers:
    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.timers: list[Timer] = []

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> Timer:
        timer = Timer(self.clock.now().monotonic_ms + round(delay_s * 1000), callback)
        self.timers.append(timer)
        return timer

    def pending(self) -> list[Timer]:
        self.timers = [timer for timer in self.timers if not timer.is_cancelled]
        return sorted(self.timers, key=lambda timer: timer.due_ms)

    def advance(self, ms: int) -> None:
        end_ms = self.clock.now().monotonic_ms + ms
        while (due := self.pending()) and due[0].due_ms <= end_ms:
            self.clock.advance(max(due[0].due_ms - self.clock.now().monotonic_ms, 0))
            self.timers.remove(due[0])
            due[0].callback()
        self.clock.advance(end_ms - self.clock.now().monotonic_ms)


class House:
    """What a broker would own, as far as groups need it."""

    def __init__(self, *given: str, disk: Disk | None = None, clock: ManualClock | None = None) -> None:
        self.settings: Settings = read_settings(["log.dir=/data", *given])
        self.given = given
        self.disk = disk or MemoryDisk()
        self.clock = clock or ManualClock()
        self.timers = ManualTimers(self.clock)
        self.flushes: list[Partition] = []
        self.topics = LocalTopics(self.settings, self.disk, ProducerMap, self.clock.now())
        self.groups = GroupCoordinator(
            self.settings, self.topics, self.clock, self.timers.call_later, self.flushes.append
        )
        self.groups.start()

    def after_restart(self) -> "House":
        self.groups.stop()
        self.topics.close()
        return House(*self.given, disk=self.disk, clock=self.clock)

    def make_topic(self, name: str, partitions: int = 1) -> None:
        self.topics.create(name, partitions, {}, self.clock.now())

    def delete_topic(self, name: str) -> None:
        """Without its offsets."""
        topic = self.topics.get(name)
        assert topic is not None
        at_once(self.topics.deleting(topic, self.clock.now()))

    def delete_group(self, group_id: str) -> object:
        found: object = at_once(self.groups.deleting_group(group_id, self.clock.now()))
        return found

    def commit(self, group_id: str, topic: str, offset: int, partition: int = 0, metadata: str = "") -> object:
        now = self.clock.now()
        committed = CommittedOffset(offset, -1, metadata, now.wall_ms)
        return self.groups.commit(group_id, {TopicPartition(topic, partition): committed}, now)

    def offset(self, group_id: str, topic: str, partition: int = 0) -> int | None:
        found = self.groups.committed(group_id, topic, partition)
        return None if found is None else found.offset


def join_request(
    member_id: str = "", *, fresh_id: str = "m1", needs_known_id: bool = False, **more: object
) -> JoinRequest:
    values = {
        "member_id": member_id,
        "fresh_id": fresh_id,
        "protocol_type": "consumer",
        "protocols": (("range", b"\0\0\0\0\0\1\0\1t\xff\xff\xff\xff"),),
        "session_timeout_ms": SESSION_MS,
        "rebalance_timeout_ms": SESSION_MS,
        "needs_known_id": needs_known_id,
    }
    return JoinRequest(**(values | more))  # type: ignore[arg-type]


async def joined(house: House, group: str = "g", **more: object) -> JoinAnswer:
    answer = house.groups.join(group, join_request(**more), house.clock.now())  # type: ignore[arg-type]
    house.timers.advance(0)
    return answer if isinstance(answer, JoinAnswer) else await answer
