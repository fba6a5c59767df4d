"""Groups that go over from one protocol to the other and back, whatever their members, the topics and the disk do: no
partition has two readers, and all have one when it is quiet."""

from collections import Counter
from collections.abc import Callable
from random import Random
from uuid import UUID

import pytest

from oncelog.server import local_topics
from tests.depth import deeper, scaled
from tests.server.groups.mixed_model import Model

SEEDS = 6
STEPS = 200


def ids_from(random: Random) -> Callable[[], UUID]:
    """Of topics: by their ids partitions are shared out."""
    return lambda: UUID(int=random.getrandbits(128))


@deeper
@pytest.mark.parametrize("policy", ["bidirectional", "upgrade"])
async def test_no_partition_has_two_readers_while_members_change_their_protocol(
    policy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    moves: Counter[str] = Counter()
    for seed in range(scaled(SEEDS)):
        monkeypatch.setattr(local_topics, "uuid4", ids_from(Random(seed)))
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
