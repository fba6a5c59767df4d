"""What groups do for many members, or store of many partitions, leaves others their turns."""

import asyncio
from collections.abc import Awaitable, Callable
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import pytest

from oncelog.log.work_steps import Pauses, Steps, at_once
from oncelog.server.api import apis
from oncelog.server.call import Call
from oncelog.server.errors import ErrorCode
from oncelog.server.groups import coordinator, effect_telling, records
from oncelog.server.groups.coordinator import GroupCoordinator
from oncelog.server.groups.messages import MOST_PROTOCOLS, SyncAnswer, SyncRequest
from oncelog.server.groups.rebalance import Rebalance
from oncelog.server.groups.state import State
from oncelog.server.memory import Memory
from oncelog.server.names import OFFSETS_TOPIC
from oncelog.server.topics import Topic
from oncelog.server.turns import Turns
from tests.server.groups.support import House, join_request, joined
from tests.server.topics_support import EVERY_TURN_IS_OVER


def beside(house: House, **how: Any) -> GroupCoordinator:
    """A coordinator beside the one of the house."""
    groups = GroupCoordinator(
        house.settings, house.topics, house.clock, house.timers.call_later, house.flushes.append, **how
    )
    groups.start()
    return groups


async def test_many_members_hear_in_turns_that_a_generation_begins_and_what_their_shares_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(effect_telling, "TOLD_AT_A_TIME", 2)
    house = House()
    waiting: list[Any] = []
    told: list[int] = []

    def in_turns(steps: Pauses) -> None:
        for _ in steps:
            told.append(sum(each.done() for each in waiting))
            if told[-1] == 2:
                waiting[-1].cancel()  # its client hangs up before it is told

    groups = beside(house, in_turns=in_turns)
    waiting += [groups.join("g", join_request(fresh_id=f"m{n}"), house.clock.now()) for n in range(5)]
    house.timers.advance(0)
    assert sorted(set(told)) == [0, 2, 5]  # one of them because it hung up
    assert [each.cancelled() for each in waiting] == [False] * 4 + [True]
    assert {each.result().generation for each in waiting[:4]} == {1}
    await asyncio.sleep(0)
    assert groups.heartbeat("g", "m4", None, 1, house.clock.now()) is ErrorCode.none, "it may come back"
    waiting.clear()
    shares = {f"m{n}": f"{n}".encode() for n in range(5)}
    requests = [SyncRequest(member_id=f"m{n}", generation=1, assignments=shares) for n in range(5)]
    waiting += [groups.sync("g", each, house.clock.now()) for each in requests[1:]]
    told.clear()
    groups.sync("g", requests[0], house.clock.now())  # the leader
    assert told == [0, 1, 3], "of the others; the leader is told first"
    assert [each.result().assignment for each in waiting] == [b"1", b"2", b"3", b"4"]


async def test_a_member_votes_for_no_more_protocols_than_are_counted_in_no_time() -> None:
    house = House()
    protocols = tuple((f"p{number}", b"") for number in range(MOST_PROTOCOLS + 1))
    assert (await joined(house, protocols=protocols)).error is ErrorCode.invalid_request
    assert house.groups.groups == {}
    assert (await joined(house, protocols=protocols[1:])).error is ErrorCode.none


async def test_what_a_group_is_subscribed_to_is_looked_for_when_somebody_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    house = House()
    with monkeypatch.context() as patch:
        patch.setattr(Rebalance, "topics", property(lambda rebalance: pytest.fail("nobody has asked")))
        await joined(house)
    group = house.groups.groups["g"]
    assert [group.is_subscribed_to(name) for name in "tu"] == [True, False]
    subscribed = (("range", b"\0\0\0\0\0\1\0\1u\xff\xff\xff\xff"),)
    await joined(house, member_id="m1", protocols=subscribed)
    assert group.generation == 2
    assert [group.is_subscribed_to(name) for name in "tu"] == [False, True]


