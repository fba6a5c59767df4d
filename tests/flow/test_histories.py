"""Whatever happens to holders, brokers and answers: the outputs are those of a run that nothing disturbed, in their
order, and what a holder restores is the fold of the input up to its last commit.
"""

from functools import partial

import pytest

from tests.depth import deeper, scaled
from tests.flow.alone import MOST_STEPS, calm, drive, is_done
from tests.flow.cluster import Rules
from tests.flow.mutants import MUTANTS, Mutant
from tests.flow.process import Process
from tests.flow.world import World

SEEDS = scaled(100)
LEAST_STEPS = 50
SEEDS_A_MUTANT = 6_000  # the rarest is caught by one in some 1,500


@deeper
@pytest.mark.parametrize("has_plan", [False, True], ids=["without a plan", "with a plan"])
def test_every_history_ends_as_if_nothing_had_happened(has_plan: bool) -> None:
    for seed in range(SEEDS):
        World(seed, Rules(has_plan=has_plan, asks=seed % 2 == 0)).run()


@pytest.mark.parametrize("has_plan", [False, True], ids=["without a plan", "with a plan"])
def test_a_crash_at_each_step_of_a_run_changes_nothing(has_plan: bool) -> None:
    """And what was queued is lost, or arrives late."""
    for step in range(MOST_STEPS):
        world = calm(2, has_plan=has_plan, asks=True)
        process = Process(world)
        world.holders.append(process)
        if drive(world, process, partial(is_done, world, process), most=step):
            break
        process.kill()
        world.finish()
        world.check()
    assert LEAST_STEPS < step < MOST_STEPS - 1


def test_the_histories_hold_what_they_are_about() -> None:
    """Crashes, sleeps, lost answers, and holders that get far enough to restore something."""
    world = World(0, Rules())
    for seed in range(30):
        each = World(seed, Rules())
        each.run()
        world.seen += each.seen
    assert all(world.seen[what] > 30 for what in ("crashes", "sleeps", "lost", "restores", "AGAIN"))


@pytest.mark.parametrize("mutant", MUTANTS, ids=str)
def test_a_broken_rule_is_caught(mutant: Mutant) -> None:
    with mutant.applied():
        for seed in range(mutant.first_seed, mutant.first_seed + SEEDS_A_MUTANT):
            try:
                World(seed, mutant.rules).run()
            except AssertionError:
                return
    pytest.fail(f"nothing caught it in {SEEDS_A_MUTANT} histories")
