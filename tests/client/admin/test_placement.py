"""Which brokers are to have what, so that all have as much, and little moves."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.client.admin.placement import spread, without
from oncelog.slots import Place

BROKERS = (1, 2, 3, 4, 5)
placements = st.lists(st.permutations(BROKERS), max_size=40).flatmap(
    lambda orders: st.integers(1, 4).map(
        lambda factor: {("t", index): tuple(order[:factor]) for index, order in enumerate(orders)}
    )
)
Placed = dict[Place, tuple[int, ...]]


def loads(placed: Placed, brokers: tuple[int, ...]) -> list[int]:
    counts = Counter(broker for replicas in placed.values() for broker in replicas)
    return [counts[broker] for broker in brokers]


def changed(placed: Placed, moved: dict[Place, list[int]]) -> Placed:
    return placed | {place: tuple(replicas) for place, replicas in moved.items()}


@given(placements, st.integers(3, 5))
def test_all_brokers_have_as_much_and_no_partition_has_fewer_replicas(placed: Placed, count: int) -> None:
    old = {place: replicas for place, replicas in placed.items() if max(replicas) <= count}
    brokers = BROKERS[:count]
    after = changed(old, spread(old, brokers))
    assert all(len(set(after[place])) == len(replicas) for place, replicas in old.items())
    assert max(loads(after, brokers)) - min(loads(after, brokers)) <= 1
    assert spread(after, brokers) == {}


@given(placements)
def test_no_more_moves_than_what_some_have_too_much(placed: Placed) -> None:
    after = changed(placed, spread(placed, BROKERS))
    moved = sum(len(set(after[place]) - set(replicas)) for place, replicas in placed.items())
    least = sum(len(replicas) for replicas in placed.values()) // len(BROKERS)
    assert moved <= sum(max(0, load - least) for load in loads(placed, BROKERS))


@given(placements, st.sampled_from(BROKERS))
def test_what_a_broker_has_goes_to_others_and_nothing_else_moves(placed: Placed, leaving: int) -> None:
    moved = without(placed, leaving, BROKERS)
    assert moved.keys() == {place for place, replicas in placed.items() if leaving in replicas}
    for place, replicas in moved.items():
        (new,) = set(replicas) - set(placed[place])
        assert [leaving if broker == new else broker for broker in replicas] == list(placed[place])


def test_a_new_broker_gets_replicas_and_leaders() -> None:
    placed: Placed = {
        Place("t", index): (1 + index % 3, 1 + (index + 1) % 3, 1 + (index + 2) % 3) for index in range(12)
    }
    after = changed(placed, spread(placed, (1, 2, 3, 4)))
    assert loads(after, (1, 2, 3, 4)) == [9, 9, 9, 9]
    assert Counter(replicas[0] for replicas in after.values()) == {1: 3, 2: 3, 3: 3, 4: 3}


def test_there_must_be_another_broker_for_each_replica() -> None:
    with pytest.raises(ValueError, match="t-0 has 2 replicas, and there is no other broker for the one at 2: add a"):
        without({Place("t", 0): (1, 2)}, 2, (1, 2))
