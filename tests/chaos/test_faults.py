"""The schedule: the same seed, the same faults; each hits one frame, and exactly the byte that was planned."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.chaos.faults import Direction, Fault, Kind, Plan, counted, in_words, seeded_schedule

UP, DOWN = Direction.UP, Direction.DOWN


def test_the_same_seed_gives_the_same_schedule_and_another_one_another() -> None:
    first = seeded_schedule(7, every=10, until=5000)
    assert first == seeded_schedule(7, every=10, until=5000)
    assert first != seeded_schedule(8, every=10, until=5000)


def test_a_schedule_has_every_kind_that_was_asked_for_and_no_other() -> None:
    drawn = counted(seeded_schedule(1, every=1, until=1000, weights={Kind.CUT: 1, Kind.STALL: 1}))
    assert set(drawn) == {"cut", "stall"}
    assert set(counted(seeded_schedule(1, every=1, until=1000))) == {str(kind) for kind in Kind}


def test_faults_lie_about_so_far_apart_as_was_asked_for() -> None:
    places = [fault.at for fault in seeded_schedule(3, every=100, until=100_000)]
    gaps = [later - earlier for earlier, later in zip([0, *places], places, strict=False)]
    assert all(50 <= gap <= 150 for gap in gaps)
    assert 95 < sum(gaps) / len(gaps) < 105


def test_a_fault_hits_the_first_frame_that_fits_once_its_count_is_reached() -> None:
    plan = Plan([Fault(kind=Kind.SWALLOW, counter="answers", at=3, api="produce")])
    assert plan.frame(DOWN, "produce", 10) is None
    assert plan.frame(UP, "produce", 10) is None
    assert plan.frame(DOWN, "produce", 10) is None
    assert plan.frame(DOWN, "metadata", 10) is None  # the third answer, but of another kind
    assert plan.frame(UP, "produce", 10) is None
    hit = plan.frame(DOWN, "produce", 10)
    assert hit is not None
    assert hit.number == 0
    assert plan.frame(DOWN, "produce", 10) is None
    assert plan.left == 0


def test_of_several_that_are_due_each_gets_a_frame_of_its_own_in_their_order() -> None:
    faults = [Fault(kind=Kind.CUT, counter="requests", at=2, direction=UP) for _ in range(3)]
    plan = Plan(faults)
    hits = [plan.frame(UP, "fetch", 1) for _ in range(5)]
    assert [hit and hit.number for hit in hits] == [None, 0, 1, 2, None]


def test_what_the_experiment_counts_arms_faults_too() -> None:
    plan = Plan([Fault(kind=Kind.CUT, counter="confirmed", at=100, direction=DOWN)])
    plan.count("confirmed", 99)
    assert plan.frame(DOWN, "produce", 1) is None
    plan.count("confirmed")
    assert plan.frame(DOWN, "produce", 1) is not None


@given(sizes=st.lists(st.integers(8, 100), min_size=1, max_size=20), data=st.data())
def test_a_cut_at_a_byte_of_the_stream_lets_exactly_so_many_bytes_pass(sizes: list[int], data: st.DataObject) -> None:
    at = data.draw(st.integers(1, sum(sizes)))
    plan = Plan([Fault(kind=Kind.CUT, counter="up bytes", at=at, direction=UP)])
    passed = 0
    for size in sizes:
        hit = plan.frame(UP, "produce", size)
        if hit is not None:
            assert passed + hit.passed_bytes == at
            return
        passed += size
    raise AssertionError("it never hit")


def test_a_part_of_a_frame_is_any_number_of_its_bytes() -> None:
    found = set()
    for step in range(101):
        plan = Plan([Fault(kind=Kind.CUT, counter="requests", at=1, direction=UP, part=step / 100)])
        hit = plan.frame(UP, "produce", 10)
        assert hit is not None
        found.add(hit.passed_bytes)
    assert found == set(range(11))


def test_a_refusal_may_begin_with_a_connection() -> None:
    plan = Plan([Fault(kind=Kind.REFUSE, counter="connections", at=2)])
    assert plan.connection() is None
    assert plan.connection() is not None
    assert plan.connection() is None


def test_every_fault_can_be_told_in_words() -> None:
    for fault in seeded_schedule(1, every=1, until=200):
        assert in_words(fault).startswith(str(fault.kind))


def test_a_schedule_that_would_never_advance_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        seeded_schedule(1, every=0, until=10)
