"""What groups may hold, and how much of the loop they may take."""

import asyncio
import errno
from collections.abc import Iterator
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import pytest

from oncelog.log.work_steps import Pauses, at_once
from oncelog.server.api import apis
from oncelog.server.call import Call
from oncelog.server.errors import ErrorCode, KafkaError
from oncelog.server.groups import coordinator, forgetting
from oncelog.server.groups.coordinator import GroupCoordinator
from oncelog.server.groups.group import Group
from oncelog.server.groups.member import Member, Members
from oncelog.server.groups.messages import (
    MEMBER_BYTES,
    JoinAnswer,
    Leaving,
    SyncAnswer,
    SyncRequest,
)
from oncelog.server.groups.offsets import TopicPartition
from oncelog.server.groups.records import CommittedOffset
from oncelog.server.memory import Memory
from oncelog.server.names import MOST_ID_CHARACTERS, OFFSETS_TOPIC
from oncelog.server.turns import Turns
from tests.log.memory_disk import MemoryDisk
from tests.server.groups.support import SESSION_MS, House, join_request, joined
from tests.server.topics_support import EVERY_TURN_IS_OVER


async def test_of_commits_that_no_longer_count_a_start_reads_no_more_than_a_segment() -> None:
    segment_bytes = 8192
    house = House(f"offsets.topic.segment.bytes={segment_bytes}", "offsets.topic.num.partitions=1")
    house.make_topic("t")
    for offset in range(2_000):
        house.commit("g", "t", offset)
    topic = house.topics.get(OFFSETS_TOPIC)
    assert topic is not None
    log = topic.partitions[0].log
    assert log.size_bytes > 20 * segment_bytes
    log.compact(house.clock.now())
    assert log.size_bytes < 2 * segment_bytes
    assert house.after_restart().offset("g", "t") == 1_999


async def test_what_all_groups_commit_is_bounded_and_who_commits_again_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("oncelog.server.groups.store.OFFSETS_BYTES", 100_000)
    house = House("offsets.topic.num.partitions=1")
    house.make_topic("t")
    answers = [house.commit(f"g{number}", "t", 1, metadata="m" * 3000) for number in range(100)]
    count = answers.count(ErrorCode.none)
    assert 20 < count < 34 and answers == [ErrorCode.none] * count + [ErrorCode.coordinator_not_available] * (
        100 - count
    )
    assert f"g{count}" not in house.groups.groups
    assert house.commit("g0", "t", 2, metadata="m" * 3000) is ErrorCode.none
    assert house.commit("g0", "t", 2, metadata="m" * 4096) is ErrorCode.coordinator_not_available
    house = house.after_restart()
    assert house.commit("new", "t", 1, metadata="m" * 3000) is ErrorCode.coordinator_not_available
    assert house.commit("g0", "t", 3) is ErrorCode.none  # without metadata: there is room again
    assert house.commit("new", "t", 1, metadata="m" * 2000) is ErrorCode.none


async def test_a_commit_that_is_too_large_for_one_batch_is_refused_as_a_whole() -> None:
    house = House("message.max.bytes=20000")
    house.make_topic("t", 10)
    now = house.clock.now()
    assert house.commit("g", "t", 1, 0) is ErrorCode.none
    many = {TopicPartition("t", index): CommittedOffset(9, -1, "x" * 4000, now.wall_ms) for index in range(10)}
    assert house.groups.commit("g", many, now) is ErrorCode.invalid_commit_offset_size
    assert (house.offset("g", "t", 0), house.offset("g", "t", 9)) == (1, None)


async def test_ids_have_a_bound_and_nothing_is_kept_of_longer_ones() -> None:
    house = House()
    house.make_topic("t")
    now, long = house.clock.now(), "x" * (MOST_ID_CHARACTERS + 1)
    assert house.groups.check_commit(long, "", None, -1, now) is ErrorCode.invalid_group_id
    assert house.groups.check_commit(long[1:], "", None, -1, now) is ErrorCode.none
    assert house.groups.settled(long) is ErrorCode.invalid_group_id
    assert house.delete_group(long) is ErrorCode.invalid_group_id
    assert house.groups.heartbeat(long, "m", None, 1, now) is ErrorCode.invalid_group_id
    for refused in ({"client_id": long}, {"instance_id": long}, {"protocol_type": long}):
        assert (await joined(house, **refused)).error is ErrorCode.invalid_request
    assert "g" not in house.groups.groups


async def test_ids_that_were_only_handed_out_count_as_what_members_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("oncelog.server.groups.coordinator.MEMBERS_BYTES", 5 * MEMBER_BYTES)
    house = House()
    for number in range(4):
        answer = await joined(house, needs_known_id=True, fresh_id=f"m{number}")
        assert answer.error is ErrorCode.member_id_required
    assert (await joined(house, needs_known_id=True, fresh_id="m4")).error is ErrorCode.coordinator_not_available
    house.timers.advance(SESSION_MS)
    assert (await joined(house, needs_known_id=True, fresh_id="m5")).error is ErrorCode.member_id_required


