"""The plan of an experiment: the same for the same seed, and nothing that was asked for is left out."""

from itertools import pairwise

import pytest

from oncelog.chaos.faults import Kind
from oncelog.chaos.plan import CONFIRMED, ON_THE_WIRE, Event, Target, faults_of, kills_of, next_kill, schedule

ALL = list(Target)


def test_the_same_seed_makes_the_same_plan() -> None:
    assert schedule(7, ALL, every=100, messages=10_000) == schedule(7, reversed(ALL), every=100, messages=10_000)
    assert schedule(7, ALL, every=100, messages=10_000) != schedule(8, ALL, every=100, messages=10_000)


@pytest.mark.parametrize("seed", range(20))
def test_targets_take_turns(seed: int) -> None:
    events = schedule(seed, ALL, every=100, messages=10_000)
    assert 80 < len(events) < 125
    for first in range(0, len(events) - len(ALL), len(ALL)):
        assert {event.target for event in events[first : first + len(ALL)]} == set(ALL)


def test_events_are_as_far_apart_as_asked() -> None:
    events = schedule(1, ALL, every=100, messages=100_000)
    assert all(50 <= later.at - earlier.at <= 150 for earlier, later in pairwise(events))
    assert events[-1].at < 100_000


def test_what_happens_on_the_wire_is_the_proxys_and_counts_what_was_confirmed() -> None:
    events = schedule(3, ALL, every=50, messages=5_000)
    faults = faults_of(events)
    assert {fault.counter for fault in faults} == {CONFIRMED}
    assert {fault.kind for fault in faults} == {Kind.CUT, Kind.SWALLOW}
    assert {event.target for event in kills_of(events)} == set(ALL) - ON_THE_WIRE
    assert len(faults) + len(kills_of(events)) == len(events)


def test_nothing_asked_for_is_nothing_planned() -> None:
    assert schedule(1, [], every=10, messages=1_000) == []


def test_a_spacing_below_one_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        schedule(1, ALL, every=0, messages=10)


def test_to_brokers_one_thing_is_done_at_a_time_and_others_do_not_wait_for_it() -> None:
    leader, rolling, producer = Event(10, Target.LEADER), Event(20, Target.ROLLING), Event(30, Target.PRODUCER)
    plan = [leader, rolling, producer]
    assert next_kill(plan, 9, is_busy=False) is None
    assert next_kill(plan, 40, is_busy=False) is leader
    assert next_kill(plan[1:], 29, is_busy=True) is None
    assert next_kill(plan[1:], 30, is_busy=True) is producer
    assert next_kill(plan[1:2], 30, is_busy=False) is rolling
