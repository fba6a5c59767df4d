"""Who is to lead, and each change: functions of one state and of what is known of the brokers."""

import pytest

from oncelog.replication.leadership import (
    NOBODY,
    UNKNOWN,
    Leadership,
    Peer,
    elected,
    first,
    grown,
    moved,
    needs_leader,
    reassigned,
    shrunk,
    successor,
    told,
    withdrawn,
)

ALL = {broker: Peer(1) for broker in range(3)}
DEAD = Peer(1, is_live=False)
STOPPING = Peer(1, is_stopping=True)


def test_the_first_replica_in_sync_that_lives_leads() -> None:
    state = first((2, 0, 1))
    assert needs_leader(state, ALL)
    assert successor(state, ALL) == 2
    assert successor(state, ALL | {2: DEAD}) == 0
    assert successor(state, ALL | {2: STOPPING}) == 0
    assert successor(state, {2: STOPPING}) == 2, "better than nobody"
    assert successor(state, {}) == NOBODY


def test_who_is_down_when_a_partition_is_made_is_not_in_sync() -> None:
    assert first((2, 0, 1), {0, 1, 3}) == Leadership((2, 0, 1), in_sync=(0, 1))
    assert first((2, 0), {1}) == Leadership((2, 0), in_sync=(2, 0)), "or nobody could ever lead"


def test_nobody_leads_who_is_neither_in_sync_nor_eligible() -> None:
    state = Leadership((0, 1, 2), 0, 4, in_sync=(0,), eligible=(2,))
    assert successor(state, {1: Peer(1)}) == NOBODY
    assert successor(state, {1: Peer(1), 2: Peer(1)}) == 2


def test_an_election_leaves_the_dead_behind_and_counts_them_as_eligible_where_few_are_left() -> None:
    state = Leadership((0, 1, 2), 0, 4, in_sync=(0, 1, 2), version=8)
    enough = elected(state, 1, ALL | {0: DEAD}, min_in_sync=2)
    assert enough == Leadership((0, 1, 2), 1, 5, in_sync=(1, 2), version=9)
    few = elected(state, 1, {1: Peer(1)}, min_in_sync=2)
    assert (few.in_sync, few.eligible) == ((1,), (0, 2))
    assert grown(few, 2, 2)[3:5] == ((1, 2), ()), "the watermark may move again, so 0 is out"


def test_an_eligible_broker_leads_alone() -> None:
    state = Leadership((0, 1), 0, 4, in_sync=(0,), eligible=(1,))
    assert elected(state, 1, {1: Peer(1)}, min_in_sync=2)[1:5] == (1, 5, (1,), (0,))


def test_a_leader_that_stops_is_followed_by_another_where_there_is_one() -> None:
    state = Leadership((0, 1), 0, 4, in_sync=(0, 1))
    assert needs_leader(state, ALL | {0: STOPPING})
    assert not needs_leader(shrunk(state, [1], 1), ALL | {0: STOPPING})


def test_of_brokers_that_all_ended_uncleanly_the_one_with_most_leads_once_all_have_told() -> None:
    state = Leadership((0, 1, 2), 0, 4, in_sync=(0, 1), version=8)
    one_left = withdrawn(state, 0, (4, 20))
    assert (one_left.leader, one_left.in_sync, one_left.last) == (NOBODY, (1,), ((0, (4, 20)),))
    lost = withdrawn(one_left, 1, (4, 25))
    assert lost.is_lost
    assert lost.last == ((0, UNKNOWN), (1, (4, 25))), "0 may have followed 1 since"
    assert successor(lost, ALL) == NOBODY
    both = told(lost, 0, (4, 22))
    assert successor(both, ALL) == NOBODY, "2 lives, and has not told"
    assert successor(both, {0: Peer(1), 1: Peer(1)}) == 1
    assert successor(told(both, 2, (4, 26)), ALL) == 2
    assert successor(both, {0: Peer(1)}) == NOBODY, "1 has more"


