"""The coordinator between groups, timers and the disk."""

import asyncio
import errno
from copy import deepcopy
from importlib import import_module
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from oncelog.log.disk import read_whole
from oncelog.log.work_steps import at_once
from oncelog.server.alarms import STOOD_STILL_MS
from oncelog.server.api import apis
from oncelog.server.call import Call
from oncelog.server.errors import ErrorCode, KafkaError
from oncelog.server.groups.messages import (
    JoinAnswer,
    Leaving,
    SyncAnswer,
    SyncRequest,
)
from oncelog.server.groups.offsets import ENTRY_BYTES, Offsets, TopicPartition
from oncelog.server.groups.records import CommittedOffset
from oncelog.server.groups.state import State
from oncelog.server.groups.store import GroupStore
from oncelog.server.memory import Memory
from oncelog.server.names import OFFSETS_TOPIC
from tests.log.memory_disk import MemoryDisk
from tests.log.support import put
from tests.server.groups.support import SESSION_MS, House, join_request, joined

DAY_MS = 24 * 60 * 60 * 1000
LOOK_MS = 11 * 60_000  # a little more than offsets.retention.check.interval.ms


async def synced(house: House, answer: JoinAnswer, group: str = "g", share: bytes = b"share") -> SyncAnswer:
    shares = {member.member_id: share for member in answer.members}
    request = SyncRequest(member_id=answer.member_id, generation=answer.generation, assignments=shares)
    found = house.groups.sync(group, request, house.clock.now())
    return found if isinstance(found, SyncAnswer) else await found


async def test_a_server_that_stood_still_sends_nobody_away_before_it_has_heard_them() -> None:
    house = House()
    await synced(house, await joined(house))
    house.clock.advance(SESSION_MS + STOOD_STILL_MS)
    house.timers.advance(0)
    assert house.groups.heartbeat("g", "m1", None, 1, house.clock.now()) is ErrorCode.none
    house.timers.advance(SESSION_MS - 1)
    states = [house.groups.groups["g"].state]
    house.timers.advance(1)
    assert [*states, house.groups.groups["g"].state] == [State.STABLE, State.EMPTY]


async def test_a_member_joins_and_gets_its_share() -> None:
    house = House()
    answer = await joined(house)
    assert (answer.error, answer.generation, answer.leader) == (ErrorCode.none, 1, "m1")
    assert (await synced(house, answer)).assignment == b"share"


async def test_a_group_with_its_members_survives_a_restart() -> None:
    house = House()
    answer = await joined(house)
    await synced(house, answer)
    house = house.after_restart()
    group = house.groups.groups["g"]
    assert (group.state, group.generation, group.leader) == (State.STABLE, 1, "m1")
    assert house.groups.heartbeat("g", "m1", None, 1, house.clock.now()) is ErrorCode.none
    again = SyncRequest(member_id="m1", generation=1, assignments={})
    kept = house.groups.sync("g", again, house.clock.now())
    assert isinstance(kept, SyncAnswer)
    assert kept.assignment == b"share"


async def test_members_that_do_not_come_back_after_a_restart_are_out_after_a_session() -> None:
    house = House()
    await synced(house, await joined(house))
    house = house.after_restart()
    house.timers.advance(SESSION_MS)
    group = house.groups.groups["g"]
    assert (group.state, group.generation) == (State.EMPTY, 2)


async def test_a_generation_does_not_go_back_when_the_group_is_empty_at_the_restart() -> None:
    house = House()
    await synced(house, await joined(house))
    house.groups.leave("g", [Leaving(member_id="m1")], house.clock.now())
    house = house.after_restart()
    assert house.groups.groups["g"].generation == 2
    assert (await joined(house)).generation == 3


