"""Groups that move with their partition of `__consumer_offsets`, from one broker to another and back."""

import asyncio

import pytest

from oncelog.log.work_steps import at_once
from oncelog.server import moves as server_moves
from oncelog.server.errors import ErrorCode
from oncelog.server.groups import moves
from oncelog.server.groups.messages import Leaving, SyncAnswer, SyncRequest
from oncelog.server.groups.offsets import TopicPartition
from oncelog.server.groups.records import CommittedOffset
from oncelog.server.groups.state import State
from tests.server.groups.support import SESSION_MS, House, joined
from tests.server.groups.two_brokers import (
    ELSEWHERE,
    LOADING,
    Held,
    all_have,
    append,
    move,
    place,
    replicated,
    two_brokers,
)

# From one to another


async def test_a_group_goes_on_where_its_partition_went_and_its_offsets_never_go_back() -> None:
    house, first, second = two_brokers()
    first.join()
    first.sync()
    leader, other = second, first
    for offset in range(6, 10):
        move(house, leader, other)
        assert leader.offset() == offset - 1
        group = leader.groups.groups["g"]
        assert (group.state, group.generation, group.leader) == (State.STABLE, 1, "m1")
        assert leader.heartbeat() is ErrorCode.none
        now = house.clock.now()
        assert leader.groups.check_commit("g", "m1", None, 1, now) is ErrorCode.none
        committed = {TopicPartition("t", 0): CommittedOffset(offset, -1, "", now.wall_ms)}
        assert leader.groups.commit("g", committed, now) is ErrorCode.none
        assert other.offset() is ELSEWHERE
        leader, other = other, leader


async def test_a_leader_that_shares_out_twice_is_read_back_with_what_its_members_were_told() -> None:
    """Its first word waits for the disk; then it lost its connection, joined again and shared out otherwise."""
    house = House("oncelog.flush=every")
    told = await joined(house)

    def share(house: House, said: bytes) -> SyncAnswer | asyncio.Future[SyncAnswer]:
        request = SyncRequest(member_id=told.member_id, generation=told.generation, assignments={told.member_id: said})
        return house.groups.sync("g", request, house.clock.now())

    first, second = share(house, b"first"), share(house, b"second")
    assert isinstance(first, asyncio.Future) and isinstance(second, asyncio.Future)
    partition = house.flushes[-1]
    partition.log.flush()
    partition.wake()
    assert ((await first).assignment, (await second).assignment) == (b"", b"first")
    known = share(house.after_restart(), b"")
    assert isinstance(known, SyncAnswer) and known.assignment == b"first"


async def test_whoever_resigned_knows_nothing_of_its_groups() -> None:
    house, first, second = two_brokers()
    first.join()
    first.sync()
    move(house, second, first)
    groups, now = first.groups, house.clock.now()
    assert first.join().error is ELSEWHERE
    assert first.sync().error is ELSEWHERE
    assert first.heartbeat() is ELSEWHERE
    assert groups.leave("g", [Leaving(member_id="m1")], now) == (ELSEWHERE, [])
    assert first.commit(7) is ELSEWHERE
    assert first.offset() is ELSEWHERE
    assert groups.check_delete_offsets("g") is ELSEWHERE
    assert at_once(groups.deleting_group("g", now)) is ELSEWHERE
    assert (groups.groups, groups.listed(), groups.committed_topics("g")) == ({}, (), {})
    end = place(house).log.next_offset
    house.topics.create("u", 1, {}, now)
    at_once(groups.forgetting("t", now))
    house.timers.advance(SESSION_MS - 1)
    assert place(house).log.next_offset == end, "it is not for the first one to write there"
    assert second.offset() == 5


async def test_members_join_again_where_the_generation_that_had_begun_is_not_known() -> None:
    house, first, second = two_brokers()
    answer = await first.join()
    assert answer.generation == 1  # nothing of it is stored before the leader has shared out
    move(house, second, first)
    assert second.heartbeat() is ErrorCode.unknown_member_id
    again = second.join(member_id="m1")
    assert again.error is ErrorCode.unknown_member_id
    assert (await second.join(fresh_id="m2")).generation == 1
    assert second.offset() == 5


