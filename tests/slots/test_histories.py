"""No duplicate, no gap, no reorder, and every report true: a thousand histories by seed, or ten.

`python -m tests.slots.simulate --seeds N` runs more of them.
"""

import pytest

from oncelog.slots.limits import SenderLimits
from tests.depth import deeper, scaled
from tests.slots.flavours import NAMES, Flavour
from tests.slots.history import tell
from tests.slots.mutants import MUTANTS, Mutant

SEEDS = scaled(100)
SEEDS_A_MUTANT = 700


@deeper
@pytest.mark.parametrize("name", NAMES)
def test_every_promise_holds_in_every_history(name: str) -> None:
    broken = {seed: promises for seed in range(SEEDS) if (promises := tell(seed, name=name).broken())}
    assert not broken


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: str(mutant.what))
def test_a_broken_sender_is_caught(mutant: Mutant) -> None:
    with mutant.applied():
        for seed in range(SEEDS_A_MUTANT):
            broken = tell(seed, name=mutant.histories).broken()
            if any(mutant.caught_by in promise for promise in broken):
                return
    pytest.fail(f"nothing caught it in {SEEDS_A_MUTANT} histories")


def test_without_idempotence_the_same_faults_duplicate_records() -> None:
    """What the histories look for is really there to be found."""
    duplicates = 0
    for seed in range(60):
        for log in tell(seed, name="plain").world.cluster.logs.values():
            duplicates += len(log.stored.records()) - len(set(log.stored.records()))
    assert duplicates > 0


def test_a_new_lease_costs_no_pause_longer_than_a_round_trip() -> None:
    """A batch each millisecond for twelve seconds, leases of two: at each change the old one finishes first."""
    limits = SenderLimits(max_in_flight=5)
    flavour = Flavour(
        name="steady",
        is_leased=True,
        has_faults=False,
        lifetime_ms=2_000,
        limits=limits,
        batches=6_000,
        duration_ms=12_000,
    )
    history = tell(1, flavour=flavour)
    assert history.broken() == []
    client = history.world.clients[0]
    changes = [
        (later_ms - earlier_ms)
        for (earlier_ms, earlier), (later_ms, later) in zip(client.sent, client.sent[1:], strict=False)
        if earlier.pid != later.pid
    ]
    longest_round_trip_ms = 2 * 10 + 30  # both ways, and replication
    assert len(changes) >= 5
    assert max(changes) <= longest_round_trip_ms
