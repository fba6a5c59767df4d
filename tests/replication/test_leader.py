"""The high watermark, and who is in sync: what a leader makes of its followers' fetches."""

from oncelog.replication.leader import Leader, Rules
from oncelog.replication.leadership import Leadership, Peer

ALL = {broker: Peer(1) for broker in range(3)}
LAG_MS = 100


def leader(*in_sync: int, eligible: tuple[int, ...] = (), min_in_sync: int = 2, end: int = 10) -> Leader:
    state = Leadership((0, 1, 2), 0, 5, in_sync, eligible, version=7)
    return Leader(0, state, end, Rules(min_in_sync, LAG_MS), now_ms=0)


def fetched(leads: Leader, broker: int, offset: int, end: int = 12, *, epoch: int = 1, now_ms: int = 10) -> None:
    leads.fetched(broker, epoch, offset, end, now_ms)


def test_what_all_in_sync_have_is_safe() -> None:
    leads = leader(0, 1, 2)
    assert leads.high_watermark(12) == -1, "nobody has asked yet"
    fetched(leads, 1, 12)
    fetched(leads, 2, 11)
    assert leads.high_watermark(12) == 11


def test_a_change_on_its_way_holds_the_watermark_back_for_both_sets() -> None:
    growing = leader(0, 1, min_in_sync=1)
    fetched(growing, 1, 12)
    fetched(growing, 2, 11, end=11)
    change = growing.change(ALL, 11, now_ms=10)
    assert change is not None and change.state.in_sync == (0, 1, 2)
    assert growing.high_watermark(12) == 11, "it may be in sync by now"
    shrinking = leader(0, 1, 2)
    fetched(shrinking, 1, 12)
    fetched(shrinking, 2, 10)
    dead = ALL | {2: Peer(1, is_live=False)}
    change = shrinking.change(dead, 10, now_ms=10)
    assert change is not None and change.state.in_sync == (0, 1)
    assert shrinking.high_watermark(12) == 10, "it may still be in sync"
    shrinking.seen(change.state)
    assert shrinking.high_watermark(12) == 12


def test_a_change_that_is_refused_counts_no_more() -> None:
    leads = leader(0, 1, min_in_sync=1)
    fetched(leads, 1, 12)
    fetched(leads, 2, 10)
    leads.change(ALL, 10, now_ms=10)
    leads.refused()
    assert leads.high_watermark(12) == 12


def test_the_watermark_stands_still_below_min_in_sync_and_while_anybody_is_eligible() -> None:
    few = leader(0)
    assert (few.has_enough, few.high_watermark(12)) == (False, -1)
    lowered = leader(0, eligible=(1,), min_in_sync=1)
    assert lowered.high_watermark(12) == -1, "min.insync.replicas was 2 when 1 left"
    change = lowered.change(ALL, 10, now_ms=10)
    assert change is not None and change.state.eligible == ()
    lowered.seen(change.state)
    assert lowered.high_watermark(12) == 12


def test_who_joins_has_all_of_the_epoch_before() -> None:
    """What lies between the high watermark and the epoch's start may have been acknowledged by the leader before."""
    leads = leader(0, 1, end=10)
    fetched(leads, 1, 12)
    fetched(leads, 2, 9)
    assert leads.change(ALL, 8, now_ms=10) is None
    fetched(leads, 2, 10)
    change = leads.change(ALL, 8, now_ms=10)
    assert change is not None and change.epochs == ((0, 1), (2, 1))


def test_who_stops_or_has_started_again_does_not_join() -> None:
    leads = leader(0, 1)
    fetched(leads, 2, 12)
    assert leads.change(ALL | {2: Peer(1, is_stopping=True)}, 10, now_ms=10) is None
    assert leads.change(ALL | {2: Peer(2)}, 10, now_ms=10) is None
    fetched(leads, 2, 12, epoch=2)
    fetched(leads, 2, 12, epoch=1)
    assert leads.change(ALL | {2: Peer(2)}, 10, now_ms=10) is not None


def test_who_lags_or_is_gone_leaves_and_is_eligible_where_few_are_left() -> None:
    leads = leader(0, 1, 2)
    for at_ms in range(0, 300, 50):
        fetched(leads, 1, 12, now_ms=at_ms)
        fetched(leads, 2, 11, end=12 + at_ms, now_ms=at_ms)
    change = leads.change(ALL, 10, now_ms=250)
    assert change is not None and (change.state.in_sync, change.state.eligible) == ((0, 1), ())
    leads.seen(change.state)
    change = leads.change(ALL | {1: Peer(1, is_stopping=True)}, 10, now_ms=250)
    assert change is not None and (change.state.in_sync, change.state.eligible) == ((0,), (1,))


def test_a_follower_that_reaches_where_the_leader_was_is_not_behind() -> None:
    """While much is appended it never stands at the very end."""
    leads = leader(0, 1)
    for at_ms in range(0, 1000, 50):
        fetched(leads, 1, offset=10 + at_ms, end=60 + at_ms, now_ms=at_ms)
    assert leads.change({broker: ALL[broker] for broker in (0, 1)}, 10, now_ms=1000) is None