async def test_who_waits_is_sent_to_the_next_coordinator() -> None:
    house, first, second = two_brokers()
    first.join()
    first.sync()
    waiting = first.join(fresh_id="m2")  # the first member has to join again
    assert isinstance(waiting, asyncio.Future) and not waiting.done()
    move(house, second, first)
    assert waiting.result().error is ELSEWHERE
    house.timers.advance(10 * SESSION_MS)
    assert first.groups.groups == {}, "its clocks stand still"


async def test_the_group_of_a_leader_that_lost_its_place_begins_no_generation() -> None:
    """Between the new epoch and the word that this broker resigned."""
    house, first, _ = two_brokers()
    first.join()
    first.sync()
    waiting = first.join(fresh_id="m2")
    place(house).log.begin_epoch(place(house).log.leader_epoch + 1)
    house.timers.advance(10 * SESSION_MS)
    assert not waiting.done()
    assert first.groups.groups["g"].generation == 1


async def test_an_unload_that_comes_late_is_ignored_and_so_is_an_election() -> None:
    house, first, second = two_brokers()
    old = place(house).log.leader_epoch
    move(house, second, first)
    epoch = move(house, first, second)
    first.groups.resigned(place(house), epoch - 1)
    assert first.offset() == 5
    second.groups.elected(place(house), old + 1)
    assert second.offset() is ELSEWHERE
    first.groups.elected(place(house), epoch)
    assert first.offset() == 5
    first.groups.resigned(place(house), epoch)
    assert first.offset() is ELSEWHERE
    first.groups.elected(place(house), epoch)
    assert first.offset() is ELSEWHERE, "it has left that epoch"


async def test_groups_of_other_partitions_stay() -> None:
    house = House("offsets.topic.num.partitions=5")
    house.make_topic("t")
    for number in range(40):
        house.commit(f"g{number}", "t", number)
    before = {number: house.groups.partition_of(f"g{number}") for number in range(40)}
    partition = place(house, 2)
    house.groups.resigned(partition, partition.log.leader_epoch + 1)
    gone = {number for number, where in before.items() if where is partition}
    assert gone and len(house.groups.groups) == 40 - len(gone)
    assert {number for number in before if house.offset(f"g{number}", "t") is None} == gone


# Reading them back


async def test_groups_are_read_in_turns_and_requests_are_told_so_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_moves, "READ_AT_A_TIME", 2)
    monkeypatch.setattr(moves, "GROUPS_AT_A_TIME", 2)
    held = Held()
    house, first, second = two_brokers(in_turns=held)
    for number in range(10):
        first.commit(number, f"g{number}")
    first.join()
    first.sync()
    held.finish()
    move(house, second, first)
    steps = 0
    while held.step() and not second.groups.groups:
        steps += 1
        now = house.clock.now()
        assert second.join().error is LOADING
        assert second.sync().error is ErrorCode.rebalance_in_progress
        assert second.heartbeat() is ErrorCode.none
        assert second.groups.leave("g", [Leaving(member_id="m1")], now)[0] is LOADING
        assert second.commit(99) is LOADING
        assert second.offset() is LOADING
        assert second.groups.check_delete_offsets("g") is LOADING
        assert at_once(second.groups.deleting_group("g", now)) is LOADING
        assert second.groups.listed() == () and second.groups.is_loading
    assert steps > 10
    held.finish()
    assert not second.groups.is_loading
    assert [second.offset(f"g{number}") for number in range(10)] == list(range(10))
    assert second.heartbeat() is ErrorCode.none
    assert second.offset() == 5


@pytest.mark.parametrize("steps", range(12))
async def test_a_load_is_given_up_when_its_partition_goes_or_is_won_anew(
    steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_moves, "READ_AT_A_TIME", 2)
    monkeypatch.setattr(moves, "GROUPS_AT_A_TIME", 2)
    held = Held()
    house, first, second = two_brokers(in_turns=held)
    for number in range(5):
        first.commit(number, f"g{number}")
    held.finish()
    move(house, second, first)
    for _ in range(steps):
        held.step()
    move(house, first, second)
    assert second.offset() is ELSEWHERE
    first.commit(6)
    held.finish()
    assert (second.groups.groups, second.groups.committed("g", "t", 0), second.offset()) == ({}, None, ELSEWHERE)
    move(house, second, first)
    for _ in range(steps):
        held.step()
    move(house, second)
    held.finish()
    assert second.offset() == 6
    assert [second.offset(f"g{number}") for number in range(5)] == list(range(5))


