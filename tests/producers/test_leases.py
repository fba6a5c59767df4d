"""Granting pids: never one twice, and the history errs on the side that refuses."""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oncelog.clock import ManualClock
from oncelog.producers.leases import (
    BLOCK_PIDS,
    END_OF_LEASED_PIDS,
    MAX_PERIODS,
    GrantHistory,
    KafkaPidIssuer,
    LeaseIssuer,
)
from oncelog.producers.sequences import GENERATIONS
from tests.producers.partition import DAY_MS, HOUR_MS


class Sequence:
    """The durable sequence, as a cluster keeps it."""

    def __init__(self, next_pid: int = 1) -> None:
        self.next_pid = next_pid
        self.calls = 0
        self.broken = False

    def reserve(self, count: int) -> int:
        if self.broken:
            raise OSError("the disk is full")
        self.calls += 1
        first, self.next_pid = self.next_pid, self.next_pid + count
        return first


def issuer_of(sequence: Sequence, seed: int = 1) -> LeaseIssuer:
    return LeaseIssuer(sequence.reserve, lifetime_ms=DAY_MS, random=Random(seed))


def test_a_lease_tells_its_pid_a_random_generation_sequence_zero_and_how_long_it_lasts() -> None:
    lease = issuer_of(Sequence()).grant(ManualClock().now())
    assert lease.pid == 1
    assert 0 <= lease.generation < GENERATIONS
    assert lease.sequence == 0
    assert lease.expire_ms == DAY_MS


def test_starting_generations_are_spread_over_all_that_there_are() -> None:
    issuer, now = issuer_of(Sequence()), ManualClock().now()
    generations = [issuer.grant(now).generation for _ in range(2000)]
    assert len(set(generations)) > 1900
    assert min(generations) < GENERATIONS // 50
    assert max(generations) > GENERATIONS - GENERATIONS // 50


def test_pids_are_reserved_a_hundred_at_a_time_and_granted_in_order() -> None:
    sequence, now = Sequence(), ManualClock().now()
    issuer = issuer_of(sequence)
    assert [issuer.grant(now).pid for _ in range(250)] == list(range(1, 251))
    assert sequence.calls == 3


def test_after_a_crash_the_rest_of_the_block_is_wasted_and_never_granted_again() -> None:
    sequence, now = Sequence(), ManualClock().now()
    before = {issuer_of(sequence).grant(now).pid for _ in range(5)}
    assert len(before) == 5
    assert before.isdisjoint(issuer_of(sequence).grant(now).pid for _ in range(500))


def test_two_servers_on_one_sequence_never_grant_the_same_pid() -> None:
    sequence, now = Sequence(), ManualClock().now()
    servers = [issuer_of(sequence, seed) for seed in range(2)]
    rng = Random(7)
    granted = [servers[rng.randrange(2)].grant(now).pid for _ in range(1000)]
    assert len(set(granted)) == len(granted)


def test_nothing_is_granted_when_the_block_cannot_be_reserved() -> None:
    sequence, now = Sequence(), ManualClock().now()
    issuer = issuer_of(sequence)
    sequence.broken = True
    for _ in range(2):
        with pytest.raises(OSError, match="full"):
            issuer.grant(now)
    sequence.broken = False
    assert issuer.grant(now).pid == 1


def test_a_pid_is_new_for_two_lifetimes_and_no_longer() -> None:
    clock = ManualClock()
    issuer = issuer_of(Sequence())
    pid = issuer.grant(clock.now()).pid
    assert issuer.may_be_new(pid, clock.now())
    assert issuer.may_be_new(pid, clock.advance(2 * DAY_MS - 1))
    assert not issuer.may_be_new(pid, clock.advance(1))
    assert not issuer.may_be_new(BLOCK_PIDS + 1, clock.now()), "not reserved yet"


