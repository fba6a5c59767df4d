"""A follower's fetch, between two real logs."""

import pytest

from oncelog.log.partition import PartitionLog
from oncelog.replication.following import Diverging, NextFetch, OtherEpoch, Records, TooEarly, answer, ask, take
from oncelog.replication.leader import Rules
from oncelog.replication.leadership import Leadership, Peer
from oncelog.replication.replica import Fetching, Replica
from tests.log.memory_disk import MemoryDisk
from tests.log.support import NOW, open_log, put, values_in


def followed(follower: PartitionLog, leader: PartitionLog) -> int:
    """How many fetches it took."""
    for fetches in range(20):
        asked = ask(follower)
        answered = answer(leader, asked)
        if isinstance(answered, Records) and not answered.batches:
            take(follower, asked, answered, NOW)
            return fetches
        take(follower, asked, answered, NOW)
    pytest.fail("it comes to no end")


def log_of(*epochs: tuple[int, str]) -> PartitionLog:
    """Each of its epochs with its records, a letter each."""
    log = open_log(MemoryDisk(), replicated=True)
    for epoch, records in epochs:
        log.begin_epoch(epoch)
        for record in records:
            put(log, record.encode())
    return log


@pytest.mark.parametrize(
    ("mine", "leaders", "fetches"),
    [
        ([], [(1, "ab")], 1),
        ([(1, "ab")], [(1, "ab")], 0),
        ([(1, "abX")], [(1, "ab"), (2, "c")], 2),
        ([(1, "ab"), (2, "XY")], [(1, "abc"), (3, "d")], 2),
        ([(1, "ab"), (2, "X"), (4, "YZ")], [(1, "abc"), (3, "d"), (5, "e")], 2),
        ([(1, "a"), (2, "X"), (4, "Y")], [(1, "a"), (3, "bc"), (5, "")], 2),
        ([(2, "XYZ")], [(1, "ab"), (3, "c")], 2),
    ],
)
def test_a_follower_comes_to_have_what_its_leader_has(
    mine: list[tuple[int, str]], leaders: list[tuple[int, str]], fetches: int
) -> None:
    leader, follower = log_of(*leaders), log_of(*mine)
    leader.advance_high_watermark(leader.next_offset)
    follower.follow_epoch(leader.leader_epoch)
    assert followed(follower, leader) <= fetches + 1
    assert values_in(follower) == values_in(leader)
    assert follower.high_watermark == leader.high_watermark


def test_the_high_watermark_of_a_follower_cuts_nothing_off() -> None:
    """KIP-101: it lags behind the leader's, so what lies above it may be acknowledged."""
    leader, follower = log_of((1, "abc")), log_of()
    follower.follow_epoch(1)
    followed(follower, leader)
    assert follower.high_watermark == 0
    follower.follow_epoch(2)
    assert follower.next_offset == 3


def test_a_followers_log_starts_where_its_leaders_does() -> None:
    leader, follower = log_of((1, "abc")), log_of()
    follower.follow_epoch(1)
    followed(follower, leader)
    leader.advance_high_watermark(3)
    leader.delete_before(2)
    followed(follower, leader)
    assert (follower.log_start_offset, values_in(follower)) == (2, [b"c"])
    assert isinstance(answer(leader, NextFetch(1, 1, -1)), Records), "it is still there, and with it who wrote it"


def test_a_follower_that_is_behind_its_leaders_first_record_begins_anew_with_the_producers() -> None:
    leader, follower = log_of((1, "")), log_of((1, "a"))
    for sequence in range(5):
        put(leader, b"of 7", pid=7, sequence=sequence)
    for sequence in range(15):
        put(leader, b"of 8", pid=8, sequence=sequence)
    leader.advance_high_watermark(20)
    leader.delete_before(12, NOW)
    assert follower.next_offset < leader.first_offset
    assert isinstance(answer(leader, ask(follower)), TooEarly)
    followed(follower, leader)
    assert (follower.log_start_offset, values_in(follower)) == (12, values_in(leader))
    assert [follower.producers.highwater(pid) for pid in (7, 8)] == [(0, 4), (0, 14)]


def test_a_follower_whose_end_is_of_another_epoch_than_what_its_leader_deleted_begins_anew() -> None:
    """Its producers are those of records that nobody else has."""
    leader = log_of((1, "abc"), (3, ""))
    for _ in range(12):
        put(leader, b"of epoch 3")
    leader.advance_high_watermark(15)
    leader.delete_before(12, NOW)
    first = leader.first_offset
    assert first > 4
    follower = log_of((1, "abc"), (2, "x" * (first - 3)))
    follower.follow_epoch(3)
    assert follower.next_offset == first
    followed(follower, leader)
    assert (follower.first_offset, values_in(follower)) == (first, values_in(leader))


@pytest.mark.parametrize("later", ["", "z" * 30], ids=["shorter", "longer-by-now"])
def test_a_follower_that_begins_behind_all_that_both_have_begins_anew(later: str) -> None:
    """Cut back it would end before its own first record, and ask for the same for ever."""
    follower = log_of((1, "a" * 20))
    follower.advance_high_watermark(20)
    follower.delete_before(18, NOW)
    leader = log_of((1, "abc"), (5, later))
    follower.follow_epoch(5)
    assert follower.first_offset > 3
    leader.advance_high_watermark(leader.next_offset)
    followed(follower, leader)
    assert (follower.log_start_offset, values_in(follower)) == (0, values_in(leader))


def test_two_that_do_not_agree_who_leads_exchange_nothing() -> None:
    leader = log_of((2, "a"))
    assert answer(leader, NextFetch(1, 0, -1)) == OtherEpoch(2)
    assert answer(leader, NextFetch(3, 0, -1)) == OtherEpoch(2)


def test_an_answer_to_another_question_is_passed_over() -> None:
    leader, follower = log_of((1, "ab")), log_of()
    follower.follow_epoch(1)
    asked = ask(follower)
    late = answer(leader, asked)
    followed(follower, leader)
    take(follower, asked, late, NOW)
    assert follower.next_offset == 2


def test_a_fetch_that_diverges_acknowledges_nothing() -> None:
    log = log_of((1, "ab"))
    leads = Replica(0, log, Rules(min_in_sync=2), is_clean=True)
    peers = {broker: Peer(1) for broker in (0, 1)}
    leads.see(Leadership((0, 1), epoch=1, in_sync=(0, 1)), 0)
    change = leads.change(peers, 0)
    assert change is not None
    leads.see(change.state, 0)
    put(log, b"c")
    assert isinstance(leads.answer(Fetching(1, 1, NextFetch(2, 5, 1)), 0), Diverging)
    assert log.high_watermark == 0
    assert isinstance(leads.answer(Fetching(1, 1, NextFetch(2, 2, 1)), 0), Records)
    assert log.high_watermark == 2