async def test_a_group_that_is_too_large_to_be_stored_is_not_put_into_bytes_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    house = House("message.max.bytes=1000")
    answer = await joined(house)
    monkeypatch.setattr(records, "encode_group", lambda value: pytest.fail("it would take a quarter of a gigabyte"))
    request = SyncRequest(member_id="m1", generation=answer.generation, assignments={"m1": b"x" * 1001})
    share = house.groups.sync("g", request, house.clock.now())
    assert isinstance(share, SyncAnswer)
    assert share.error is ErrorCode.unknown_server_error


# Commits


def call_of(house: House, groups: GroupCoordinator, turns: Turns) -> Call:
    broker: Any = SimpleNamespace(
        groups=groups, topics=house.topics, turns=turns, memory=Memory(-1), settings=house.settings
    )
    return Call(broker, "offset_commit", 7, "test", "127.0.0.1", "PLAINTEXT", house.clock.now())


def commit_request(*partitions: int, metadata: str = "", names: str = "t") -> Any:
    entries = [
        SimpleNamespace(partition_index=each, committed_offset=7, committed_metadata=metadata) for each in partitions
    ]
    topics = [SimpleNamespace(name=name, partitions=entries) for name in names]
    return SimpleNamespace(group_id="g", member_id="", generation_id_or_member_epoch=-1, topics=topics)


async def commit(request: Any, call: Call) -> list[str]:
    handle: Callable[[Any, Call], Awaitable[Any]] | None = apis()[8].handle
    assert handle is not None
    answer = await handle(request, call)
    return [each.error_code.name for topic in answer.topics for each in topic.partitions]


class Watched(Turns):
    """Others have their turn after each step; what the log had then is noted."""

    def __init__(self, house: House) -> None:
        super().__init__(lambda: 0)
        self.house = house
        self.encoded = 0
        self.seen: list[tuple[int, int]] = []

    def is_over(self) -> bool:
        topic = self.house.topics.get(OFFSETS_TOPIC)
        logged = 0 if topic is None else sum(each.log.next_offset for each in topic.partitions)
        self.seen.append((self.encoded, logged))
        return True


def watched(house: House, monkeypatch: pytest.MonkeyPatch) -> Watched:
    turns = Watched(house)
    encode = records.encode_committed

    def counted(*values: Any) -> Any:
        turns.encoded += 1
        return encode(*values)

    monkeypatch.setattr(import_module("oncelog.server.api.08_offset_commit"), "encode_committed", counted)
    monkeypatch.setattr(records, "encode_committed", lambda *values: pytest.fail("not in turns"))
    return turns


async def test_a_commit_of_many_partitions_is_put_into_bytes_in_turns_and_stored_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    house = House("offsets.topic.num.partitions=1")
    house.make_topic("t", 5)
    turns = watched(house, monkeypatch)
    assert await commit(commit_request(*range(5)), call_of(house, house.groups, turns)) == ["none"] * 5
    assert turns.seen[:5] == [(count, 0) for count in range(5)]
    assert set(turns.seen[5:]) == {(5, 5)}
    house = house.after_restart()
    assert [house.offset("g", "t", partition) for partition in range(5)] == [7] * 5


async def test_a_commit_that_is_too_large_is_noticed_before_all_of_it_is_put_into_bytes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    house = House("message.max.bytes=1000")
    house.make_topic("t", 9)
    turns = watched(house, monkeypatch)
    request = commit_request(*range(9), metadata="x" * 300)
    error = "invalid_commit_offset_size"
    assert await commit(request, call_of(house, house.groups, turns)) == [error] * 9
    assert turns.encoded == 3
    assert "g" not in house.groups.groups
    same = commit_request(*([0] * 9), metadata="x" * 300)  # what is named again counts once
    assert await commit(same, call_of(house, house.groups, turns)) == ["none"] * 9