async def test_offsets_survive_a_restart_with_all_that_belongs_to_them() -> None:
    house = House()
    house.make_topic("t", 2)
    assert house.commit("g", "t", 5, 0, "about this") is ErrorCode.none
    assert house.commit("g", "t", 7, 1) is ErrorCode.none
    assert house.commit("g", "t", 6, 0, "later") is ErrorCode.none
    before = house.groups.committed("g", "t", 0)
    house = house.after_restart()
    assert house.groups.committed("g", "t", 0) == before
    assert (house.offset("g", "t", 0), house.offset("g", "t", 1)) == (6, 7)


async def test_nothing_is_written_before_a_group_needs_it() -> None:
    house = House()
    house.groups.heartbeat("g", "m", None, 1, house.clock.now())
    house.groups.settled("g")
    await joined(house, needs_known_id=True)
    assert house.topics.get(OFFSETS_TOPIC) is None


async def test_the_topic_of_offsets_is_internal_and_compacted() -> None:
    house = House("offsets.topic.num.partitions=3")
    house.make_topic("t")
    house.commit("g", "t", 1)
    topic = house.topics.get(OFFSETS_TOPIC)
    assert topic is not None
    assert (topic.is_internal, len(topic.partitions), topic.configs["cleanup.policy"]) == (True, 3, "compact")


async def test_groups_are_spread_over_the_partitions_and_all_are_read_back() -> None:
    house = House("offsets.topic.num.partitions=5")
    house.make_topic("t")
    for number in range(40):
        house.commit(f"g{number}", "t", number)
    topic = house.topics.get(OFFSETS_TOPIC)
    assert topic is not None
    assert all(partition.log.next_offset > 0 for partition in topic.partitions)
    house = house.after_restart()
    assert [house.offset(f"g{number}", "t") for number in range(40)] == list(range(40))


async def test_a_commit_is_acknowledged_when_it_is_flushed() -> None:
    house = House("oncelog.flush=every")
    house.make_topic("t")
    settled = house.commit("g", "t", 5)
    assert isinstance(settled, asyncio.Future)
    told = house.groups.settled("g")
    await asyncio.sleep(0)
    assert not settled.done()
    assert isinstance(told, asyncio.Future)
    (partition,) = house.flushes
    partition.log.flush()
    partition.wake()
    assert await settled is ErrorCode.none
    assert await told is ErrorCode.none


async def test_a_share_is_told_when_it_is_flushed() -> None:
    house = House("oncelog.flush=every")
    answer = await joined(house)
    request = SyncRequest(member_id="m1", generation=1, assignments={"m1": b"share"})
    found = house.groups.sync("g", request, house.clock.now())
    assert isinstance(found, asyncio.Future)
    await asyncio.sleep(0)
    assert not found.done()
    (partition,) = house.flushes
    partition.log.flush()
    partition.wake()
    assert (await found).assignment == b"share"
    assert answer.generation == 1


async def test_a_disk_that_refuses_makes_clients_try_again_and_changes_nothing() -> None:
    disk = MemoryDisk()
    house = House(disk=disk)
    house.make_topic("t")
    house.commit("g", "t", 5)
    disk.fail("pwritev", errno.ENOSPC)
    assert house.commit("g", "t", 6) is ErrorCode.not_coordinator
    assert house.offset("g", "t") == 5
    answer = await joined(house)
    assert (await synced(house, answer)).error is ErrorCode.not_coordinator


@pytest.mark.parametrize("is_made", [True, False])
async def test_a_disk_that_refuses_is_told_once_however_often_clients_try(
    is_made: bool, caplog: pytest.LogCaptureFixture
) -> None:
    disk = MemoryDisk()
    house = House("offsets.topic.num.partitions=1", disk=disk)
    house.make_topic("t")
    if is_made:
        house.commit("g", "t", 5)
    for told in (1, 2):
        caplog.clear()
        disk.fail("pwritev" if is_made else "mkdir", errno.ENOSPC)
        for number in range(20):
            assert house.commit(f"g{number}", "t", 6) is not ErrorCode.none
        said = [each for each in caplog.messages if "could not be" in each]
        assert len(said) == (1 if is_made or told == 1 else 0)
        disk.heal()
        if is_made:
            assert house.commit("g", "t", 7) is ErrorCode.none