async def test_what_is_assigned_counts_as_what_members_hold_also_after_a_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever has joined while there was room could else be assigned a megabyte in each of very many groups."""
    monkeypatch.setattr("oncelog.server.groups.coordinator.MEMBERS_BYTES", 10 * MEMBER_BYTES)
    house = House()
    members = {group: await joined(house, group) for group in ("one", "two", "three")}

    async def assign(group: str, size_bytes: int) -> SyncAnswer:
        _, member_id, generation, *_ = members[group]
        request = SyncRequest(member_id=member_id, generation=generation, assignments={member_id: bytes(size_bytes)})
        answer = house.groups.sync(group, request, house.clock.now())
        return answer if isinstance(answer, SyncAnswer) else await answer

    async def is_left(size_bytes: int) -> bool:
        """For one that comes."""
        return (await joined(house, "four", protocols=(("range", bytes(size_bytes)),))).error is ErrorCode.none

    assert (await assign("one", 5 * MEMBER_BYTES)).error is ErrorCode.none
    assert (await assign("two", 5 * MEMBER_BYTES)).error is ErrorCode.coordinator_not_available
    assert (await assign("three", MEMBER_BYTES // 2)).error is ErrorCode.none
    assert not await is_left(MEMBER_BYTES)
    house = house.after_restart()
    assert not await is_left(2 * MEMBER_BYTES)


async def test_one_host_leaves_room_for_the_groups_of_others(caplog: pytest.LogCaptureFixture) -> None:
    house = House("oncelog.max.groups=16")
    house.make_topic("t")

    def made(host: str) -> int:
        now = house.clock.now()
        committed = {TopicPartition("t", 0): CommittedOffset(1, -1, "", now.wall_ms)}
        count = 0
        while house.groups.commit(f"{host}-{count}", committed, now, host) is ErrorCode.none:
            count += 1
        return count

    assert made("greedy") == 8
    assert house.groups.commit("greedy-0", {}, house.clock.now(), "greedy") is ErrorCode.none, "what is there goes on"
    assert made("second") == 4
    assert made("third") == 2
    said = [each for each in caplog.messages if "oncelog.max.groups=16" in each]
    assert len(said) == 1
    assert "greedy" in said[0]
    house.delete_group("second-0")
    assert made("second") == 0, "it has 3, and 3 are left"


async def test_a_group_takes_no_more_members_than_it_may_have() -> None:
    house = House("group.max.size=2")
    for number in (1, 2):
        waiting = house.groups.join("g", join_request(member_id="", instance_id=f"i{number}"), house.clock.now())
        assert not isinstance(waiting, JoinAnswer) or waiting.error is ErrorCode.none
    refused = await joined(house, member_id="", instance_id="i3")
    assert refused.error is ErrorCode.group_max_size_reached


def in_steps(house: House, steps: list[Pauses]) -> GroupCoordinator:
    """A coordinator beside the one of the house; a test takes its steps."""
    groups = GroupCoordinator(
        house.settings, house.topics, house.clock, house.timers.call_later, house.flushes.append, in_turns=steps.append
    )
    groups.start()
    return groups


async def test_housekeeping_goes_in_steps_and_ends_with_the_server() -> None:
    house = House()
    house.make_topic("t")
    groups = house.groups
    now = house.clock.now()
    for number in range(5):
        groups.commit(f"g{number}", {TopicPartition("t", 0): CommittedOffset(1, -1, "", now.wall_ms)}, now)
    left = []
    for _ in groups.forgetting("t", now):
        left.append(sum(groups.committed(f"g{number}", "t", 0) is not None for number in range(5)))
        if left[-1] == 2:
            groups.stop()
    assert left == [5, 4, 3, 2, 2], "nothing is taken after the end"


def commit_five(house: House, groups: GroupCoordinator) -> None:
    house.make_topic("t", 5)
    now = house.clock.now()
    committed = CommittedOffset(1, -1, "", now.wall_ms)
    groups.commit("g", {TopicPartition("t", index): committed for index in range(5)}, now)


def left_of_five(groups: GroupCoordinator) -> int:
    return sum(groups.committed("g", "t", index) is not None for index in range(5))


async def test_many_offsets_of_one_group_are_forgotten_in_turns_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forgetting, "REMOVED_AT_A_TIME", 2)
    house = House()
    commit_five(house, house.groups)
    left = [left_of_five(house.groups) for _ in house.groups.forgetting("t", house.clock.now())]
    assert left == [5, 3, 1]
    assert house.groups.committed_topics("g") == {}


async def test_the_name_of_a_topic_is_free_when_the_last_offset_of_it_is_forgotten() -> None:
    house = House()
    house.make_topic("t")
    for number in range(3):
        house.commit(f"g{number}", "t", 5)
    topic, now = house.topics.get("t"), house.clock.now()
    assert topic is not None
    left = []
    for _ in house.topics.deleting(topic, now, house.groups.forgetting("t", now)):
        left.append(sum(house.offset(f"g{number}", "t") is not None for number in range(3)))
        with pytest.raises(KafkaError):
            house.make_topic("t")
    assert left[-3:] == [3, 2, 1]
    house.make_topic("t")
    assert [house.offset(f"g{number}", "t") for number in range(3)] == [None] * 3


async def test_expired_offsets_of_one_group_go_in_turns_and_those_that_are_committed_meanwhile_stay(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(forgetting, "REMOVED_AT_A_TIME", 2)
    house = House()
    steps: list[Pauses] = []
    groups = in_steps(house, steps)
    commit_five(house, groups)
    house.timers.advance(8 * 24 * 3_600_000)
    alarms = [*steps]
    steps.clear()
    for alarm in alarms:
        at_once(alarm)
    (looking,) = steps
    left = []
    for _ in looking:
        left.append(left_of_five(groups))
        if left[-1] == 3:
            now = house.clock.now()
            groups.commit("g", {TopicPartition("t", 4): CommittedOffset(7, -1, "", now.wall_ms)}, now)
    assert left[-4:] == [5, 3, 1, 1]
    assert [each.offset for each in [groups.committed("g", "t", 4)] if each is not None] == [7]


async def test_a_large_group_is_deleted_in_turns_and_nobody_sees_a_part_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coordinator, "REMOVED_AT_A_TIME", 2)
    house = House()
    groups = house.groups
    commit_five(house, groups)
    left = []
    for _ in groups.deleting_group("g", house.clock.now()):
        left.append(left_of_five(groups))
        assert groups.settled("g") is ErrorCode.not_coordinator
        assert groups.check_commit("g", "", None, -1, house.clock.now()) is ErrorCode.not_coordinator
        assert (await joined(house)).error is ErrorCode.not_coordinator
        assert house.delete_group("g") is ErrorCode.not_coordinator
    assert left == [3, 1, 0]
    assert "g" not in groups.groups
    assert groups.settled("g") is ErrorCode.none


async def test_a_group_is_deleted_whole_also_when_the_client_hangs_up_half_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coordinator, "REMOVED_AT_A_TIME", 2)
    house = House()
    commit_five(house, house.groups)
    broker: Any = SimpleNamespace(groups=house.groups, turns=EVERY_TURN_IS_OVER, memory=Memory(-1))
    api = next(each for each in apis().values() if each.name == "delete_groups")
    assert api.handle is not None
    call = Call(broker, api.name, 2, "test", "127.0.0.1", "PLAINTEXT", house.clock.now())
    asking = asyncio.ensure_future(api.handle(SimpleNamespace(groups_names=["g"]), call))
    while left_of_five(house.groups) == 5:
        await asyncio.sleep(0)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    for _ in range(100):
        await asyncio.sleep(0)
    assert "g" not in house.groups.groups
    assert left_of_five(house.groups) == 0


async def test_a_group_that_the_disk_refuses_to_delete_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = MemoryDisk()
    house = House(disk=disk)
    commit_five(house, house.groups)
    disk.fail("pwritev", errno.ENOSPC)
    assert house.delete_group("g") is ErrorCode.not_coordinator
    disk.heal()
    assert left_of_five(house.groups) == 5
    assert house.groups.check_commit("g", "", None, -1, house.clock.now()) is ErrorCode.none


async def test_a_group_wakes_for_some_of_its_deadlines_and_looks_at_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    house = House("group.initial.rebalance.delay.ms=1")
    for number in range(250):
        request = join_request(fresh_id=f"m{number}", rebalance_timeout_ms=10 * SESSION_MS)
        house.groups.join("g", request, house.clock.now())
    house.timers.advance(2)
    group = house.groups.groups["g"]
    assert isinstance(group, Group)
    monkeypatch.setattr(Members, "__iter__", lambda members: pytest.fail("it looks at all members"))
    house.clock.advance(SESSION_MS - 1)
    group.tick(house.clock.now())
    assert group.heartbeat("m1", None, group.generation, house.clock.now()) is ErrorCode.none
    monkeypatch.undo()
    house.clock.advance(1)
    now_ms = house.clock.now().monotonic_ms
    left = []
    while group.wake_ms is not None and group.wake_ms <= now_ms:
        group.tick(house.clock.now())
        left.append(len(group.members))
    assert left == [151, 51, 1]
    assert group.wake_ms is not None
    assert group.wake_ms <= now_ms + SESSION_MS


async def test_a_group_keeps_no_deadlines_of_those_that_came_and_went() -> None:
    house = House()
    for number in range(500):
        house.groups.join("g", join_request(fresh_id=f"m{number}"), house.clock.now())
        house.groups.leave("g", [Leaving(member_id=f"m{number}")], house.clock.now())
        house.clock.advance(1)
    group, wakes = house.groups.groups["g"], 0
    while group.wake_ms is not None:
        house.clock.advance(max(group.wake_ms - house.clock.now().monotonic_ms, 0))
        group.tick(house.clock.now())
        wakes += 1
    assert wakes < 50


async def test_those_who_ask_for_all_groups_share_one_list() -> None:
    house = House()
    house.make_topic("t")
    for name in "ab":
        house.commit(name, "t", 1)
    before = house.groups.listed()
    assert house.groups.listed() is before
    house.commit("c", "t", 1)
    assert [each.group_id for each in house.groups.listed()] == ["a", "b", "c"]
    house.delete_group("b")
    assert [each.group_id for each in house.groups.listed()] == ["a", "c"]
    assert [each.group_id for each in before] == ["a", "b"]
    assert len(house.after_restart().groups.listed()) == 2


async def test_a_group_is_stored_in_one_turn_and_its_members_are_answered_in_another() -> None:
    house = House()
    steps: list[Pauses] = []
    groups = in_steps(house, steps)
    waiting = groups.join("g", join_request(), house.clock.now())
    house.timers.advance(SESSION_MS)
    while steps:
        at_once(steps.pop())
    assert isinstance(waiting, asyncio.Future)
    member_id, generation = waiting.result().member_id, waiting.result().generation
    request = SyncRequest(member_id=member_id, generation=generation, assignments={member_id: b"share"})
    share = groups.sync("g", request, house.clock.now())
    (answering,) = steps
    assert isinstance(share, asyncio.Future)
    next(answering)
    assert not share.done(), "to put the group into bytes has taken this turn"
    at_once(answering)
    assert share.result().assignment == b"share"


async def test_many_members_leave_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(import_module("oncelog.server.api.13_leave_group"), "LEAVE_AT_A_TIME", 2)
    house = House()
    for number in range(5):
        house.groups.join("g", join_request(fresh_id=f"m{number}"), house.clock.now())
    here = [len(house.groups.groups["g"].members)]

    class Watched(Turns):
        def is_over(self) -> bool:
            here.append(len(house.groups.groups["g"].members))
            return True

    broker: Any = SimpleNamespace(groups=house.groups, turns=Watched(lambda: 0), memory=Memory(-1))
    api = next(each for each in apis().values() if each.name == "leave_group")
    assert api.handle is not None
    call = Call(broker, api.name, 5, "test", "127.0.0.1", "PLAINTEXT", house.clock.now())
    leaving = [SimpleNamespace(member_id=each, group_instance_id=None) for each in ("m0", "m1", "m2", "nobody", "m3")]
    answer = await api.handle(SimpleNamespace(group_id="g", members=leaving), call)
    assert [each.error_code.name for each in answer.members] == ["none", "none", "none", "unknown_member_id", "none"]
    assert here[:3] == [5, 3, 2]
    assert [each.member_id for each in house.groups.groups["g"].members] == ["m4"]


async def test_clients_that_hang_up_together_are_not_looked_for_among_all_members(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    house = House()
    request = [join_request(fresh_id=f"m{number}") for number in range(10)]
    waiters = [house.groups.join("g", each, house.clock.now()) for each in request]
    walks: list[object] = []

    def walked(members: Members) -> Iterator[Member]:
        walks.append(members)
        return iter(())

    monkeypatch.setattr(Members, "__iter__", walked)
    for waiter in waiters[:9]:
        assert isinstance(waiter, asyncio.Future)
        waiter.cancel()
    await asyncio.sleep(0)
    assert len(house.groups.groups["g"].members) == 1
    assert walks == []


@pytest.mark.parametrize("how", ["expired", "deleted"])
async def test_offsets_of_a_group_go_though_their_tombstones_do_not_fit_into_one_batch(how: str) -> None:
    house = House("message.max.bytes=2000")
    house.make_topic("t", 5)
    group = "g" * MOST_ID_CHARACTERS
    for partition in range(5):
        assert house.commit(group, "t", 7, partition) is ErrorCode.none
    if how == "expired":
        house.timers.advance(8 * 24 * 3_600_000)
    else:
        assert house.delete_group(group) is ErrorCode.none
    assert [house.offset(group, "t", partition) for partition in range(5)] == [None] * 5
    after = house.after_restart()
    assert [after.offset(group, "t", partition) for partition in range(5)] == [None] * 5
