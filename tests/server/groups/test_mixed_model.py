"""Groups that go over from one protocol to the other and back, whatever their members, the topics and the disk do: no
partition has two readers, and all have one when it is quiet."""

from collections import Counter

import pytest

from tests.depth import deeper, scaled
from tests.server.groups.mixed_model import Model

SEEDS = 10
STEPS = 200


@deeper
@pytest.mark.parametrize("policy", ["bidirectional", "upgrade"])
async def test_no_partition_has_two_readers_while_members_change_their_protocol(policy: str) -> None:
    moves: Counter[str] = Counter()
    for seed in range(scaled(SEEDS)):
        model = Model(seed, policy)
        try:
            for _ in range(STEPS):
                await model.act()
            await model.settle()
            model.check_quiet()
        except AssertionError as failed:
            raise AssertionError(f"seed {seed}: {failed}") from failed
        moves += model.moves
    assert moves["classic to consumer"] > scaled(SEEDS) / 2, moves
    assert policy == "upgrade" or moves["consumer to classic"] > scaled(SEEDS) / 2, moves