def test_what_is_held_of_offsets_is_counted_to_the_byte_whatever_comes_and_goes() -> None:
    random, offsets = Random(3), Offsets()
    for number in range(3000):
        at = (f"g{random.randrange(4)}", f"t{random.randrange(3)}", random.randrange(5))
        if random.random() < 0.6:
            offsets.put(*at, CommittedOffset(number, -1, "m" * random.randrange(50), 0))
        elif random.random() < 0.9:
            offsets.remove(*at)
        else:
            offsets.forget(at[0])
        held = [each for group in offsets.groups() for _, each in offsets.of_group(group)]
        assert offsets.held_bytes == sum(ENTRY_BYTES + len(each.metadata) for each in held)


async def test_a_client_that_hangs_up_leaves_no_waiter_behind() -> None:
    house = House("group.initial.rebalance.delay.ms=3000")
    waiting = house.groups.join("g", join_request(), house.clock.now())
    assert isinstance(waiting, asyncio.Future)
    waiting.cancel()
    await asyncio.sleep(0)
    house.timers.advance(3_000)
    assert house.groups.groups["g"].state is State.EMPTY
    assert len(house.groups.groups["g"].members) == 0


async def test_a_group_that_nobody_joined_in_the_end_leaves_nothing_behind() -> None:
    house = House()
    refused = await joined(house, protocols=())
    assert refused.error is ErrorCode.inconsistent_group_protocol
    assert not house.groups.groups
    await joined(house, needs_known_id=True)
    assert "g" in house.groups.groups
    house.timers.advance(SESSION_MS)
    assert not house.groups.groups
    assert house.topics.get(OFFSETS_TOPIC) is None


async def test_a_server_that_stops_answers_those_who_wait() -> None:
    house = House("group.initial.rebalance.delay.ms=3000")
    waiting = house.groups.join("g", join_request(), house.clock.now())
    assert isinstance(waiting, asyncio.Future)
    house.groups.stop()
    assert (await waiting).error is ErrorCode.not_coordinator
    assert not house.timers.pending()
    assert house.groups.heartbeat("g", "m1", None, 1, house.clock.now()) is ErrorCode.coordinator_not_available


async def test_offsets_of_an_idle_group_are_forgotten_after_seven_days() -> None:
    house = House()
    house.make_topic("t")
    house.commit("simple", "t", 5)
    house.timers.advance(7 * DAY_MS - 1)
    assert house.offset("simple", "t") == 5
    house.timers.advance(11 * 60_000)
    assert house.offset("simple", "t") is None
    assert "simple" not in house.groups.groups
    house = house.after_restart()
    assert house.offset("simple", "t") is None


async def test_offsets_that_are_committed_again_daily_are_kept() -> None:
    house = House()
    house.make_topic("t")
    for day in range(20):
        house.commit("saved", "t", day)
        house.timers.advance(DAY_MS)
    assert house.offset("saved", "t") == 19


async def test_a_group_with_members_keeps_what_it_reads_and_loses_what_it_no_longer_reads() -> None:
    house = House()
    house.make_topic("t")
    house.make_topic("former")
    await synced(house, await joined(house, session_timeout_ms=1_800_000))
    house.commit("g", "t", 1)
    house.commit("g", "former", 2)
    for _ in range(8 * 24 * 4):
        house.timers.advance(15 * 60_000)
        assert house.groups.heartbeat("g", "m1", None, 1, house.clock.now()) is ErrorCode.none
    assert (house.offset("g", "t"), house.offset("g", "former")) == (1, None)


