"""Granting pids: never one twice, and whoever granted them, every reader's history errs on the side that refuses."""

from random import Random
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oncelog.clock import DAY_MS, HOUR_MS, ManualClock
from oncelog.producers.leases import (
    BLOCK_PIDS,
    END_OF_LEASED_PIDS,
    Block,
    GrantHistory,
    Stock,
    lease_of,
)
from oncelog.producers.sequences import GENERATIONS
from tests.producers.granting import Granting, Sequence


def test_a_lease_has_a_random_generation_sequence_zero_and_how_long_it_lasts() -> None:
    random = Random(1)
    leases = [lease_of(7, DAY_MS, random) for _ in range(2000)]
    assert {(each.pid, each.sequence, each.expire_ms) for each in leases} == {(7, 0, DAY_MS)}
    generations = [each.generation for each in leases]
    assert len(set(generations)) > 1900
    assert 0 <= min(generations) < GENERATIONS // 50
    assert GENERATIONS > max(generations) > GENERATIONS - GENERATIONS // 50


def test_pids_are_taken_a_hundred_at_a_time_and_granted_in_order() -> None:
    sequence = Sequence()
    broker = Granting(sequence, ManualClock())
    assert [broker.grant() for _ in range(250)] == list(range(1, 251))
    assert len(sequence.taken) == 3


def test_a_stock_is_low_before_it_is_used_up() -> None:
    stock = Stock()
    assert stock.is_low()
    stock.add(Block(1, 101), 0)
    taken = 0
    while not stock.is_low():
        assert stock.take(0) is not None
        taken += 1
    assert taken == BLOCK_PIDS // 2 + 1
    stock.add(Block(201, 301), 0)
    rest = [stock.take(0) for _ in range(200)]
    assert rest[:149] == [*range(taken + 1, 101), *range(201, 301)]
    assert set(rest[149:]) == {None}


def test_a_block_is_used_for_a_short_while_alone() -> None:
    clock = ManualClock()
    broker = Granting(Sequence(), clock)
    assert broker.grant() == 1
    clock.advance(HOUR_MS - 1)
    assert broker.grant() == 2
    clock.advance(1)
    assert broker.grant() == BLOCK_PIDS + 1


def test_after_a_crash_the_rest_of_the_block_is_wasted_and_never_granted_again() -> None:
    sequence = Sequence()
    before, after = (Granting(sequence, ManualClock()) for _ in range(2))
    granted = {before.grant() for _ in range(5)}
    assert len(granted) == 5
    assert granted.isdisjoint(after.grant() for _ in range(500))


def test_a_pid_is_new_for_two_lifetimes_and_no_longer() -> None:
    clock = ManualClock()
    broker = Granting(Sequence(), clock)
    pid = broker.grant()
    assert broker.may_be_new(pid)
    clock.advance(2 * DAY_MS - 1)
    assert broker.may_be_new(pid)
    clock.advance(1)
    assert not broker.may_be_new(pid)
    assert not broker.may_be_new(BLOCK_PIDS + 1), "not taken yet"


