"""Groups of KIP-848 whatever their members, the topics and the disk do: no partition has two owners, and all have one
when it is quiet."""

import pytest

from tests.depth import deeper, scaled
from tests.server.groups.consumer_model import Model

SEEDS = 40
STEPS = 250


@deeper
@pytest.mark.parametrize("assignor", ["uniform", "range"])
def test_no_partition_has_two_owners_whatever_happens(assignor: str) -> None:
    for seed in range(scaled(SEEDS)):
        model = Model(seed, assignor=assignor)
        try:
            for _ in range(STEPS):
                model.act()
            model.settle()
            model.check_quiet()
        except AssertionError as failed:
            raise AssertionError(f"seed {seed}: {failed}") from failed
