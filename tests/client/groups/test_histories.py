"""Many histories of a group in simulated time: members come, go, die, get stuck; the network loses things."""

import pytest

from oncelog.client.errors import KafkaError
from oncelog.client.groups.membership import Membership
from tests.client.groups.simulated import POLL_MS, SESSION_MS, ClassicWorld, Sim, World
from tests.depth import deeper, scaled

TOPICS = {"a": 5, "b": 3}
ALL = {("a", partition) for partition in range(5)} | {("b", partition) for partition in range(3)}


def history(seed: int, assignors: tuple[str, ...]) -> ClassicWorld:
    world = ClassicWorld(seed, assignors, dict(TOPICS))
    chance = world.chance
    world.comes({"a", "b"})
    for _ in range(25):
        world.loses = chance.choice((0.0, 0.0, 0.05, 0.3))
        living = [member for member in world.members if not member.is_dead] or [world.comes({"a", "b"})]
        what = chance.random()
        if what < 0.3 and len(living) < 5:
            world.comes(set(chance.choice((("a", "b"), ("a", "b"), ("a",), ("b",)))))
        elif what < 0.45 and len(living) > 1:
            goes(world, chance.choice(living))
        elif what < 0.55 and len(living) > 1:
            world.dies(chance.choice(living))
        elif what < 0.65:
            chance.choice(living).subscribe(set(chance.choice((("a", "b"), ("b",)))))
        elif what < 0.75:
            rejoins(chance.choice(living))
        for member in world.members:
            member.run()
        world.run_until(world.now_ms + chance.choice((0, 3, 50, 400, 3000)))
    return world


def rejoins(member: Sim) -> None:
    assert isinstance(member.machine, Membership)
    generation = member.machine.member.generation
    member.machine.refused(KafkaError.REBALANCE_IN_PROGRESS, generation, member.world.now_ms)


def goes(world: World, member: Sim) -> None:
    member.machine.leave()
    member.run()

    def ended() -> None:
        if member.machine.is_out:
            member.is_dead = True
        else:
            world.at(world.now_ms + 1, 1, ended)

    ended()


def settles(world: World) -> None:
    """When nothing is lost any more, every partition that is wanted is with one who wants it, and nothing goes on."""
    world.loses = 0.0
    world.run_until(world.now_ms + POLL_MS + 3 * SESSION_MS)
    living = [member for member in world.members if not member.is_dead]
    assert all(member.machine.is_steady for member in living), world.told()
    wanted = frozenset[str]().union(*(member.topics for member in living))
    assert set(world.owners) == {place for place in ALL if place[0] in wanted}, world.told()
    for member in living:
        assert {topic for topic, _ in member.owned} <= member.topics
        assert member.owned == member.machine.owned
        assert all(error.retriable() or error == KafkaError._TRANSPORT for error in member.errors), member.errors


@deeper
@pytest.mark.parametrize(
    "assignors", [("range",), ("cooperative-sticky",), ("sticky", "roundrobin")], ids=lambda value: value[0]
)
def test_no_partition_is_ever_with_two_members_and_all_are_shared_out_in_the_end(assignors: tuple[str, ...]) -> None:
    for seed in range(scaled(20)):
        try:
            settles(history(seed, assignors))
        except AssertionError as failure:
            raise AssertionError(f"seed {seed}: {failure}") from failure
