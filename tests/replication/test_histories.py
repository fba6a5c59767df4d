"""Whatever happens to brokers, links, disks and the tree: what was acknowledged stands, once and in order."""

import logging
from collections.abc import Iterator

import pytest

from tests.depth import deeper, scaled
from tests.replication.chances import DISKS, FULL, LEASES, MOVING, OLD, ROUGH, USUAL, Chances
from tests.replication.cluster import Cluster
from tests.replication.mutants import MUTANTS, Mutant

SEEDS = scaled(60)
SEEDS_A_MUTANT = 600


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """A log that is cut back says so, and here that is what happens all the time."""
    logging.disable(logging.WARNING)
    yield
    logging.disable(logging.NOTSET)


@deeper
@pytest.mark.parametrize(
    "chances",
    [USUAL, ROUGH, OLD, LEASES, MOVING, DISKS],
    ids=["usual", "rough", "old", "leases", "moving", "disks"],
)
def test_what_was_acknowledged_stands_whatever_fails(chances: Chances) -> None:
    for seed in range(SEEDS):
        Cluster(seed, chances).run()


def test_the_histories_hold_what_they_are_about() -> None:
    told = ""
    for seed in range(30):
        cluster = Cluster(seed)
        cluster.run()
        told += "\n".join(cluster.told)
        assert len(cluster.promises.safe) > 10
    for fault in ("kill", "power", "pause", "cut", "cut-tree", "stop"):
        assert f"  {fault} of broker" in told
    assert told.count(" leads in epoch ") > 60
    assert "last=((" in told


def test_brokers_with_full_disks_give_way_in_the_histories() -> None:
    told = ""
    for seed in range(10):
        cluster = Cluster(seed, FULL)
        cluster.run()
        told += "\n".join(cluster.told)
    assert told.count(" gives way") > 5


@pytest.mark.parametrize("mutant", MUTANTS, ids=str)
def test_a_broken_rule_is_caught(mutant: Mutant) -> None:
    with mutant.applied():
        for seed in range(mutant.since, mutant.since + SEEDS_A_MUTANT):
            try:
                Cluster(seed, mutant.chances).run()
            except mutant.breaks:
                return
    pytest.fail(f"nothing caught it in {SEEDS_A_MUTANT} histories")
