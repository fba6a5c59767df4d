"""One broker's part: when it is elected, and what it believes of what became of its changes."""

from oncelog.log.partition import PartitionLog
from oncelog.replication.leader import Rules
from oncelog.replication.leadership import NOBODY, Leadership, Peer, grown, successor
from oncelog.replication.replica import Replica
from tests.log.memory_disk import MemoryDisk
from tests.log.support import open_log, put

ALL = {broker: Peer(1) for broker in range(3)}
STATE = Leadership((0, 1, 2), 1, 4, in_sync=(0, 1, 2), version=8)


def replica(state: Leadership, *, is_clean: bool = True, me: int = 0, min_in_sync: int = 2) -> Replica:
    made = Replica(me, open_log(MemoryDisk(), replicated=True), Rules(min_in_sync), is_clean=is_clean)
    made.see(state, 0)
    return made


def test_an_older_state_says_nothing() -> None:
    mine = replica(STATE)
    mine.see(STATE._replace(version=7, leader=2, epoch=3), 0)
    assert (mine.state, mine.log.leader_epoch) == (STATE, 4)


def test_an_election_is_proposed_until_it_is_known_what_became_of_it() -> None:
    """A lost answer is no failure: it may count, and count late."""
    mine = replica(STATE._replace(leader=NOBODY))
    change = mine.change(ALL, 0)
    assert change is not None and (change.state.leader, change.state.epoch) == (0, 5)
    assert change.epochs == ((0, 1),)
    assert mine.leader is None
    assert mine.change(ALL | {1: Peer(2)}, 9_999) == change
    mine.see(change.state, 0)
    assert mine.leader is not None
    assert mine.log.leader_epoch == 5


def test_the_preferred_leader_leads_again_once_it_has_been_in_sync_for_a_while() -> None:
    mine = replica(STATE)
    mine.obey(Rules(2, prefer_after_ms=1_000))
    assert mine.change(ALL, 999) is None
    mine.see(STATE._replace(in_sync=(1, 2), version=9), 1_500)
    assert mine.change(ALL, 2_500) is None
    mine.see(STATE._replace(version=10), 2_600)
    assert mine.change(ALL, 3_599) is None
    assert mine.change(ALL | {0: Peer(1, is_stopping=True)}, 3_600) is None
    change = mine.change(ALL, 3_600)
    assert change is not None and (change.state.leader, change.state.epoch, change.state.in_sync) == (0, 5, (0, 1, 2))
    other = replica(STATE, me=2)
    other.obey(Rules(2, prefer_after_ms=1_000))
    assert other.change(ALL, 9_999) is None


def test_an_election_counts_also_where_somebody_was_faster_to_change_what_came_of_it() -> None:
    mine = replica(STATE._replace(leader=NOBODY, in_sync=(0, 1)))
    change = mine.change(ALL, 0)
    assert change is not None
    mine.see(grown(change.state, 2, 2), 0)
    assert mine.leader is not None


def test_an_election_that_lost_is_forgotten() -> None:
    mine = replica(STATE._replace(leader=NOBODY))
    assert mine.change(ALL, 0) is not None
    mine.see(STATE._replace(leader=1, epoch=5, version=9), 0)
    assert mine.leader is None
    assert mine.change(ALL, 0) is None


def test_a_leader_that_starts_again_is_elected_again() -> None:
    """What it did not append in this life is not of this epoch."""
    mine = replica(STATE, me=1)
    assert mine.leader is None
    change = mine.change(ALL | {1: Peer(2)}, 0)
    assert change is not None and (change.state.leader, change.state.epoch) == (1, 5)


def test_a_broker_that_ended_uncleanly_withdraws_before_anything_else() -> None:
    mine = replica(STATE._replace(leader=0), is_clean=False)
    assert mine.fetch() is None
    change = mine.change(ALL, 0)
    assert change is not None
    assert (change.state.leader, change.state.in_sync, change.state.last) == (NOBODY, (1, 2), ((0, (-1, 0)),))
    mine.see(STATE._replace(leader=0, in_sync=(0, 2), version=9), 0)
    assert mine.leader is None, "another one's change is no election of mine"
    change = mine.change(ALL, 0)
    assert change is not None and change.state.in_sync == (2,)
    mine.see(change.state._replace(leader=2, epoch=5, version=11), 0)
    assert (mine.change(ALL, 0), mine.is_clean) == (None, True)
    assert mine.fetch() is not None


def test_a_leader_that_is_deposed_follows() -> None:
    mine = replica(STATE._replace(leader=NOBODY), min_in_sync=1)
    change = mine.change(ALL, 0)
    assert change is not None
    mine.see(change.state, 0)
    led = mine.log.leader_epoch
    mine.see(STATE._replace(epoch=6, version=20), 0)
    assert mine.leader is None
    assert (led, mine.log.leader_epoch) == (5, 6)
    assert mine.fetch() is not None


def test_a_leader_whose_log_takes_nothing_in_any_more_gives_way_to_who_has_all_of_it() -> None:
    mine = replica(STATE, me=1)
    assert isinstance(mine.log, PartitionLog)
    mine.log.go_offline("its disk fails")
    change = mine.change(ALL, 0)
    assert change is not None
    assert change.state[:4] == ((0, 1, 2), NOBODY, 4, (0, 2))
    assert successor(change.state, ALL) == 0
    mine.see(change.state, 0)
    assert (mine.leader, mine.change(ALL, 0), mine.fetch()) == (None, None, None)


def test_it_leads_on_where_nobody_else_could() -> None:
    """What it has can still be read."""
    dead = ALL | {0: Peer(1, is_live=False), 2: Peer(1, is_live=False)}
    mine = replica(STATE, me=1)
    assert isinstance(mine.log, PartitionLog)
    mine.log.go_offline("its disk fails")
    change = mine.change(dead, 0)
    assert change is not None and (change.state.leader, change.state.in_sync) == (1, (1,))
    mine.see(change.state, 0)
    assert mine.leader is not None
    eligible_again = mine.change(ALL, 0)
    assert eligible_again is not None and (eligible_again.state.leader, eligible_again.state.in_sync) == (NOBODY, ())
    assert successor(eligible_again.state, ALL) == 0


def test_a_follower_whose_log_takes_nothing_in_any_more_asks_for_nothing_and_is_no_successor() -> None:
    mine = replica(STATE)
    assert mine.fetch() is not None
    assert isinstance(mine.log, PartitionLog)
    mine.log.go_offline("its disk fails")
    assert (mine.fetch(), mine.change(ALL, 0)) == (None, None)
    change = mine.change(ALL | {1: Peer(1, is_live=False)}, 0)
    assert change is not None and (change.state.leader, change.state.in_sync) == (1, (1, 2))


def test_with_fewer_to_be_in_sync_what_was_appended_counts_at_once() -> None:
    mine = replica(STATE._replace(replicas=(0,), leader=NOBODY, in_sync=(0,)))
    change = mine.change(ALL, 0)
    assert change is not None and isinstance(mine.log, PartitionLog)
    mine.see(change.state, 0)
    put(mine.log, b"a")
    mine.move_high_watermark()
    assert mine.log.high_watermark == 0
    mine.obey(Rules(1))
    assert mine.log.high_watermark == 1
