"""How deep the tests go that leave something to chance: a little way in `./dev test`, and in `./dev test --all`, which
runs them again, five times as far.

A test under hypothesis belongs to these by itself; one that goes through seeds of its own says so: `@deeper`, and
`scaled(SEEDS)`.
"""

import pytest
from hypothesis import HealthCheck, settings

EXAMPLES = 40
DEEPER = 5
LIMIT_S = 900  # of a deep test: five times the work on a busy machine, and still an end to one that hangs
deeper = pytest.mark.deeper
_factor = 1


def choose(*, is_deep: bool) -> None:
    """Before a test is imported. How long an example takes says something of the machine, and nothing of the code."""
    global _factor
    _factor = DEEPER if is_deep else 1
    settings.register_profile(
        "oncelog", max_examples=scaled(EXAMPLES), deadline=None, suppress_health_check=[HealthCheck.too_slow]
    )
    settings.load_profile("oncelog")


def scaled(count: int) -> int:
    return count * _factor


def is_of_chance(item: pytest.Item) -> bool:
    is_hypothesis = getattr(getattr(item, "obj", None), "is_hypothesis_test", False)
    return bool(is_hypothesis) or item.get_closest_marker("deeper") is not None
