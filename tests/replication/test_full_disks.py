"""A leader whose disk is full: it gives way to who may have room, and is in sync again once it has some itself."""

import pytest

from oncelog.log.errors import LogStorageError
from oncelog.log.partition import PartitionLog
from oncelog.log.room import AGAIN_MS
from oncelog.replication.leader import Rules
from oncelog.replication.leadership import NOBODY, Leadership, Peer, successor
from oncelog.replication.replica import Replica
from tests.log.memory_disk import ENOUGH_BYTES, MemoryDisk
from tests.log.support import NOW, open_log, put

ALL = {broker: Peer(1) for broker in range(3)}
STATE = Leadership((0, 1, 2), 1, 4, in_sync=(0, 1, 2), version=8)
ELECTED = STATE._replace(epoch=5, version=9)


@pytest.fixture
def disk() -> MemoryDisk:
    return MemoryDisk()


def full(disk: MemoryDisk, rules: Rules | None = None) -> Replica:
    """It leads, and was refused an append."""
    log = open_log(disk, replicated=True)
    mine = Replica(1, log, rules or Rules(2), is_clean=True)
    mine.see(STATE, 0)
    change = mine.change(ALL, 0)
    assert change is not None and change.state == ELECTED
    mine.see(change.state, 0)
    disk.capacity_bytes = 0
    with pytest.raises(LogStorageError):
        put(log, b"a")
    return mine


def test_it_gives_way_and_is_waited_for_no_more(disk: MemoryDisk) -> None:
    mine = full(disk)
    change = mine.change(ALL, 0)
    assert change is not None
    assert change.state == ELECTED._replace(leader=NOBODY, in_sync=(0, 2), version=10), "it lacks nothing"
    assert successor(change.state, ALL) == 0
    mine.see(change.state, 0)
    assert mine.leader is None


def test_it_asks_for_records_once_the_disk_takes_some(disk: MemoryDisk) -> None:
    mine = full(disk)
    mine.see(ELECTED._replace(leader=0, epoch=6, in_sync=(0, 2), version=11), 0)
    assert (mine.change(ALL, 0), mine.fetch()) == (None, None), "it would be in sync where nothing comes"
    disk.capacity_bytes = ENOUGH_BYTES
    assert (mine.change(ALL, AGAIN_MS - 1), mine.fetch()) == (None, None), "it does not try all the time"
    assert mine.change(ALL, AGAIN_MS) is None
    assert mine.fetch() is not None
    assert isinstance(mine.log, PartitionLog)
    assert not mine.log.refuses


def test_it_leads_on_where_there_is_room_again_before_it_gave_way(disk: MemoryDisk) -> None:
    mine = full(disk)
    disk.capacity_bytes = ENOUGH_BYTES
    assert mine.change(ALL, 0) is None


@pytest.mark.parametrize(
    "others",
    [
        {0: Peer(1, is_live=False), 2: Peer(1, is_live=False)},
        {0: Peer(1, is_stopping=True), 2: Peer(1, is_live=False)},
        {},
    ],
    ids=["down", "about to end", "unknown"],
)
def test_it_leads_on_where_nobody_else_is_in_sync_and_stays(disk: MemoryDisk, others: dict[int, Peer]) -> None:
    mine = full(disk)
    change = mine.change({1: Peer(1)} | others, 0)
    assert change is not None and change.state.leader == 1, "who is not there leaves the in-sync set, as always"


def test_the_last_but_one_is_eligible(disk: MemoryDisk) -> None:
    mine = full(disk)
    mine.see(ELECTED._replace(in_sync=(1, 2), version=10), 0)
    change = mine.change(ALL, 0)
    assert change is not None
    assert (change.state.leader, change.state.in_sync, change.state.eligible) == (NOBODY, (2,), (1,))
    alone = ELECTED._replace(leader=2, epoch=6, in_sync=(2,), eligible=(1,), version=12)
    mine.see(alone, 0)
    gone = mine.change(ALL | {2: Peer(1, is_live=False)}, 0)
    assert gone is not None and gone.state.leader == 1, "what it has can be read"


def test_the_preferred_leader_does_not_lead_again_while_its_disk_is_full(disk: MemoryDisk) -> None:
    mine = full(disk, Rules(2, prefer_after_ms=1))
    mine.see(Leadership((1, 0, 2), 0, 6, in_sync=(0, 1, 2), version=12), 0)
    change = mine.change(ALL, 1)
    assert change is not None
    assert (change.state.leader, change.state.epoch, change.state.in_sync) == (0, 6, (0, 2))


def test_where_its_epoch_began_is_known_after_a_refused_append(disk: MemoryDisk) -> None:
    """Followers whose last record is of that epoch would otherwise be told that nothing they have is its own."""
    mine = full(disk)
    assert isinstance(mine.log, PartitionLog)
    assert mine.log.epochs.entries == ((5, 0),)
    disk.capacity_bytes = ENOUGH_BYTES
    put(mine.log, b"a")
    assert mine.log.end_of_epoch(5) == (5, 1)


def test_a_follower_whose_disk_refused_a_batch_does_not_know_its_epoch(disk: MemoryDisk) -> None:
    leads, log = open_log(MemoryDisk(), replicated=True), open_log(disk, replicated=True)
    for epoch in (3, 4):
        leads.begin_epoch(epoch)
        put(leads, b"a")
    batches = leads.read(0, 1 << 20, limit_offset=leads.next_offset)
    disk.capacity_bytes = 0
    with pytest.raises(LogStorageError):
        log.append_replicated(batches, NOW)
    assert log.epochs.entries == ()
    disk.capacity_bytes = ENOUGH_BYTES
    log.append_replicated(batches, NOW)
    assert log.epochs.entries == leads.epochs.entries == ((3, 0), (4, 1))
