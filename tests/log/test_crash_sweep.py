"""Crash between any two steps: one scripted life of a log, killed in every single one of its disk operations.

After each kill the log is opened again, the producer sends again what it has no answer for, and everything is counted.
"""

from dataclasses import dataclass, field, replace

import pytest

from oncelog.log.partition import PartitionLog
from oncelog.producers import Decision
from tests.log.memory_disk import Died, MemoryDisk
from tests.log.support import LEASED, SMALL, append, at, batch, open_log, records_in, seed

COMPACTED = replace(SMALL, cleanup_policy=("compact",), min_cleanable_dirty_ratio=0.0, delete_retention_ms=1 << 40)
KEYS = [b"a", b"b", b"c", b"d"]


@dataclass
class Life:
    """What the world outside knows of the log."""

    acknowledged: dict[int, tuple[int, bytes]] = field(default_factory=dict)  # sequence: offset, value
    flushed_sequence: int = -1
    log_start: int = 0
    end: int = 0
    flushed_end: int = 0
    epoch: int = -1
    flushed_epoch: int = -1
    in_doubt: int = -1  # the sequence of a batch that was sent and not answered


class Script:
    """The same steps every time, whatever the disk does."""

    def __init__(self, life: Life, config=SMALL) -> None:  # type: ignore[no-untyped-def]
        self.life = life
        self.config = config
        self.sequence = 0
        self.clock_ms = 0

    def opened(self, disk: MemoryDisk) -> PartitionLog:
        log = open_log(disk, self.config, at(self.clock_ms))
        assert log.offline is None, log.offline
        assert log.leader_epoch > self.life.epoch or log.next_offset == 0 or self.life.epoch < 0
        self.life.epoch = log.leader_epoch
        return log

    def send(self, log: PartitionLog, count: int = 2) -> None:
        self.clock_ms += 10
        sequence = self.sequence
        values = [b"%d" % (sequence + each) for each in range(count)]
        key = KEYS[sequence // 2 % len(KEYS)]
        self.life.in_doubt = sequence
        made = batch(*values, pid=LEASED, sequence=sequence, key=key, timestamp_ms=at(self.clock_ms).wall_ms)
        staged = append(log, made, at(self.clock_ms))
        assert staged.decision is Decision.APPEND
        for each, value in enumerate(values):
            self.life.acknowledged[sequence + each] = (staged.base_offset + each, value)
        self.life.in_doubt = -1
        self.life.end = log.next_offset
        self.sequence = sequence + count

    def flush(self, log: PartitionLog) -> None:
        log.checkpoint(at(self.clock_ms))
        self.flushed()

    def flushed(self) -> None:
        self.life.flushed_sequence = self.sequence - 1
        self.life.flushed_end = self.life.end
        self.life.flushed_epoch = self.life.epoch

    def run(self, disk: MemoryDisk) -> None:
        log = self.opened(disk)
        for _ in range(6):
            self.send(log)
        self.flush(log)
        for _ in range(7):
            self.send(log)
        if self.config.deletes:
            log.delete_before(6, at(self.clock_ms))
            self.life.log_start = log.log_start_offset
        else:
            log.compact(at(self.clock_ms))
        self.send(log)
        log.flush()
        self.flushed()
        log.close()
        log = self.opened(disk)
        for _ in range(5):
            self.send(log)
        self.flush(log)
        log.maintain(at(self.clock_ms))
        if self.config.compacts:
            log.compact(at(self.clock_ms))
        self.send(log)
        log.close()
        self.flushed()


def check_after(life: Life, config, disk: MemoryDisk, *, keep_all: bool, what: str) -> None:  # type: ignore[no-untyped-def]
    log = open_log(disk, config, at(100_000))
    assert log.offline is None, f"{what}: {log.offline}"
    survives = len(life.acknowledged) - 1 if keep_all else life.flushed_sequence
    assert log.next_offset >= (life.end if keep_all else life.flushed_end), what
    assert log.log_start_offset >= life.log_start, what
    assert log.leader_epoch > (life.epoch if keep_all else life.flushed_epoch), what
    known = log.producers.highwater(LEASED)
    assert known is None or known[1] >= survives, what
    assert known is not None or survives < 0, what

    # The producer sends again what may not have arrived. What is there is a duplicate, the rest is appended.
    first_lost = 0 if known is None else known[1] + 1
    assert first_lost % 2 == 0, f"{what}: half a batch"
    again = max(0, first_lost - 4)
    last = max([*life.acknowledged, life.in_doubt]) if life.acknowledged or life.in_doubt >= 0 else -1
    for sequence in range(again, last + 1, 2):
        values = [b"%d" % sequence, b"%d" % (sequence + 1)]
        key = KEYS[sequence // 2 % len(KEYS)]
        staged = append(log, batch(*values, pid=LEASED, sequence=sequence, key=key), at(100_000))
        expected = Decision.DUPLICATE if sequence < first_lost else Decision.APPEND
        assert staged.decision is expected, f"{what}: {sequence} of {first_lost}"
        if expected is Decision.DUPLICATE and staged.base_offset >= 0 and sequence in life.acknowledged:
            assert staged.base_offset == life.acknowledged[sequence][0], what
    check_contents(log, life, config, survives, what)
    end = log.next_offset
    log.close()
    log = open_log(disk, config, at(100_001))
    assert log.offline is None and log.next_offset == end and log.recovered.scanned_bytes == 0, what
    check_contents(log, life, config, survives, what)
    log.close()


def check_contents(log: PartitionLog, life: Life, config, survives: int, what: str) -> None:  # type: ignore[no-untyped-def]
    found = records_in(log)
    offsets = [record.offset for record in found]
    assert offsets == sorted(set(offsets)), what
    values = [int(record.value or b"-1") for record in found]
    assert values == sorted(set(values)), f"{what}: a record is there twice or out of order: {values}"
    there = dict(zip(values, offsets, strict=True))
    newest_of_key = {KEYS[value // 2 % len(KEYS)]: value for value in range(max(values, default=-1) + 1)}
    for sequence, (offset, _) in life.acknowledged.items():
        if offset < log.log_start_offset:
            continue
        if config.deletes or newest_of_key[KEYS[sequence // 2 % len(KEYS)]] == sequence:
            assert sequence in there, f"{what}: the acknowledged record {sequence} is missing"
            if sequence <= survives:
                assert there[sequence] == offset, f"{what}: record {sequence} moved"


def operations_of_the_script(config) -> int:  # type: ignore[no-untyped-def]
    disk = MemoryDisk(seed())
    Script(Life(), config).run(disk)
    return disk.operations


CONFIGS = {"deleted": SMALL, "compacted": COMPACTED}


@pytest.mark.parametrize("keep_all", [True, False], ids=["killed", "power-failure"])
@pytest.mark.parametrize("policy", CONFIGS)
def test_a_crash_in_any_disk_operation_loses_nothing_and_doubles_nothing(policy: str, keep_all: bool) -> None:
    config = CONFIGS[policy]
    count = operations_of_the_script(config)
    assert count > 80
    rounds = 1 if keep_all else 3
    for step in range(count):
        for round_ in range(rounds):
            disk = MemoryDisk(seed() + 1000 * round_)
            disk.die_at(step)
            life = Life()
            with pytest.raises(Died):
                Script(life, config).run(disk)
            what = f"ONCELOG_SEED={seed()} round {round_}, died in operation {step}: {disk.trace[-1]}"
            check_after(life, config, disk.crash(keep_all=keep_all), keep_all=keep_all, what=what)
