"""Looking at a partition's producers without going through all of them, and without changing anything."""

import pytest

from oncelog.clock import ManualClock
from oncelog.producers import ProducerLimits, ProducerMap

FIRST_KAFKA_PID = 1 << 32
LIFETIME_MS = 1000
DAY_MS = 86_400_000


def filled(clock: ManualClock, leased: int, kafka: int) -> ProducerMap:
    """Each a millisecond after the one before."""
    producers = ProducerMap(limits=ProducerLimits(lease_lifetime_ms=LIFETIME_MS))
    for number in range(leased):
        producers.accept(number + 1, 7, 0, 3, number * 3, 1, clock.advance(1))
    for number in range(kafka):
        producers.accept(FIRST_KAFKA_PID + number, 0, 0, 2, number * 2, 1, clock.advance(1))
    return producers


def test_the_newest_of_each_kind_come_first() -> None:
    clock = ManualClock()
    producers = filled(clock, 5, 4)
    producers.accept(FIRST_KAFKA_PID, 0, 2, 1, 90, 1, clock.advance(1))  # who wrote last is the newest of Kafka's
    pids = [each.pid for each in producers.newest(clock.now(), 2)]
    assert pids == [5, 4, FIRST_KAFKA_PID, FIRST_KAFKA_PID + 3]
    assert [each.last_sequence for each in producers.newest(clock.now(), 2)] == [2, 2, 2, 1]


def test_all_of_them_are_those_that_live() -> None:
    clock = ManualClock()
    producers = filled(clock, 5, 4)
    assert set(producers.newest(clock.now(), 100)) == set(producers.live(clock.now()))


def test_a_batch_of_the_run_is_counted() -> None:
    clock = ManualClock()
    producers = filled(clock, 0, 1)
    assert producers.accept_next(FIRST_KAFKA_PID, 0, 2, 5, 2, 1, clock.advance(1))
    assert producers.accept_next(FIRST_KAFKA_PID, 0, 7, 5, 7, 1, clock.advance(1))
    assert producers.newest(clock.now(), 1)[0].last_sequence == 11


def test_looking_expires_nobody() -> None:
    clock = ManualClock()
    producers = filled(clock, 3, 0)
    later = clock.advance(10 * LIFETIME_MS)
    assert [each.lease_left_ms for each in producers.newest(later, 9)] == [0, 0, 0]
    assert producers.sampled_leases(later, 9) == [(1, 0), (2, 0), (3, 0)]
    assert producers.leases_live == 3


def test_a_sample_is_spread_evenly_over_the_ring() -> None:
    clock = ManualClock()
    producers = filled(clock, 100, 0)
    sample = producers.sampled_leases(clock.now(), 10)
    assert [pid for pid, _ in sample] == list(range(1, 101, 10))
    assert [left_ms for _, left_ms in sample] == [LIFETIME_MS - 99 + 10 * at for at in range(10)]
    assert len(producers.sampled_leases(clock.now(), 100)) == 100
    assert producers.sampled_leases(clock.now(), 0) == []


def test_each_is_looked_at_when_its_turn_comes_and_who_has_gone_is_left_out() -> None:
    """Of many, others write and go while some are looked at; a row may be somebody else's by then."""
    clock = ManualClock()
    producers = filled(clock, 3, 3)
    live = producers.live(clock.now())
    assert next(live).pid == 1
    clock.advance(2 * LIFETIME_MS - 4)  # the second is over, the third is not
    producers.expire(clock.now())
    producers.accept(4, 7, 0, 3, 90, 1, clock.now())
    assert producers.accept_next(FIRST_KAFKA_PID + 2, 0, 2, 5, 93, 1, clock.now())
    found = [(each.pid, each.last_sequence) for each in live]
    assert found == [(3, 2), (FIRST_KAFKA_PID, 1), (FIRST_KAFKA_PID + 1, 1), (FIRST_KAFKA_PID + 2, 6)]
    assert producers.live_pids(clock.now()) == {3, 4, *range(FIRST_KAFKA_PID, FIRST_KAFKA_PID + 3)}


def test_those_that_are_over_together_go_some_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in ("leased", "kafka"):
        monkeypatch.setattr(f"oncelog.producers.{kind}_producers.EXPIRED_AT_A_TIME", 2)
    clock = ManualClock()
    producers = filled(clock, 5, 3)
    later = clock.advance(10 * DAY_MS)
    assert [producers.expire(later) for _ in range(4)] == [4, 3, 1, 0]