def test_who_came_back_from_an_unclean_end_is_remembered_until_enough_are_in_sync() -> None:
    """It may have lost nothing, and the one that is left may lose its power, too (KIP-966: the last known ELR)."""
    one_left = withdrawn(Leadership((0, 1, 2), 1, 4, in_sync=(0, 1), version=8), 0, (4, 20))
    again = elected(one_left, 1, {1: Peer(2), 2: Peer(1)}, min_in_sync=2)
    assert (again.in_sync, again.last) == ((1,), ((0, (4, 20)),))
    lost = withdrawn(again, 1, (4, 15))
    assert successor(told(lost, 2, (3, 9)), {1: Peer(3), 2: Peer(1)}) == NOBODY, "0 is away, and may have more"
    assert successor(told(told(lost, 2, (3, 9)), 0, (4, 20)), ALL) == 0
    assert grown(again, 2, 2).last == (), "what they have is safe"
    assert elected(told(lost, 0, (4, 20)), 0, {0: Peer(2)}, 2).last == (), "what is missing there is given up"


def test_a_broker_without_all_of_it_is_not_asked_for_while_another_has_it() -> None:
    state = withdrawn(Leadership((0, 1), 0, 4, in_sync=(0,), eligible=(1,)), 0, (4, 20))
    assert (state.is_lost, successor(state, ALL)) == (False, 1)
    none = withdrawn(state, 1, (4, 19))
    assert (none.is_lost, none.eligible, none.last) == (True, (), ((0, UNKNOWN), (1, (4, 19))))


def test_replicas_move_once_all_that_stay_are_in_sync() -> None:
    state = reassigned(Leadership((0, 1, 2), 0, 4, in_sync=(0, 1), version=8), (3, 1, 2), 2)
    assert state == Leadership((3, 1, 2, 0), 0, 4, in_sync=(0, 1), version=9, adding=(3,), removing=(0,)), (
        "nobody is waited for, or leaves"
    )
    assert not state.is_moved
    state = grown(grown(state, 3, 2), 2, 2)
    assert state.is_moved
    assert moved(state, 2) == Leadership((3, 1, 2), NOBODY, 4, in_sync=(3, 1, 2), version=12), "its leader left, too"


def test_a_move_may_be_taken_back_or_led_elsewhere_on_its_way() -> None:
    before = Leadership((0, 1), 0, 4, in_sync=(0, 1), version=8)
    state = grown(reassigned(before, (2, 3), 2), 2, 2)
    assert (state.replicas, state.adding, state.removing) == ((2, 3, 0, 1), (2, 3), (0, 1))
    assert reassigned(state, None, 2) == before._replace(leader=NOBODY, version=11)
    other = reassigned(state, (1, 4), 2)
    assert (other.replicas, other.in_sync, other.adding, other.removing) == ((1, 4, 0), (0, 1), (4,), (0,))


def test_somebody_is_elected_anew_where_a_replica_is_dropped() -> None:
    """It removes its log. Added again, it must not be taken to have what it said in the epoch before."""
    state = Leadership((0, 1, 2), 0, 4, in_sync=(0, 1, 2), version=8)
    fewer = reassigned(state, (0, 1), 2)
    assert (fewer.replicas, fewer.leader, fewer.is_moved) == ((0, 1, 2), 0, True)
    dropped = moved(fewer, 2)
    assert (dropped.replicas, dropped.leader, dropped.in_sync) == ((0, 1), NOBODY, (0, 1))
    assert elected(reassigned(dropped, (0, 1, 2), 2), 0, ALL, 2).epoch == 5
    assert moved(grown(reassigned(dropped._replace(leader=0), (0, 1, 2), 2), 2, 2), 2).leader == 0, "nobody was"


def test_nobody_who_has_everything_is_dropped_for_one_who_has_not() -> None:
    moving = Leadership((2, 0), 2, 4, in_sync=(2,), version=8, adding=(2,), removing=(0,))
    with pytest.raises(ValueError, match="too few of these brokers"):
        reassigned(moving, None, 1)
    one = Leadership((2, 3, 0), 2, 4, in_sync=(2,), eligible=(0,), adding=(2, 3), removing=(0,))
    with pytest.raises(ValueError, match="too few of these brokers"):
        reassigned(one, (3, 0), 2)  # 0 may be away, and may have lost what it had
    two = one._replace(in_sync=(2, 0), eligible=())
    with pytest.raises(ValueError, match="too few of these brokers"):
        reassigned(two, None, 2)
    assert reassigned(two, None, 1).in_sync == (0,)
    lost = withdrawn(moving, 2, (4, 20))
    with pytest.raises(ValueError, match="too few of these brokers"):
        reassigned(lost, None, 1)  # nobody would be left who says what there was
    assert reassigned(lost, (2, 1), 1).last == lost.last
