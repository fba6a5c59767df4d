"""A group of KIP-848 whose last newer member comes back as one of the classic protocol, under its static name."""

from collections.abc import Iterable

from oncelog.server.errors import ErrorCode
from oncelog.server.groups.group import Group
from oncelog.server.groups.messages import JoinAnswer, SyncAnswer, SyncRequest
from oncelog.server.groups.state import State
from tests.server.groups.consumer_support import assigned, beat
from tests.server.groups.support import House, joined
from tests.server.groups.words import subscription

NONE = ErrorCode.none


async def join(
    house: House,
    member_id: str = "",
    *,
    topics: Iterable[str] = ("t",),
    names: Iterable[str] = ("range",),
    **more: object,
) -> JoinAnswer:
    protocols = tuple((name, subscription(topics)) for name in names)
    return await joined(house, member_id=member_id, protocols=protocols, **more)  # type: ignore[arg-type]


async def sync(house: House, told: JoinAnswer, **more: object) -> SyncAnswer:
    values: dict[str, object] = {"protocol_name": told.protocol_name, "assignments": {}}
    request = SyncRequest(member_id=told.member_id, generation=told.generation, **(values | more))  # type: ignore[arg-type]
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
