"""What members of groups of KIP-848 say to a coordinator on a disk in memory, and what it tells them."""

from oncelog.server.errors import ErrorCode
from oncelog.server.groups.consumer.group import ConsumerGroup
from oncelog.server.groups.consumer.values import (
    JOINS,
    NOWHERE,
    Beat,
    BeatAnswer,
    Places,
)
from oncelog.server.groups.coordinator import GroupCoordinator
from tests.server.groups.support import House

SESSION_MS, REBALANCE_MS = 45_000, 10_000


def beat(
    house: House, member: str, epoch: int = JOINS, *, groups: GroupCoordinator | None = None, **more: object
) -> BeatAnswer:
    values: dict[str, object] = {"member_id": member, "epoch": epoch}
    if epoch == JOINS:
        values |= {"rebalance_timeout_ms": REBALANCE_MS, "topics": ("t",), "owned": NOWHERE}
    found = Beat(**(values | more))  # type: ignore[arg-type]
    at, name = (house.groups, "g") if groups is None else (groups, "group")
    answer, settled = at.consumer.heartbeat(name, found, lambda topic: True, house.clock.now())
    assert settled is ErrorCode.none
    return answer


def group_of(house: House) -> ConsumerGroup:
    group = house.groups.consumer.get("g")
    assert group is not None
    return group


def assigned(answer: BeatAnswer) -> Places:
    assert answer.assigned is not None
    return answer.assigned


def indexes(places: Places) -> list[int]:
    return sorted(place.partition for place in places)
