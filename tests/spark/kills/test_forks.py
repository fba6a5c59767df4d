"""Some batches of sinks and of a copy, whose tasks, drivers and server are killed, stopped and doubled as a seed says.
`python -m tests.spark.kills forks` goes on for longer."""

import os

import pytest

from tests.peers.server_process import ServerProcess
from tests.spark.kills.forks import Forks

SEEDS = [int(each) for each in os.environ.get("KILLS_SEEDS", "7").split(",")]
BATCHES = 8


@pytest.mark.thorough
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", SEEDS)
def test_each_row_stands_once_whatever_happens_to_tasks_and_drivers(mortal: ServerProcess, seed: int) -> None:
    batches = iter(range(BATCHES))
    outcome = Forks(mortal, seed).run(lambda: next(batches, None) is not None)
    assert not outcome.wrong
    assert sum(outcome.batches.values()) == BATCHES
    assert outcome.hurts["kill"]
