"""A few records out of a batch are those that reading all of it would find there."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.console.limits import LARGEST_BATCH_BYTES, MOST_WALKED, UNFOLDED_BYTES
from oncelog.console.records import Budget, records_from
from oncelog.records.build import build_batch
from oncelog.records.errors import InvalidRecord, TooLarge
from oncelog.records.read import records_of
from oncelog.records.trim import retain
from tests.raw import batch


@given(
    count=st.integers(1, 40),
    kept=st.sets(st.integers(0, 39)),
    offset=st.integers(80, 150),
    most=st.integers(1, 12),
    newest=st.booleans(),
    codec=st.sampled_from([0, 1, 2, 3, 4]),
)
def test_a_part_is_the_same_part_of_the_whole(
    count: int, kept: set[int], offset: int, most: int, newest: bool, codec: int
) -> None:
    """Also where compaction has taken records out."""
    whole = build_batch(
        [(b"k%d" % at, b"v" * (at * 7), (), 1000 + at) for at in range(count)],
        codec=codec,
        base_offset=100,
        timestamp_ms=1000,
    )
    left = bytes(retain(whole, [at in kept for at in range(count)]))
    wanted = [record for record in records_of(left) if record.offset >= offset]
    wanted = wanted[-most:] if newest else wanted[:most]
    assert records_from(left, offset, most, newest=newest) == wanted


def test_a_batch_with_too_many_records_is_not_walked_over() -> None:
    many = batch([], payload=b"", record_count=MOST_WALKED + 1, last_offset_delta=MOST_WALKED)
    with pytest.raises(TooLarge, match="records in one batch"):
        records_from(many, 0, 1)


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_a_batch_that_unfolds_to_too_much_is_not_unfolded(codec: int) -> None:
    bomb = batch([b"\0" * (UNFOLDED_BYTES + 1)], codec=codec)
    assert len(bomb) < LARGEST_BATCH_BYTES
    with pytest.raises(TooLarge):
        records_from(bomb, 0, 1)


@pytest.mark.parametrize(
    "payload", [b"", b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", b"\x02", b"\x0c\0\0\0\x01\x01\0x"]
)
def test_damage_is_told(payload: bytes) -> None:
    with pytest.raises(InvalidRecord):
        records_from(batch([], payload=payload, record_count=1, last_offset_delta=0), 0, 1)


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_many_bombs_are_not_all_unfolded(codec: int) -> None:
    """Each of them is allowed alone."""
    bomb = batch([b"\0" * (UNFOLDED_BYTES - 1000)], codec=codec)
    budget = Budget()
    assert len(records_from(bomb, 0, 1, budget=budget)) == 1
    assert len(records_from(bomb, 0, 1, budget=budget)) == 1
    for _ in range(2):
        with pytest.raises(TooLarge):
            records_from(bomb, 0, 1, budget=budget)
    assert len(records_from(bomb, 0, 1)) == 1


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_bombs_that_are_refused_cost_as_much(codec: int) -> None:
    budget, bomb = Budget(), batch([b"\0" * (UNFOLDED_BYTES + 1)], codec=codec)
    for _ in range(3):
        with pytest.raises(TooLarge):
            records_from(bomb, 0, 1, budget=budget)
    assert budget.unfolded_bytes == 0


def test_records_of_all_batches_are_counted_together() -> None:
    budget = Budget(records=5)
    assert len(records_from(batch([b"x"] * 3), 0, 9, budget=budget)) == 3
    with pytest.raises(TooLarge, match="enough"):
        records_from(batch([b"x"] * 3), 0, 9, budget=budget)