@pytest.mark.parametrize("grants_each_half_hour", [1, 30, BLOCK_PIDS], ids=["slow", "busy", "a-block-at-a-time"])
def test_a_server_that_grants_for_weeks_counts_each_lease_from_about_its_own_grant(grants_each_half_hour: int) -> None:
    clock = ManualClock()
    issuer = issuer_of(Sequence())
    granted: list[tuple[int, int]] = []
    for _ in range(2 * 24 * 10):
        now = clock.advance(HOUR_MS // 2)
        granted.extend((issuer.grant(now).pid, now.monotonic_ms) for _ in range(grants_each_half_hour))
        for pid, at_ms in granted[:: max(1, len(granted) // 50)]:
            age_ms = now.monotonic_ms - at_ms
            if age_ms <= 2 * DAY_MS - 2 * HOUR_MS:
                assert issuer.may_be_new(pid, now), f"refused {age_ms} ms after its grant"
            if age_ms >= 2 * DAY_MS:
                assert not issuer.may_be_new(pid, now), f"new {age_ms} ms after its grant"


@settings(derandomize=True)
@given(waits=st.lists(st.integers(0, 5 * HOUR_MS), min_size=1, max_size=120), late=st.integers(0, 3 * DAY_MS))
def test_a_pid_is_never_taken_for_younger_than_it_is_nor_refused_while_its_lease_lasts(
    waits: list[int], late: int
) -> None:
    clock = ManualClock()
    issuer = issuer_of(Sequence())
    granted: list[tuple[int, int]] = []
    for wait in waits:
        clock.advance(wait)
        granted.append((issuer.grant(clock.now()).pid, clock.now().monotonic_ms))
    now = clock.advance(late)
    for pid, at_ms in granted:
        age_ms = now.monotonic_ms - at_ms
        if age_ms >= 2 * DAY_MS:
            assert not issuer.may_be_new(pid, now)
        if age_ms <= DAY_MS:
            assert issuer.may_be_new(pid, now)


def test_the_history_of_a_million_grants_a_day_is_some_fifty_periods() -> None:
    history = GrantHistory(DAY_MS)
    for block in range(30_000):
        history.note(1 + block * BLOCK_PIDS, BLOCK_PIDS, block * 8640)
    assert len(history.periods) <= 50
    assert history.may_be_new(1 + 29_999 * BLOCK_PIDS, 30_000 * 8640)


def test_the_history_is_bounded_also_when_no_block_follows_on_the_one_before() -> None:
    history = GrantHistory(DAY_MS)
    for block in range(3 * MAX_PERIODS):
        history.note(1 + 2 * block * BLOCK_PIDS, BLOCK_PIDS, 0)
    assert len(history.periods) == MAX_PERIODS
    assert not history.may_be_new(1, 0), "what was forgotten is refused"


def test_leased_pids_end_where_those_of_kafka_begin() -> None:
    sequence, now = Sequence(END_OF_LEASED_PIDS - BLOCK_PIDS), ManualClock().now()
    issuer = issuer_of(sequence)
    assert [issuer.grant(now).pid for _ in range(BLOCK_PIDS)][-1] == 2**32 - 1
    kafka = KafkaPidIssuer(Sequence(2**32).reserve)
    assert [kafka.grant() for _ in range(250)] == list(range(2**32, 2**32 + 250))


def test_pids_that_a_log_knows_are_passed_over_where_an_older_sequence_would_grant_them_again() -> None:
    first = 2**32
    for known in (first, first + 1, first + BLOCK_PIDS - 1, first + BLOCK_PIDS, first + 12345):
        kafka = KafkaPidIssuer(Sequence(first).reserve, known)
        granted = [kafka.grant() for _ in range(2 * BLOCK_PIDS + 1)]
        assert granted[0] > known and granted == sorted(set(granted))
    for known in (-1, first - 1, 2**63 - 1):  # what a client made up keeps nobody from new ones
        assert KafkaPidIssuer(Sequence(first).reserve, known).grant() == first
