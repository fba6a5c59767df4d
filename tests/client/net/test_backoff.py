"""Pauses between attempts double, vary, and have an end."""

from oncelog.client.net.backoff import Backoff


def pauses(random: float, failures: int) -> list[float]:
    backoff = Backoff(100, 1000, lambda: random)
    found = []
    for _ in range(failures):
        backoff.failed(0)
        found.append(backoff.wait_ms(0))
    return found


def test_pauses_double_up_to_the_longest() -> None:
    assert pauses(1 / 3, 6) == [100, 200, 400, 800, 1000, 1000]


def test_chance_makes_them_a_quarter_shorter_to_a_half_longer_but_never_longer_than_the_longest() -> None:
    assert pauses(0, 5) == [75, 150, 300, 600, 750]
    assert pauses(1, 5) == [150, 300, 600, 1000, 1000]


def test_time_that_has_passed_counts() -> None:
    backoff = Backoff(100, 1000, lambda: 1 / 3)
    backoff.failed(50)
    assert (backoff.wait_ms(50), backoff.wait_ms(120), backoff.wait_ms(500)) == (100, 30, 0)


def test_a_success_begins_anew() -> None:
    backoff = Backoff(100, 1000, lambda: 1 / 3)
    for _ in range(5):
        backoff.failed(0)
    backoff.succeeded()
    assert backoff.wait_ms(0) == 0
    backoff.failed(0)
    assert backoff.wait_ms(0) == 100


def test_a_thousand_failures_are_no_overflow() -> None:
    assert pauses(0.5, 1100)[-1] == 1000


def test_no_pause_may_be_asked_for() -> None:
    backoff = Backoff(0, 0, lambda: 0.5)
    backoff.failed(0)
    assert backoff.wait_ms(0) == 0
