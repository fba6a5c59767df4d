"""What a gap is put down to."""

import pytest

from oncelog.chaos.gaps import STILL_S, put_down_to

FAULTS_S = [10.0, 20.0, 30.0]


@pytest.mark.parametrize(
    ("since_s", "place", "why"),
    [
        (19.98, 1, "the last confirmation came just before the fault"),
        (20.3, 1, "what was under way was still confirmed"),
        (19.98 + 2 * STILL_S, 2, "the client went on, and was held up by the next fault"),
        (9.9, 0, "whatever follows while the client is held up"),
        (25.0, 2, "nothing came before the next one"),
        (50.0, 2, "nothing came later at all"),
    ],
)
def test_it_is_the_first_fault_since_the_last_confirmation(since_s: float, place: int, why: str) -> None:
    assert put_down_to(FAULTS_S, since_s) == place, why
