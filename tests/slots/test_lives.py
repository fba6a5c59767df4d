"""A producer that is killed anywhere and resumed from its last save writes every record exactly once."""

from unittest.mock import patch

import pytest

from oncelog.slots import Place
from oncelog.slots.limits import SenderLimits
from oncelog.slots.messages import Boundary
from oncelog.slots.sender import Sender
from tests.depth import deeper, scaled
from tests.model.partition import FOREVER
from tests.slots.flavours import Flavour
from tests.slots.lives import Lives

SEEDS = scaled(60)
LIFETIMES_MS = {"stock": None, "leased": 60_000, "short leases": 2_000}


def live(name: str, seed: int) -> Lives:
    lifetime_ms = LIFETIMES_MS[name]
    limits = SenderLimits(
        max_in_flight=5 if seed % 3 else 1, settle_ms=2_000, retry_backoff_ms=20, retry_backoff_max_ms=200
    )
    flavour = Flavour(
        name=name,
        is_leased=lifetime_ms is not None,
        is_pinned=True,
        lifetime_ms=lifetime_ms or FOREVER,
        linger_ms=800 if lifetime_ms is None else 3_500,
        limits=limits,
    )
    lives = Lives(flavour, seed)
    lives.run()
    return lives


@deeper
@pytest.mark.parametrize("name", LIFETIMES_MS)
def test_the_output_of_many_lives_is_exact(name: str) -> None:
    broken = {
        seed: promises
        for seed in range(SEEDS)
        if (lives := live(name, seed))
        and (promises := lives.broken() + [each for client in lives.world.clients for each in client.violations])
    }
    assert not broken


def test_a_boundary_that_says_too_little_is_caught() -> None:
    def one_too_few(self: Sender, place: Place) -> Boundary | None:
        boundary = original(self, place)
        if boundary is None or boundary.next_sequence == 0:
            return boundary
        return Boundary(boundary.identity, boundary.next_sequence - 1, boundary.next_offset)

    original = Sender.boundary
    with patch.object(Sender, "boundary", one_too_few):
        assert any(live("leased", seed).broken() for seed in range(30))
