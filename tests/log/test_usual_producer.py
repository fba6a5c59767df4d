"""What `stage` does at once for the usual batch of a producer is what the producer map would have decided."""

import errno
from typing import Any

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from oncelog.log.config import LogConfig
from oncelog.log.errors import LogStorageError
from oncelog.log.partition import PartitionLog
from oncelog.producers import ProducerMap
from oncelog.records.header import check_produced
from tests.log.memory_disk import MemoryDisk
from tests.log.support import FOLDER, KAFKA_PID, LEASED, OTHER_LEASED, at, batch

CONFIG = LogConfig(segment_bytes=2000, index_interval_bytes=150, retention_ms=-1)
PIDS = st.sampled_from([-1, LEASED, OTHER_LEASED, KAFKA_PID, KAFKA_PID + 1])


class Judging(ProducerMap):
    """Never takes the short way."""

    def accept_next(self, *batch: Any) -> bool:
        return False


class ShortWayInALog(RuleBasedStateMachine):
    @initialize(seed=st.integers(0, 1 << 16))
    def begin(self, seed: int) -> None:
        self.ms = 0
        self.disks = [MemoryDisk(seed), MemoryDisk(seed)]
        self.open()

    def open(self) -> None:
        self.logs = [
            PartitionLog.open(disk, FOLDER, CONFIG, kind(), at(self.ms), topic="orders")
            for disk, kind in zip(self.disks, (ProducerMap, Judging), strict=True)
        ]
        self.next: dict[int, int] = {}

    @rule(
        pid=PIDS,
        batches=st.integers(1, 12),
        count=st.integers(1, 3),
        back=st.sampled_from([0, 0, 0, 1, 2, 5, -1]),
        generation=st.integers(0, 1),
        fails=st.booleans(),
    )
    def a_chunk(self, pid: int, batches: int, count: int, back: int, generation: int, fails: bool) -> None:
        self.ms += 1
        before = dict(self.next)
        for number in range(batches):
            sequence = max(0, self.next.get(pid, 0) - (back if number == batches - 1 else 0)) if pid > 0 else -1
            values = [b"%d" % (sequence + n) for n in range(count)]
            staged = []
            for log in self.logs:
                buffer = batch(*values, pid=pid, generation=generation, sequence=sequence)
                staged.append(log.stage(buffer, check_produced(buffer), at(self.ms)))
            assert staged[0] == staged[1]
            known = self.logs[1].producers.highwater(pid)
            if known is not None:
                self.next[pid] = known[1] + 1
        if fails:
            for disk in self.disks:
                disk.fail("pwritev", errno.EIO, 1)
        failures = [self.failure_of(log) for log in self.logs]
        assert failures[0] == failures[1]
        for disk in self.disks:
            disk.heal()
        if failures[0]:
            self.next = before

    def failure_of(self, log: PartitionLog) -> str:
        try:
            log.commit()
        except LogStorageError as failure:
            return str(failure)
        return ""

    @rule(pid=st.sampled_from([LEASED, OTHER_LEASED]), generation=st.integers(1, 2))
    def a_fence(self, pid: int, generation: int) -> None:
        self.same(lambda log: log.fence(pid, generation, at(self.ms)))

    @rule(back=st.integers(0, 20))
    def the_log_is_cut_back(self, back: int) -> None:
        offset = max(self.logs[0].log_start_offset, self.logs[0].next_offset - back)
        self.same(lambda log: log.truncate_to(offset))
        for pid in list(self.next):
            known = self.logs[1].producers.highwater(pid)
            self.next[pid] = 0 if known is None else known[1] + 1

    @rule(ms=st.sampled_from([10, 40_000_000, 90_000_000]))
    def producers_expire(self, ms: int) -> None:
        self.ms += ms
        self.same(lambda log: log.producers.expire(at(self.ms)))

    @rule(is_killed=st.booleans())
    def a_restart(self, is_killed: bool) -> None:
        for number, (disk, log) in enumerate(zip(self.disks, self.logs, strict=True)):
            if is_killed:
                self.disks[number] = disk.crash(keep_all=True)
            else:
                log.close()
        self.open()

    def same(self, ask: Any) -> None:
        short, judged = [ask(log) for log in self.logs]
        assert short == judged

    def teardown(self) -> None:
        self.same(lambda log: (log.next_offset, log.offline, log.producers.encode(at(self.ms))))


TestShortWayInALog = ShortWayInALog.TestCase
TestShortWayInALog.settings = settings(stateful_step_count=25, derandomize=True)