async def test_members_have_a_session_from_when_they_are_served() -> None:
    held = Held()
    house, first, second = two_brokers(in_turns=held)
    first.join()
    first.sync()
    move(house, second, first)
    house.clock.advance(10 * SESSION_MS)
    held.finish()
    states = []
    for wait_ms in (SESSION_MS - 1, 1):
        house.timers.advance(wait_ms)
        held.finish()
        states.append(second.groups.groups["g"].state)
    assert states == [State.STABLE, State.EMPTY]


# What is not safe yet


async def test_groups_are_served_once_what_was_read_is_below_the_high_watermark() -> None:
    house, _, second = two_brokers()
    partition = replicated(house)
    append(partition, 6)
    partition.log.begin_epoch(partition.log.leader_epoch + 1)
    second.groups.elected(partition, partition.log.leader_epoch)
    partition.wake()
    assert second.offset() is LOADING
    assert second.groups.groups == {}
    all_have(partition)
    assert second.offset() == 6


async def test_groups_of_an_epoch_that_ended_before_they_were_safe_are_never_served() -> None:
    house, _, second = two_brokers()
    partition = replicated(house)
    append(partition, 6)
    second.groups.elected(partition, partition.log.leader_epoch)
    partition.log.follow_epoch(partition.log.leader_epoch + 1)
    all_have(partition)
    assert second.offset() is ELSEWHERE
    assert second.groups.groups == {}


@pytest.mark.parametrize("how", ["resigned", "elected anew", "led elsewhere"])
async def test_a_commit_that_waited_for_an_epoch_that_ended_is_answered_not_coordinator(how: str) -> None:
    house, _, second = two_brokers()
    partition = replicated(house)
    all_have(partition)
    second.groups.elected(partition, partition.log.leader_epoch)
    commit = second.commit(6)
    told = second.groups.settled("g")
    assert isinstance(commit, asyncio.Future) and isinstance(told, asyncio.Future)
    assert not commit.done()
    epoch = partition.log.leader_epoch + 1
    if how == "elected anew":
        partition.log.begin_epoch(epoch)
        second.groups.elected(partition, epoch)
    elif how == "resigned":
        partition.log.follow_epoch(epoch)
        second.groups.resigned(partition, epoch)
    else:
        partition.leads = False
        partition.wake()
    assert commit.done() and told.done()
    assert (commit.result(), told.result()) == (ELSEWHERE, ELSEWHERE)
    assert how == "elected anew" or (second.offset(), second.heartbeat()) == (ELSEWHERE, ELSEWHERE)


async def test_what_the_log_has_lost_is_forgotten_when_the_partition_is_won_anew() -> None:
    """A leader that was cut back, and has not heard that it led no more in between."""
    house, _, second = two_brokers()
    partition = replicated(house)
    all_have(partition)
    second.groups.elected(partition, partition.log.leader_epoch)
    end = partition.log.next_offset
    second.commit(6)
    second.commit(6, "h")
    epoch = partition.log.leader_epoch + 2
    partition.log.follow_epoch(epoch - 1)
    partition.log.truncate_to(end)
    partition.log.begin_epoch(epoch)
    second.groups.elected(partition, epoch)
    assert (second.offset(), second.offset("h")) == (5, None)
    assert set(second.groups.groups) == {"g"}


async def test_a_share_that_waited_for_an_epoch_that_ended_is_asked_for_elsewhere() -> None:
    house, _, second = two_brokers()
    partition = replicated(house)
    all_have(partition)
    second.groups.elected(partition, partition.log.leader_epoch)
    second.join()
    share = second.sync()
    assert isinstance(share, asyncio.Future) and not share.done()
    partition.log.follow_epoch(partition.log.leader_epoch + 1)
    second.groups.resigned(partition, partition.log.leader_epoch)
    assert share.done()
    assert share.result().error is ELSEWHERE