@pytest.mark.parametrize("grants_each_half_hour", [1, 30, BLOCK_PIDS], ids=["slow", "busy", "a-block-at-a-time"])
def test_a_server_that_grants_for_weeks_counts_each_lease_from_about_its_own_grant(grants_each_half_hour: int) -> None:
    clock = ManualClock()
    broker = Granting(Sequence(), clock)
    granted: list[tuple[int, int]] = []
    for _ in range(2 * 24 * 10):
        now_ms = clock.advance(HOUR_MS // 2).monotonic_ms
        granted.extend((broker.grant(), now_ms) for _ in range(grants_each_half_hour))
        for pid, at_ms in granted[:: max(1, len(granted) // 50)]:
            age_ms = now_ms - at_ms
            if age_ms <= 2 * DAY_MS - 2 * HOUR_MS:
                assert broker.may_be_new(pid), f"refused {age_ms} ms after its grant"
            if age_ms >= 2 * DAY_MS:
                assert not broker.may_be_new(pid), f"new {age_ms} ms after its grant"


# Pids that others granted


def test_what_another_broker_took_is_as_old_as_the_last_read_in_which_it_was_not_there() -> None:
    clock, sequence = ManualClock(), Sequence()
    one, other = Granting(sequence, clock), Granting(sequence, clock)
    other.read()
    clock.advance(HOUR_MS)
    other.read()
    clock.advance(HOUR_MS)
    pid = one.grant()
    assert not other.may_be_new(pid), "nobody told it"
    clock.advance(HOUR_MS)
    other.read()
    assert other.may_be_new(pid)
    clock.advance(2 * DAY_MS - 2 * HOUR_MS - 1)
    assert other.may_be_new(pid)
    clock.advance(1)
    assert not other.may_be_new(pid)
    assert one.may_be_new(pid), "which knows when it was"


def test_what_was_taken_before_the_first_read_is_of_no_known_age() -> None:
    clock, sequence = ManualClock(), Sequence()
    one, other = Granting(sequence, clock), Granting(sequence, clock)
    pid = one.grant()
    other.read()
    assert not other.may_be_new(pid)


def test_a_read_that_is_answered_late_tells_nothing() -> None:
    history = GrantHistory(DAY_MS).read(101, 10).read(301, 30)
    assert history.read(201, 20) == history
    assert history.read(301, 20) == history
    assert history.read(END_OF_LEASED_PIDS - 99, 40) == history, "from before the numbers started again"


def test_a_block_is_disjoint_from_all_others_whoever_is_faster() -> None:
    clock, sequence = ManualClock(), Sequence()
    one, other = Granting(sequence, clock), Granting(sequence, clock)
    assert not one.take(meanwhile=other.take)
    assert one.take()
    assert sequence.taken == [Block(1, 101), Block(101, 201)]


def test_the_numbers_start_again_for_all_who_read_them() -> None:
    clock, sequence = ManualClock(), Sequence(END_OF_LEASED_PIDS - 150)
    one, other = Granting(sequence, clock), Granting(sequence, clock)
    other.read()
    granted = [one.grant() for _ in range(300)]
    assert granted == [*range(2**32 - 150, 2**32 - 50), *range(1, 201)]
    other.read()
    assert all(other.may_be_new(pid) for pid in granted)
    assert not other.may_be_new(201)
    at_the_end = Granting(Sequence(END_OF_LEASED_PIDS - BLOCK_PIDS), clock)
    assert [at_the_end.grant() for _ in range(101)][-2:] == [2**32 - 1, 1]
    assert at_the_end.may_be_new(1) and at_the_end.may_be_new(2**32 - 1)


STEPS = st.lists(
    st.tuples(st.sampled_from(["grant", "read", "start"]), st.integers(0, 2), st.integers(0, 5 * HOUR_MS)),
    min_size=1,
    max_size=80,
)


def never_taken_for_younger(steps: list[tuple[str, int, int]], late_ms: int) -> None:
    clock, sequence = ManualClock(), Sequence()
    brokers = [Granting(sequence, clock) for _ in range(3)]
    for broker in brokers:
        broker.read()
    granted: list[tuple[int, int]] = []
    for step, number, wait_ms in steps:
        clock.advance(wait_ms)
        match step:
            case "grant":
                granted.append((brokers[number].grant(), clock.now().monotonic_ms))
            case "read":
                brokers[number].read()
            case "start":  # it knows what it noted at its last read
                brokers[number] = Granting(sequence, clock, brokers[number].history)
        for broker in brokers:  # all read at least so often
            if broker.now_ms - broker.history.read_ms >= DAY_MS // 2:
                broker.read()
    clock.advance(late_ms)
    for broker in brokers:
        broker.read()
        for pid, at_ms in granted:
            age_ms = broker.now_ms - at_ms
            if age_ms >= 2 * DAY_MS:
                assert not broker.may_be_new(pid)
            if age_ms <= DAY_MS:
                assert broker.may_be_new(pid)
    assert len({pid for pid, _ in granted}) == len(granted)


@settings(derandomize=True)
@given(steps=STEPS, late_ms=st.integers(0, 3 * DAY_MS))
def test_no_broker_takes_a_pid_for_younger_than_it_is_nor_refuses_one_whose_lease_lasts(
    steps: list[tuple[str, int, int]], late_ms: int
) -> None:
    never_taken_for_younger(steps, late_ms)


def test_blocks_that_are_dated_at_sight_are_noticed() -> None:
    read = GrantHistory.read

    def at_sight(self: GrantHistory, next_pid: int, began_ms: int) -> GrantHistory:
        return read(self._replace(read_ms=began_ms), next_pid, began_ms)

    with patch.object(GrantHistory, "read", at_sight), pytest.raises(AssertionError):
        never_taken_for_younger([("grant", 0, 0), ("read", 1, HOUR_MS)], 2 * DAY_MS - HOUR_MS)


def test_the_history_of_a_million_grants_a_day_is_some_fifty_periods() -> None:
    history = GrantHistory(DAY_MS).read(1, 0)
    for block in range(30_000):
        history = history.read(1 + (block + 1) * BLOCK_PIDS, block * 8640)
    assert len(history.periods) <= 50
    assert history.may_be_new(1 + 29_999 * BLOCK_PIDS, 30_000 * 8640)


def test_what_was_forgotten_is_refused() -> None:
    history = GrantHistory(DAY_MS).read(1, 0)
    for day in range(1000):
        history = history.read(1 + (day + 1) * BLOCK_PIDS, day * DAY_MS)
        assert len(history.periods) <= 4
    assert not history.may_be_new(1, 0)