async def test_what_is_committed_of_a_topic_that_goes_meanwhile_is_not_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    house = House()
    house.make_topic("t", 2)
    house.make_topic("u", 2)

    class Gone(Turns):
        async def next(self) -> None:
            if house.topics.get("t") is not None:
                house.delete_topic("t")

        def is_over(self) -> bool:
            return True

    call = call_of(house, house.groups, Gone(lambda: 0))
    gone = ["unknown_topic_or_partition"] * 2
    assert await commit(commit_request(0, 1, names="tu"), call) == [*gone, "none", "none"]
    house.make_topic("t", 2)  # another one, of which nothing was read
    for served in (house, house.after_restart()):
        assert [served.offset("g", name, partition) for name in "tu" for partition in range(2)] == [None, None, 7, 7]


# The place where all of it is stored


class ByHand:
    """Runs steps when a test says so."""

    def __init__(self) -> None:
        self.runs = 0
        self.begins = asyncio.Event()

    async def run(self, steps: Steps[Topic]) -> Topic:
        self.runs += 1
        await self.begins.wait()
        return at_once(steps)


async def test_the_topic_of_offsets_is_made_in_turns_and_who_stores_something_waits_for_it() -> None:
    house = House("group.initial.rebalance.delay.ms=0")
    house.make_topic("t", 2)
    hand = ByHand()
    groups = beside(house, run=hand.run)
    commits = [
        asyncio.ensure_future(commit(commit_request(each), call_of(house, groups, EVERY_TURN_IS_OVER)))
        for each in range(2)
    ]
    join = groups.join("h", join_request(), house.clock.now())
    house.timers.advance(0)
    assert isinstance(join, asyncio.Future)
    request = SyncRequest(member_id="m1", generation=join.result().generation, assignments={"m1": b"share"})
    share = groups.sync("h", request, house.clock.now())
    assert isinstance(share, asyncio.Future)
    for _ in range(10):
        await asyncio.sleep(0)
    assert (hand.runs, share.done(), [each.done() for each in commits]) == (1, False, [False, False])
    assert house.topics.get(OFFSETS_TOPIC) is None
    hand.begins.set()
    assert (await share).assignment == b"share"
    assert await asyncio.gather(*commits) == [["none"], ["none"]]
    house = house.after_restart()
    assert [house.offset("g", "t", partition) for partition in range(2)] == [7, 7]
    assert house.groups.groups["h"].state is State.STABLE


def both_to_be_stored(house: House, groups: GroupCoordinator) -> tuple["asyncio.Task[list[str]]", object]:
    """A commit, and what a group gives out to its member."""
    asking = asyncio.ensure_future(commit(commit_request(0), call_of(house, groups, EVERY_TURN_IS_OVER)))
    join = groups.join("h", join_request(), house.clock.now())
    house.timers.advance(0)
    assert isinstance(join, asyncio.Future)
    return asking, groups.sync("h", SyncRequest(member_id="m1", generation=1, assignments={}), house.clock.now())


async def test_a_topic_of_offsets_that_cannot_be_made_is_told_to_all_who_wait() -> None:
    house = House("group.initial.rebalance.delay.ms=0", "oncelog.max.partitions=1")
    house.make_topic("t")
    hand = ByHand()
    groups = beside(house, run=hand.run)
    asking, share = both_to_be_stored(house, groups)
    hand.begins.set()
    assert await asking == ["coordinator_not_available"]
    assert isinstance(share, asyncio.Future)
    assert (await share).error is ErrorCode.coordinator_not_available


async def test_a_server_that_stops_while_the_topic_of_offsets_is_made_stores_nothing() -> None:
    house = House("group.initial.rebalance.delay.ms=0")
    house.make_topic("t")
    hand = ByHand()
    groups = beside(house, run=hand.run)
    asking, share = both_to_be_stored(house, groups)
    groups.stop()
    hand.begins.set()
    assert await asking == ["coordinator_not_available"]
    assert isinstance(share, asyncio.Future)
    assert (await share).error is ErrorCode.not_coordinator
    assert house.topics.get(OFFSETS_TOPIC) is None