async def test_an_empty_group_is_counted_from_when_its_last_member_left() -> None:
    house = House()
    house.make_topic("t")
    await synced(house, await joined(house, session_timeout_ms=1_800_000))
    house.commit("g", "t", 1)
    for _ in range(5 * 24 * 4):
        house.timers.advance(15 * 60_000)
        house.groups.heartbeat("g", "m1", None, 1, house.clock.now())
    house.groups.leave("g", [Leaving(member_id="m1")], house.clock.now())
    house = house.after_restart()
    house.timers.advance(6 * DAY_MS)
    assert house.offset("g", "t") == 1
    house.timers.advance(DAY_MS + 11 * 60_000)
    assert house.offset("g", "t") is None
    assert "g" not in house.groups.groups


async def test_a_deleted_topic_takes_its_offsets_along_even_if_it_is_made_again() -> None:
    house = House()
    house.make_topic("t")
    house.make_topic("other")
    house.commit("g", "t", 5)
    house.commit("g", "other", 6)
    house.delete_topic("t")
    at_once(house.groups.forgetting("t", house.clock.now()))
    house.make_topic("t")
    house = house.after_restart()
    assert (house.offset("g", "t"), house.offset("g", "other")) == (None, 6)


async def test_what_is_committed_while_a_request_to_delete_its_topic_has_to_wait_goes_too() -> None:
    house = House()
    house.make_topic("t")
    asked = house.clock.now()
    house.clock.advance(5)
    house.commit("g", "t", 5)
    house.delete_topic("t")
    at_once(house.groups.forgetting("t", asked))
    assert house.offset("g", "t") is None


async def test_a_crash_between_deleting_a_topic_and_its_offsets_is_put_right_at_the_start() -> None:
    house = House()
    house.make_topic("t")
    house.commit("g", "t", 5)
    house.delete_topic("t")
    house = house.after_restart()
    house.make_topic("t")
    house = house.after_restart()
    assert house.offset("g", "t") is None


async def test_of_a_topic_that_an_older_log_of_topics_does_not_know_the_offsets_stay() -> None:
    """Its folder is left alone, and the newer log of topics may be put back."""

    def stopped(house: House) -> MemoryDisk:
        house.after_restart()
        return deepcopy(disk)

    def put_back(source: MemoryDisk) -> None:
        for name in disk.listdir(folder):
            disk.unlink(f"{folder}/{name}")
        for name in source.listdir(folder):
            disk.open(f"{folder}/{name}", create=True).pwritev([read_whole(source, f"{folder}/{name}")], 0)

    disk, folder = MemoryDisk(), "/data/__oncelog_metadata-0"
    house = House(disk=disk)
    house.make_topic("s")
    house.commit("g", "s", 1)
    older = stopped(house)
    house = House(disk=disk)
    house.make_topic("t")
    house.commit("g", "t", 5)
    partition = house.topics.partition("t", 0)
    assert partition is not None
    put(partition.log, b"value")
    newer = stopped(house)
    put_back(older)
    house = House(disk=disk)
    assert house.topics.get("t") is None
    house.timers.advance(LOOK_MS)
    stopped(house)
    put_back(newer)
    assert House(disk=disk).offset("g", "t") == 5


def refuse_one_group(monkeypatch: pytest.MonkeyPatch, refused: str) -> None:
    remove = GroupStore.remove_offsets

    def removed(store: GroupStore, group_id: str, *given: Any) -> object:
        if group_id == refused:
            raise KafkaError(ErrorCode.not_coordinator, "its disk is full")
        return remove(store, group_id, *given)

    monkeypatch.setattr(GroupStore, "remove_offsets", removed)


async def test_where_the_disk_refuses_to_forget_one_group_the_others_go_on_and_it_is_tried_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    house = House()
    house.make_topic("t")
    for group in "abc":
        house.commit(group, "t", 5)
    refuse_one_group(monkeypatch, "a")
    house.delete_topic("t")
    at_once(house.groups.forgetting("t", house.clock.now()))
    house.make_topic("t")
    assert [house.offset(group, "t") for group in "abc"] == [5, None, None]
    house.timers.advance(LOOK_MS)
    assert len([each for each in caplog.messages if "of deleted topics stay" in each]) == 2
    monkeypatch.undo()
    house.timers.advance(LOOK_MS)
    assert house.offset("a", "t") is None


