"""Whatever dies, tears or refuses: no pid and no start epoch is handed out twice.

The disk is the twin in memory. A failing case names its seed and step, and running it again fails in the same way.
"""

import errno
import random
from dataclasses import dataclass, field
from itertools import pairwise

import pytest

from oncelog.clock import ManualClock
from oncelog.cluster import FileCluster
from oncelog.producers.leases import BLOCK_PIDS
from oncelog.server.ports import ClusterStorageError, PidKind
from tests.log.memory_disk import Died, MemoryDisk

FOLDER = "/data"


@dataclass
class Promised:
    """What callers were told, in the order they were told it, over all starts of one data folder."""

    cluster_ids: set[str] = field(default_factory=set)
    epochs: list[int] = field(default_factory=list)
    first_pids: dict[PidKind, list[int]] = field(default_factory=lambda: {kind: [] for kind in PidKind})

    def check(self, case: str) -> None:
        assert len(self.cluster_ids) <= 1, case
        assert all(later > earlier for earlier, later in pairwise(self.epochs)), f"{case}: {self.epochs}"
        for firsts in self.first_pids.values():
            assert all(later >= earlier + BLOCK_PIDS for earlier, later in pairwise(firsts)), f"{case}: {firsts}"


def start(disk: MemoryDisk) -> FileCluster:
    return FileCluster(disk, FOLDER, ManualClock(), node_id=1, lease_lifetime_ms=86_400_000)


def work(disk: MemoryDisk, promised: Promised) -> None:
    """Two starts, each with a few reservations."""
    for _ in range(2):
        cluster = start(disk)
        promised.cluster_ids.add(cluster.cluster_id)
        promised.epochs.append(cluster.start_epoch)
        for kind in (PidKind.LEASED, PidKind.KAFKA, PidKind.LEASED):
            promised.first_pids[kind].append(cluster.take_pids(kind, BLOCK_PIDS).first_pid)
        cluster.close()


def steps_of_work() -> int:
    disk = MemoryDisk()
    work(disk, Promised())
    return disk.operations


@pytest.mark.parametrize("keep_all", [True, False], ids=["killed", "power-failure"])
def test_nothing_is_handed_out_twice_after_a_crash_between_any_two_steps(keep_all: bool) -> None:
    steps = steps_of_work()
    assert steps > 50
    for step in range(steps):
        for seed in range(8):
            disk, promised = MemoryDisk(seed), Promised()
            disk.die_at(step)
            with pytest.raises(Died):
                work(disk, promised)
            work(disk.crash(keep_all=keep_all), promised)
            promised.check(f"seed {seed}, died in step {step}")


@pytest.mark.parametrize("seed", range(40))
def test_nothing_is_handed_out_twice_over_a_row_of_crashes(seed: int) -> None:
    chance = random.Random(seed)
    disk, promised = MemoryDisk(seed), Promised()
    for _ in range(15):
        disk.die_at(chance.randrange(70))
        try:
            work(disk, promised)
        except Died:
            disk = disk.crash(keep_all=chance.random() < 0.5)
        promised.check(f"seed {seed}")


@pytest.mark.parametrize("operation", ["open", "truncate", "pwritev", "fdatasync", "rename", "sync_folder"])
@pytest.mark.parametrize("error_number", [errno.EIO, errno.ENOSPC, errno.EROFS])
def test_a_disk_that_refuses_any_step_refuses_the_reservation_and_the_next_one_stands(
    operation: str, error_number: int
) -> None:
    disk = MemoryDisk()
    cluster = start(disk)
    assert cluster.take_pids(PidKind.LEASED, 100).first_pid == 1
    now = ManualClock().now()
    disk.fail(operation, error_number)
    for kind in PidKind:
        with pytest.raises(ClusterStorageError, match=r"server\.meta"):
            cluster.take_pids(kind, 100)
    assert cluster.may_be_new(100, now)
    assert not cluster.may_be_new(101, now)
    disk.heal()
    assert cluster.take_pids(PidKind.LEASED, 100).first_pid == 101
    assert start(disk.crash()).take_pids(PidKind.LEASED, 100).first_pid == 201


def test_a_full_disk_refuses_and_leaves_the_file_as_it_was() -> None:
    disk = MemoryDisk()
    cluster = start(disk)
    disk.capacity_bytes = disk.size(f"{FOLDER}/server.meta") + 10
    with pytest.raises(ClusterStorageError, match="No space left"):
        cluster.take_pids(PidKind.LEASED, 100)
    assert start(disk.crash()).take_pids(PidKind.LEASED, 100).first_pid == 1


def test_short_writes_are_finished() -> None:
    for seed in range(20):
        disk = MemoryDisk(seed)
        disk.short_writes = True
        promised = Promised()
        work(disk, promised)
        work(disk.crash(), promised)
        promised.check(f"seed {seed}")


def test_a_disk_that_refuses_at_the_end_does_not_keep_a_server_from_closing() -> None:
    disk = MemoryDisk()
    cluster = start(disk)
    disk.fail("pwritev", errno.EIO)
    cluster.close()
