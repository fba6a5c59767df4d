"""Members that differ in what they read or in the assignor that they name first, as their group goes over and back."""

import asyncio
from collections.abc import Iterable
from typing import Any

from oncelog.server.errors import ErrorCode
from oncelog.server.groups.consumer.values import LEAVES
from oncelog.server.groups.embedded import read_share, share_bytes
from oncelog.server.groups.group import Group
from oncelog.server.groups.messages import JoinAnswer, Leaving, SyncAnswer, SyncRequest
from oncelog.server.groups.state import State
from tests.server.groups.consumer_support import assigned, beat, indexes
from tests.server.groups.support import House, joined
from tests.server.groups.words import subscription
from tests.server.topics_support import grow_to

NONE = ErrorCode.none


async def join(
    house: House,
    member_id: str = "",
    *,
    topics: Iterable[str] = ("t",),
    names: Iterable[str] = ("range",),
    **more: Any,
) -> JoinAnswer:
    protocols = tuple((name, subscription(topics)) for name in names)
    return await joined(house, member_id=member_id, protocols=protocols, **more)


async def sync(house: House, told: JoinAnswer, **more: Any) -> SyncAnswer:
    values: dict[str, Any] = {"protocol_name": told.protocol_name, "assignments": {}}
    request = SyncRequest(member_id=told.member_id, generation=told.generation, **(values | more))
    answer = house.groups.sync("g", request, house.clock.now())
    return answer if isinstance(answer, SyncAnswer) else await answer


async def test_who_comes_back_and_names_another_assignor_first_joins_with_the_others() -> None:
    house = House()
    house.make_topic("t", 2)
    newer = beat(house, "newer", instance_id="one")
    other = await join(house, fresh_id="other", names=("range", "roundrobin"))
    newer = beat(house, "newer", newer.epoch)
    newer = beat(house, "newer", newer.epoch, owned=assigned(newer))
    other = await join(house, other.member_id, names=("range", "roundrobin"))
    assert (await sync(house, other)).error is NONE
    back = await join(house, fresh_id="back", instance_id="one", names=("roundrobin", "range"))
    group = house.groups.groups["g"]
    assert (back.error, isinstance(group, Group), group.state) == (NONE, True, State.PREPARING_REBALANCE)
    assert (await sync(house, back, instance_id="one")).error is ErrorCode.rebalance_in_progress


async def test_who_comes_back_and_reads_more_gets_it_also_before_the_group_may_share_anew() -> None:
    house = House("group.consumer.assignment.interval.ms=1000")
    house.make_topic("t", 2)
    house.make_topic("u", 2)
    beat(house, "newer", instance_id="one")
    back = await join(house, fresh_id="back", instance_id="one", topics=("t", "u"))
    group = house.groups.groups["g"]
    assert (isinstance(group, Group), group.state) == (True, State.PREPARING_REBALANCE)
    assert (await sync(house, back, instance_id="one")).error is not NONE
    again = await join(house, back.member_id, instance_id="one", topics=("t", "u"))
    assert (again.error, again.leader) == (NONE, back.member_id)
    metadata = again.members[0].metadata
    assert metadata == subscription(("t", "u"))
    share = (await sync(house, again, instance_id="one", assignments={again.member_id: b"all"})).assignment
    assert share == b"all"


async def test_who_was_told_an_assignor_before_the_group_went_over_joins_again() -> None:
    house = House()
    house.make_topic("t", 2)
    first = await join(house, fresh_id="first", names=("range", "roundrobin"))
    second, first = await asyncio.gather(
        join(house, fresh_id="second", names=("roundrobin", "range")),
        join(house, first.member_id, names=("range", "roundrobin")),
    )
    assert (first.protocol_name, second.protocol_name) == ("range", "range")
    beat(house, "newer")
    assert [(await sync(house, each)).error for each in (first, second)] == [ErrorCode.rebalance_in_progress] * 2


async def test_who_was_told_an_assignor_before_the_group_went_over_may_ask_where_nothing_changes_for_it() -> None:
    house = House()
    house.make_topic("t", 2)
    first = await join(house, fresh_id="first", instance_id="one", names=("range", "roundrobin"))
    second, first = await asyncio.gather(
        join(house, fresh_id="second", names=("roundrobin", "range")),
        join(house, first.member_id, instance_id="one", names=("range", "roundrobin")),
    )
    shares = {each.member_id: share_bytes(subscription([]), {"t": (nth,)}) for nth, each in enumerate((first, second))}
    await sync(house, first, instance_id="one", assignments=shares)
    newer = beat(house, "newer", instance_id="one")
    asked = await sync(house, second)
    assert (newer.epoch, asked.error, asked.protocol_name) == (second.generation, NONE, "range")
    assert read_share(asked.assignment).partitions == {"t": (1,)}


async def test_partitions_that_the_leader_had_not_seen_are_shared_out_to_who_comes_under_a_static_name() -> None:
    house = House()
    house.make_topic("t", 2)
    first = await join(house, fresh_id="first", instance_id="one")
    share = share_bytes(subscription([]), {"t": (0, 1)})
    await sync(house, first, instance_id="one", assignments={first.member_id: share})
    topic = house.topics.get("t")
    assert topic is not None
    grow_to(house.topics, topic, 3)
    assert indexes(assigned(beat(house, "newer", instance_id="one"))) == [0, 1, 2]


async def test_what_one_that_left_had_is_shared_out_to_who_comes_under_a_static_name() -> None:
    house = House()
    house.make_topic("t", 2)
    first = await join(house, fresh_id="first", instance_id="one")
    second, first = await asyncio.gather(
        join(house, fresh_id="second"), join(house, first.member_id, instance_id="one")
    )
    shares = {each.member_id: share_bytes(subscription([]), {"t": (nth,)}) for nth, each in enumerate((first, second))}
    await sync(house, first, instance_id="one", assignments=shares)
    house.groups.leave("g", [Leaving(member_id=second.member_id)], house.clock.now())
    assert indexes(assigned(beat(house, "newer", instance_id="one"))) == [0, 1]


async def test_what_the_last_newer_member_had_is_shared_out_also_after_a_crash() -> None:
    house = House()
    house.make_topic("t", 2)
    newer = beat(house, "newer")
    other = await join(house, fresh_id="other")
    newer = beat(house, "newer", newer.epoch)
    newer = beat(house, "newer", newer.epoch, owned=assigned(newer))
    other = await join(house, other.member_id)
    assert len(read_share((await sync(house, other)).assignment).partitions["t"]) == 1
    beat(house, "newer", LEAVES)
    house = house.after_restart()
    now = house.clock.now()
    assert house.groups.heartbeat("g", "other", None, other.generation, now) is ErrorCode.rebalance_in_progress
    assert house.groups.check_commit("g", "other", None, other.generation, now) is NONE
    again = await join(house, "other")
    assert (again.error, again.leader) == (NONE, "other")


async def test_who_was_told_an_assignor_before_the_group_went_back_and_over_again_joins_again() -> None:
    """In between it was read back, and of a member of the classic protocol one assignor is stored."""
    house = House()
    house.make_topic("t", 2)
    beat(house, "newer")
    first = await join(house, fresh_id="first", names=("range", "roundrobin"))
    second = await join(house, fresh_id="second", names=("roundrobin", "range"))
    assert (first.protocol_name, second.protocol_name) == ("range", "roundrobin")
    beat(house, "newer", LEAVES)
    house = house.after_restart()
    beat(house, "newer")
    told = second._replace(generation=house.groups.groups["g"].generation - 1)
    assert (await sync(house, told)).error is ErrorCode.rebalance_in_progress
