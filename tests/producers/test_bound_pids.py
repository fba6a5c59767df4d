"""A pid says whose it is, by a secret and nothing that is remembered."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.clock import ManualClock
from oncelog.producers import FIRST_BOUND_PID, FIRST_KAFKA_PID, PidBinding, ProducerMap, of_transactional_id
from oncelog.producers.bound_pids import NUMBER_BITS, TAG_BITS, number_of

NUMBERS = st.integers(FIRST_KAFKA_PID, (1 << NUMBER_BITS) - 1)
OWNERS = st.text(max_size=50).map("User:{}".format)
BINDING = PidBinding("the brokers' secret")


@given(NUMBERS, OWNERS)
def test_its_owner_may_use_it_at_whatever_knows_the_secret(number: int, owner: str) -> None:
    pid = BINDING.bound(number, owner)
    assert FIRST_BOUND_PID <= pid < 1 << 63
    assert PidBinding("the brokers' secret").may_use(pid, owner)
    assert number_of(pid) == number


@given(st.sets(NUMBERS, min_size=2), OWNERS)
def test_pids_are_in_the_order_of_their_grants_whoever_got_them(numbers: set[int], owner: str) -> None:
    pids = [BINDING.bound(number, f"{owner}{number}") for number in sorted(numbers)]
    assert pids == sorted(pids) and len(set(pids)) == len(numbers)


def test_nobody_else_may_and_no_other_secret_makes_the_same() -> None:
    """A tag of this length is another's by chance once in eight million: of these, none is."""
    others = [f"User:{number}" for number in range(2000)]
    for number in range(FIRST_KAFKA_PID, FIRST_KAFKA_PID + 5):
        pid = BINDING.bound(number, "User:alice")
        assert not any(BINDING.may_use(pid, other) for other in [*others, "User:ALICE", "User:alice ", ""])
        assert not any(PidBinding(f"secret {each}").may_use(pid, "User:alice") for each in range(2000))


def test_tags_are_spread_over_all_there_are() -> None:
    """A smaller space could be gone through by making users."""
    tags = {BINDING.bound(FIRST_KAFKA_PID, f"User:{number}") & ((1 << TAG_BITS) - 1) for number in range(4000)}
    assert len(tags) > 3990 and TAG_BITS == 23
    assert min(tags) < 1 << TAG_BITS - 8 < (1 << TAG_BITS) - (1 << TAG_BITS - 8) < max(tags)


def test_one_that_was_changed_is_nobodys_that_could_have_changed_it() -> None:
    pid = BINDING.bound(FIRST_KAFKA_PID + 7, "User:alice")
    for bit in range(62):
        assert not BINDING.may_use(pid ^ 1 << bit, "User:alice")


@given(st.integers(0, FIRST_BOUND_PID - 1), OWNERS)
def test_what_was_granted_without_an_owner_everybody_may_use(pid: int, owner: str) -> None:
    assert BINDING.may_use(pid, owner)
    assert number_of(pid) == pid


def test_a_transactional_id_is_no_principal() -> None:
    pid = BINDING.bound(FIRST_KAFKA_PID, of_transactional_id("payments"))
    assert BINDING.may_use(pid, of_transactional_id("payments"))
    assert not any(BINDING.may_use(pid, other) for other in ("User:payments", "payments", of_transactional_id("p")))


def test_what_cannot_be_bound_is_not_granted() -> None:
    with pytest.raises(OverflowError):
        BINDING.bound(1 << NUMBER_BITS, "User:alice")
    with pytest.raises(ValueError, match="a secret that everybody knows"):
        PidBinding("")


def test_a_log_tells_the_number_of_the_newest_pid_bound_or_not() -> None:
    """By which a server that an older copy of its state was put back for goes on behind what it granted."""
    producers = ProducerMap()
    for pid in (FIRST_KAFKA_PID + 5, BINDING.bound(FIRST_KAFKA_PID + 9, "User:alice"), FIRST_KAFKA_PID + 7):
        producers.accept(pid, 0, 0, 1, 0, 0, ManualClock().now())
    assert producers.highest_kafka_number == FIRST_KAFKA_PID + 9