async def test_where_the_disk_refuses_to_forget_what_expired_of_one_group_the_others_go_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    house = House()
    house.make_topic("t")
    for group in "abc":
        house.commit(group, "t", 5)
    refuse_one_group(monkeypatch, "a")
    house.timers.advance(8 * DAY_MS)
    assert [house.offset(group, "t") for group in "abc"] == [5, None, None]


async def test_a_deleted_group_stays_deleted() -> None:
    house = House()
    house.make_topic("t")
    await synced(house, await joined(house))
    house.commit("g", "t", 5)
    assert house.delete_group("g") is ErrorCode.non_empty_group
    house.groups.leave("g", [Leaving(member_id="m1")], house.clock.now())
    assert house.delete_group("g") is ErrorCode.none
    house = house.after_restart()
    assert house.offset("g", "t") is None
    assert "g" not in house.groups.groups
    assert (await joined(house)).generation == 1


async def test_deleted_offsets_stay_deleted() -> None:
    house = House()
    house.make_topic("t", 2)
    house.commit("g", "t", 5, 0)
    house.commit("g", "t", 6, 1)
    assert house.groups.delete_offsets("g", [TopicPartition("t", 0)], house.clock.now()) is ErrorCode.none
    house = house.after_restart()
    assert (house.offset("g", "t", 0), house.offset("g", "t", 1)) == (None, 6)


class OthersJoin:
    """Turns that are always over; in the second that others have, a member joins."""

    def __init__(self, house: House, protocol_type: str) -> None:
        self.house = house
        self.protocol_type = protocol_type
        self.had = 0

    def is_over(self) -> bool:
        return True

    async def next(self) -> None:
        self.had += 1
        if self.had == 2:
            self.house.groups.join("g", join_request(protocol_type=self.protocol_type), self.house.clock.now())
            self.house.timers.advance(self.house.settings.group_initial_rebalance_delay_ms)


@pytest.mark.parametrize(
    ("protocol_type", "error", "errors"),
    [("consumer", "none", ["none", "group_subscribed_to_topic"]), ("connect", "non_empty_group", [])],
)
async def test_a_request_to_delete_offsets_takes_nothing_of_a_group_that_changed_while_others_had_turns(
    monkeypatch: pytest.MonkeyPatch, protocol_type: str, error: str, errors: list[str]
) -> None:
    monkeypatch.setattr(import_module("oncelog.server.api.47_offset_delete"), "CHECKED_AT_A_TIME", 1)
    house = House()
    house.make_topic("t", 2)
    for partition in range(2):
        house.commit("g", "t", 5, partition)
    api = next(each for each in apis().values() if each.name == "offset_delete")
    turns = OthersJoin(house, protocol_type)
    broker: Any = SimpleNamespace(groups=house.groups, topics=house.topics, turns=turns, memory=Memory(-1))
    call = Call(broker, api.name, 0, "test", "127.0.0.1", "PLAINTEXT", house.clock.now())
    wanted = SimpleNamespace(name="t", partitions=[SimpleNamespace(partition_index=each) for each in range(2)])
    assert api.handle is not None
    answer = await api.handle(SimpleNamespace(group_id="g", topics=[wanted]), call)
    told = [each.error_code.name for topic in answer.topics for each in topic.partitions]
    assert (answer.error_code.name, told) == (error, errors)
    assert [house.offset("g", "t", partition) for partition in range(2)] == [None, 5]


async def test_one_timer_serves_all_groups() -> None:
    house = House()
    for number in range(100):
        answer = await joined(house, f"g{number}", session_timeout_ms=SESSION_MS + number)
        await synced(house, answer, f"g{number}")
    assert len(house.timers.pending()) == 1
    house.timers.advance(SESSION_MS + 50)
    states = [house.groups.groups[f"g{number}"].state for number in range(100)]
    assert states == [State.EMPTY] * 51 + [State.STABLE] * 49
