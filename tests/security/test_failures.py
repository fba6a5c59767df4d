"""Hosts that fail too often, and how long that is held against them."""

from oncelog.clock import MINUTE_MS
from oncelog.security.failures import MOST_HOSTS, Failures
from oncelog.security.hosts import place_of


def test_so_many_may_fail_at_once_and_as_many_a_minute() -> None:
    failures = Failures(60)
    for _ in range(60):
        assert not failures.is_barred("a", 0)
        failures.note("a", 0)
    assert failures.is_barred("a", 0) and not failures.is_barred("b", 0)
    assert failures.is_barred("a", 999) and not failures.is_barred("a", 1000)
    failures.note("a", 1000)
    assert failures.is_barred("a", 1000)
    assert not failures.is_barred("a", 1000 + MINUTE_MS)


def test_what_fails_on_is_held_no_longer_against_a_host() -> None:
    failures = Failures(60)
    for _ in range(1000):
        failures.note("a", 0)
    assert not failures.is_barred("a", 1000)


def test_without_a_limit_nobody_is_barred() -> None:
    failures = Failures(0)
    failures.note("a", 0)
    assert not failures.is_barred("a", 0)


def test_there_are_only_so_many_hosts_and_the_quiet_ones_are_forgotten() -> None:
    failures = Failures(1)
    for number in range(MOST_HOSTS + 1):
        failures.note(str(number), 0)
        failures.note("loud", 0)
    assert failures.is_barred("loud", 0) and failures.is_barred(str(MOST_HOSTS), 0)
    assert not failures.is_barred("0", 0)
    assert len(failures) == MOST_HOSTS


def test_one_customers_addresses_are_one_host() -> None:
    assert place_of("2001:db8::1") == place_of("2001:db8::ffff:2%eth0") != place_of("2001:db8:0:1::1")
    assert place_of("::ffff:10.0.0.1") == place_of("10.0.0.1") == "10.0.0.1"
    assert place_of("?") == "?"
