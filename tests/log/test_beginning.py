"""A follower that has nothing of what its leader still has begins anew there, with the producers as they were."""

import pytest

from oncelog.log import snapshots
from oncelog.log.names import snapshot_path
from oncelog.log.partition import PartitionLog
from oncelog.log.partition_checking import check_partition
from oncelog.producers import Decision, ProducerMap
from oncelog.records.header import check_produced
from tests.log.memory_disk import Died, MemoryDisk
from tests.log.support import FOLDER, KAFKA_PID, NOW, SMALL, at, batch, open_log, put, values_in
from tests.producers.partition import Granted

PIDS = (7, 8)


def filled(disk: MemoryDisk, *, epochs: int, a_time: int = 6) -> PartitionLog:
    log = open_log(disk, replicated=True)
    for epoch in range(1, epochs + 1):
        log.begin_epoch(epoch)
        for number in range((epoch - 1) * a_time, epoch * a_time):
            put(log, b"%d" % number, pid=PIDS[number % 2], generation=1, sequence=number // 2)
    log.advance_high_watermark(log.next_offset)
    return log


def leader_from(offset: int, disk: MemoryDisk | None = None) -> PartitionLog:
    leader = filled(disk or MemoryDisk(), epochs=4)
    leader.delete_before(offset, NOW)
    return leader


def old_follower(disk: MemoryDisk) -> PartitionLog:
    log = filled(disk, epochs=1)
    log.checkpoint(NOW)
    put(log, b"of no use", pid=KAFKA_PID, sequence=0)
    log.follow_epoch(4)
    return log


def followed(follower: PartitionLog, leader: PartitionLog) -> None:
    while batches := leader.read(follower.next_offset, 1 << 20, limit_offset=leader.next_offset):
        follower.append_replicated(batches, NOW)
    follower.advance_high_watermark(leader.high_watermark)


def test_it_goes_on_as_its_leader_does() -> None:
    leader, follower = leader_from(15), old_follower(MemoryDisk())
    first = leader.first_offset
    assert 6 < first < 15, "the start lies within a segment"
    follower.begin_anew(leader.beginning(), NOW)
    assert (follower.log_start_offset, follower.next_offset, follower.high_watermark) == (first, first, first)
    assert follower.leader_epoch == 4
    assert follower.epochs.last_before(first) == leader.epochs.last_before(first) > 0
    assert follower.producers.highwater(KAFKA_PID) is None
    followed(follower, leader)
    assert follower.epochs.entries == leader.epochs.entries
    for pid in PIDS:
        assert follower.producers.highwater(pid) == leader.producers.highwater(pid)
    follower.delete_before(leader.log_start_offset)
    assert values_in(follower) == values_in(leader)


@pytest.mark.parametrize("is_orderly", [True, False], ids=["stop", "kill"])
@pytest.mark.parametrize("goes_on", [True, False], ids=["with-records", "at-its-beginning"])
def test_it_is_there_after_a_start(is_orderly: bool, goes_on: bool) -> None:
    leader, disk = leader_from(15), MemoryDisk()
    follower = old_follower(disk)
    follower.begin_anew(leader.beginning(), NOW)
    if goes_on:
        followed(follower, leader)
    if is_orderly:
        follower.close()
    end, epochs = follower.next_offset, follower.epochs.entries
    for _ in range(2):
        disk = disk.crash(keep_all=True)
        assert not check_partition(disk, FOLDER).damage
        follower = open_log(disk, replicated=True, stayed_up=True)
        assert (follower.offline, follower.first_offset, follower.next_offset) == (None, leader.first_offset, end)
        assert follower.epochs.entries == epochs
    followed(follower, leader)
    assert follower.producers.highwater(7) == leader.producers.highwater(7)


@pytest.mark.parametrize("keep_all", [True, False], ids=["killed", "power-failure"])
def test_a_crash_at_any_step_leaves_the_old_log_or_the_new_one(keep_all: bool) -> None:
    leader, disk = leader_from(15), MemoryDisk()
    beginning = leader.beginning()
    follower = old_follower(disk)
    follower.flush()
    before = disk.operations
    follower.begin_anew(beginning, NOW)
    steps = range(before, disk.operations)
    assert len(steps) > 8
    ends = set()
    for step in steps:
        for seed in range(4):
            disk = MemoryDisk(seed)
            follower = old_follower(disk)
            follower.flush()
            disk.die_at(step)
            with pytest.raises(Died):
                follower.begin_anew(beginning, NOW)
                follower.flush()
            disk = disk.crash(keep_all=keep_all)
            assert not check_partition(disk, FOLDER, stayed_up=keep_all).damage
            back = open_log(disk, replicated=True, stayed_up=keep_all)
            assert back.offline is None, back.offline
            ends.add(back.next_offset)
            if back.next_offset != leader.first_offset:
                assert values_in(back)[:6] == [b"%d" % number for number in range(back.high_watermark)]
                back.follow_epoch(4)
                back.begin_anew(beginning, NOW)
            assert back.first_offset == leader.first_offset
            followed(back, leader)
            assert [back.producers.highwater(pid) for pid in PIDS] == [leader.producers.highwater(pid) for pid in PIDS]
    assert ends == {7, leader.first_offset}


def test_a_beginning_that_is_no_snapshot_changes_nothing_on_the_disk() -> None:
    disk = MemoryDisk()
    follower = old_follower(disk)
    with pytest.raises(Exception, match="no snapshot"):
        follower.begin_anew(b"something else", NOW)
    assert follower.offline is not None
    assert open_log(disk.crash(keep_all=True), replicated=True).next_offset == 7


# Where nobody knows the producers any more


def test_a_pid_passes_as_new_only_if_it_was_granted_since() -> None:
    disk = MemoryDisk()
    leader = leader_from(15, disk)
    disk.unlink(snapshot_path(FOLDER, leader.first_offset))
    granted = Granted({9: 100, 10: 200, 11: 201})
    producers = ProducerMap(granted)
    follower = PartitionLog.open(MemoryDisk(), FOLDER, SMALL, producers, at(0), replicated=True)
    follower.follow_epoch(4)
    follower.begin_anew(leader.beginning(), at(200))
    for _ in range(2):
        answers = [follower.producers.judge(pid, 1, 0, 1, at(202))[0] for pid in (9, 10, 11, KAFKA_PID)]
        assert answers == [Decision.UNKNOWN_PRODUCER, Decision.UNKNOWN_PRODUCER, Decision.APPEND, Decision.APPEND]
        assert follower.producers.judge_fence(9, 2, at(202)) is Decision.UNKNOWN_PRODUCER
        follower.producers.decode(follower.producers.encode(at(202)), at(202))
    followed(follower, leader)
    sent = batch(b"next", pid=8, generation=1, sequence=12)
    follower.begin_epoch(5)
    assert follower.append(sent, check_produced(sent), at(203)).decision is Decision.APPEND, "in what is still there"


def test_a_beginning_is_as_it_was_when_the_segment_began() -> None:
    leader = leader_from(15)
    snapshot = snapshots.decode(leader.beginning())
    assert snapshot is not None
    producers = ProducerMap()
    producers.decode(snapshot.producers, NOW)
    first = leader.first_offset
    assert sorted(producers.highwater(pid) or () for pid in PIDS) == sorted(
        [(1, (first - 1) // 2), (1, (first - 2) // 2)]
    )
    assert snapshot.point[:3] == (first, first, 0)
