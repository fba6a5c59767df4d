"""A partition of a shared folder is open in one process at a time, whatever is late, hangs or dies; and in the end in
the one that is to have it. Histories of workers and their parent, by seed."""

import random
from collections.abc import Collection

import pytest

from oncelog.replication.leadership import Leadership
from oncelog.replication.sharing import (
    beginning,
    changed_by_parent,
    changed_by_worker,
    deleted,
    is_deleted,
    is_free,
    may_open,
    serves,
    shared_out,
)

WORKERS = (1, 2, 3)
STEPS = 300


class Process:
    def __init__(self, number: int) -> None:
        self.number = number
        self.seen = Leadership(())
        self.epoch: int | None = None  # of the log, while that is open


class World:
    """The tree takes a change that was made from the version it has. What was sent arrives later, or never; also when
    its sender has ended."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.state = beginning(WORKERS[0])
        self.epoch = 0
        self.sent: list[Leadership] = []
        self.processes = {number: Process(number) for number in WORKERS}
        self.is_to_go = False

    def step(self) -> None:
        process = self.processes.get(self.chance.choice(WORKERS))
        match self.chance.randrange(8):
            case 0 | 1 if process is not None:
                process.seen = self.state
            case 2 | 3 if process is not None:
                self.act(process)
            case 4 | 5 if self.sent:
                self.arrive(self.sent.pop(self.chance.randrange(len(self.sent))))
            case 6 if process is not None and self.chance.randrange(4) == 0:
                del self.processes[process.number]  # killed, and reaped
            case 7:
                self.parent(self.ended())

    def ended(self) -> Collection[int]:
        return set(WORKERS) - self.processes.keys()

    def act(self, process: Process) -> None:
        me, seen = process.number, process.seen
        if may_open(seen, me) and process.epoch is None:
            self.epoch += 1
            process.epoch = self.epoch
            having = [each.number for each in self.processes.values() if each.epoch is not None]
            assert having == [me], f"open at {having}"
        elif not may_open(seen, me):
            process.epoch = None
        change = changed_by_worker(seen, me, process.epoch)
        if change is not None:
            self.sent.append(change)

    def arrive(self, change: Leadership) -> None:
        if change.version == self.state.version + 1:
            self.state = change

    def parent(self, ended: Collection[int]) -> None:
        """What it says counts at once, unless others were faster. Only then it starts another process."""
        working = [number for number in WORKERS if number not in ended]
        change = changed_by_parent(self.state, shared_out("orders", 0, WORKERS, working), ended)
        if change is not None and self.chance.randrange(4):
            self.state = change
        for number in WORKERS:
            if number not in self.processes and self.chance.randrange(2):
                self.processes[number] = Process(number)

    def calm(self) -> None:
        """Nothing is late or dies any more."""
        for _ in range(40):
            self.parent(self.ended())
            for process in self.processes.values():
                process.seen = self.state
                self.act(process)
                while self.sent:
                    self.arrive(self.sent.pop(0))


@pytest.mark.parametrize("seed", range(300))
def test_it_is_open_in_one_process_at_a_time(seed: int) -> None:
    world = World(seed)
    for _ in range(STEPS):
        world.step()
    world.calm()
    first = shared_out("orders", 0, WORKERS, WORKERS)
    assert [each.number for each in world.processes.values() if each.epoch is not None] == [first]
    assert serves(world.state, first, world.processes[first].epoch or -1)
    world.state = world.state._replace(replicas=deleted([world.state])[0].replicas, version=world.state.version + 1)
    world.calm()
    assert is_deleted([world.state]) and is_free([world.state])


class Hasty(World):
    """Its parent takes a worker that is silent for one that has ended."""

    def ended(self) -> Collection[int]:
        silent = [number for number in WORKERS if self.chance.randrange(4) == 0]
        return {*super().ended(), *silent}


class Early(World):
    """Its parent starts another process before what the one before it had is free."""

    def parent(self, ended: Collection[int]) -> None:
        before = self.state
        super().parent(ended)
        for number in ended:
            self.processes.setdefault(number, Process(number)).seen = before


@pytest.mark.parametrize("wrong", [Hasty, Early])
def test_a_parent_that_is_too_quick_is_found_out(wrong: type[World]) -> None:
    with pytest.raises(AssertionError, match="open at"):
        for seed in range(100):
            world = wrong(seed)
            for _ in range(STEPS):
                world.step()


def test_the_share_of_a_worker_that_is_gone_goes_to_the_others() -> None:
    shares = [shared_out("orders", index, WORKERS, WORKERS) for index in range(6)]
    assert sorted(shares) == [1, 1, 2, 2, 3, 3]
    without = [shared_out("orders", index, WORKERS, (1, 3)) for index in range(6)]
    assert all(now == before for now, before in zip(without, shares, strict=True) if before != 2)
    assert set(without) == {1, 3}
    assert shared_out("orders", 0, WORKERS, ()) == -1