def said(generation: int, share: bytes = b"share") -> SyncRequest:
    return SyncRequest(member_id="m1", generation=generation, assignments={"m1": share})


def logged(house: House) -> int:
    topic = house.topics.get(OFFSETS_TOPIC)
    return 0 if topic is None else sum(each.log.next_offset for each in topic.partitions)


async def shares_that_wait(house: House, begun: asyncio.Queue[Pauses]) -> tuple[GroupCoordinator, ByHand]:
    """Two groups whose leaders have said who gets what, before there is where to store it."""
    hand = ByHand()
    groups = beside(house, run=hand.run, in_turns=begun.put_nowait)
    joins = [groups.join(name, join_request(), house.clock.now()) for name in "gh"]
    house.timers.advance(0)
    at_once(begun.get_nowait())
    for name, join in zip("gh", joins, strict=True):
        assert isinstance(join, asyncio.Future)
        groups.sync(name, said(join.result().generation), house.clock.now())
    return groups, hand


async def test_shares_that_waited_for_the_topic_are_stored_in_turns_and_each_group_s_in_their_order() -> None:
    house = House("group.initial.rebalance.delay.ms=0")
    begun = asyncio.Queue[Pauses]()
    groups, hand = await shares_that_wait(house, begun)
    hand.begins.set()
    storing = await begun.get()
    next(storing)
    assert logged(house) == 1, "the other group has another turn"
    groups.join("h", join_request("m1", protocols=(("range", b"other words"),)), house.clock.now())
    groups.sync("h", said(2), house.clock.now())  # a generation more, while the first one is not stored yet
    next(storing)
    assert logged(house) == 2
    at_once(storing)
    assert logged(house) == 3
    while not begun.empty():
        at_once(begun.get_nowait())
    house = house.after_restart()
    assert {name: group.generation for name, group in house.groups.groups.items()} == {"g": 1, "h": 2}


async def test_what_waits_for_the_topic_counts_as_what_groups_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coordinator, "MEMBERS_BYTES", 10_000)
    house = House("group.initial.rebalance.delay.ms=0")
    hand = ByHand()
    groups = beside(house, run=hand.run)
    shares = []
    for name in "gh":
        join = groups.join(name, join_request(), house.clock.now())
        house.timers.advance(0)
        assert isinstance(join, asyncio.Future)
        shares.append(groups.sync(name, said(1, b"x" * 6_000), house.clock.now()))
    waits, refused = shares
    assert isinstance(waits, asyncio.Future)
    assert not waits.done()
    assert isinstance(refused, SyncAnswer)
    assert refused.error is ErrorCode.coordinator_not_available
    hand.begins.set()
    assert (await waits).error is ErrorCode.none


async def test_one_share_that_fails_as_it_is_stored_leaves_the_others_theirs(monkeypatch: pytest.MonkeyPatch) -> None:
    house = House("group.initial.rebalance.delay.ms=0")
    begun = asyncio.Queue[Pauses]()
    _, hand = await shares_that_wait(house, begun)
    encode = records.encode_stored

    def fails_once(group: str, value: Any) -> Any:
        if group == "g":
            raise ValueError("a fault")
        return encode(group, value)

    monkeypatch.setattr(records, "encode_stored", fails_once)
    hand.begins.set()
    at_once(await begun.get())
    assert logged(house) == 1


async def test_commits_that_waited_for_the_topic_are_stored_in_turns() -> None:
    house = House()
    house.make_topic("t", 2)
    hand = ByHand()
    groups = beside(house, run=hand.run)
    turns = Watched(house)
    waiting = [asyncio.ensure_future(commit(commit_request(each), call_of(house, groups, turns))) for each in range(2)]
    await asyncio.sleep(0)
    turns.seen.clear()
    hand.begins.set()
    await asyncio.gather(*waiting)
    assert [logged for _, logged in turns.seen[:2]] == [0, 0], "each was asked before any was stored"
