"""One process at a time, without faults: it is driven until something is as a test wants it."""

from collections.abc import Callable
from dataclasses import replace

from oncelog.flow.states import State
from tests.flow.cluster import Cluster, Rules
from tests.flow.process import Process
from tests.flow.world import World

MOST_STEPS = 2_000


def calm(seed: int = 1, *, has_plan: bool = False, asks: bool = False) -> World:
    world = World(seed, Rules(has_plan=has_plan, asks=asks))
    world.limits = replace(world.limits, last_epoch=30_000)
    world.shown = [len(records.offsets) for records in world.inputs]
    return world


def drive(world: World, process: Process, is_there: Callable[[], bool], most: int = MOST_STEPS) -> bool:
    """Its steps, and a millisecond now and then; whether it got there."""
    for step in range(most):
        process.sleeps = 0
        process.turn()
        if is_there():
            return True
        for node, conn in process.conns.items():
            if conn.queue:
                process.deliver(node, 0.0)
        world.now_ms += step % 5 == 0
    return False


def at_the_end(world: World, code: str = "7") -> Process:
    """A holder that has taken and committed everything."""
    process = Process(world, code=code)
    assert drive(world, process, lambda: is_done(world, process))
    return process


def is_done(world: Cluster, process: Process) -> bool:
    done = process.cell.journal.commit
    return done is not None and sum(each.next_offset for each in done.inputs) == world.total


def has_committed(process: Process, number: int) -> bool:
    return process.cell.number == number and process.cell.parts.commits.under_way is None


def is_working(process: Process) -> bool:
    return process.cell.state is State.WORKING
