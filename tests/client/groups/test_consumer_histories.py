"""Many histories of a group of KIP-848 in simulated time: members come, go, die and get stuck, the coordinator is
killed and read back elsewhere, topics come and go, the network loses things."""

from oncelog.client.errors import KafkaError
from tests.client.groups.simulated import POLL_MS, SESSION_MS, Sim
from tests.client.groups.simulated_consumer import ConsumerWorld
from tests.client.groups.test_histories import goes
from tests.depth import deeper, scaled

PATTERN = "x"
STATIC = ("one", "two")


def history(seed: int) -> ConsumerWorld:
    world = ConsumerWorld(seed)
    chance, topics = world.chance, world.topics
    topics.make("a", 5)
    topics.make("b", 3)
    world.comes({"a", "b"})
    for step in range(30):
        world.loses = chance.choice((0.0, 0.0, 0.05, 0.3))
        living = [member for member in world.members if not member.is_dead] or [world.comes({"a", "b"})]
        what = chance.random()
        if what < 0.25 and len(living) < 5:
            comes(world, living)
        elif what < 0.4 and len(living) > 1:
            goes(world, chance.choice(living))
        elif what < 0.5 and len(living) > 1:
            world.dies(chance.choice(living))
        elif what < 0.6:
            chance.choice(living).subscribe(set(chance.choice((("a", "b"), ("b",)))), chance.choice(("", PATTERN)))
        elif what < 0.7:
            world.moves(chance.choice((0, 100, SESSION_MS)))
        elif what < 0.8:
            changes_topics(world, step)
        for member in world.members:
            member.run()
        world.run_until(world.now_ms + chance.choice((0, 3, 50, 400, 3000)))
    return world


def comes(world: ConsumerWorld, living: list[Sim]) -> None:
    named = {member.machine.limits.instance_id for member in living}
    name = world.chance.choice((None, None, *STATIC))
    topics = set(world.chance.choice((("a", "b"), ("a", "b"), ("a",), ("b",))))
    world.comes(topics, None if name in named else name, world.chance.choice(("", "", PATTERN)))


def changes_topics(world: ConsumerWorld, step: int) -> None:
    found = [name for name in world.topics.known if name.startswith(PATTERN)]
    what = world.chance.random()
    if what < 0.4:
        world.topics.make(f"{PATTERN}{step}", 2)
    elif what < 0.7:
        world.topics.grow(world.chance.choice(("a", "b")))
    elif found:
        world.topics.delete(world.chance.choice(found))


def settles(world: ConsumerWorld) -> None:
    """When nothing is lost any more, every partition that is wanted is with one who wants it, and nothing goes on."""
    world.loses, world.is_slow = 0.0, False
    world.run_until(world.now_ms + 2 * POLL_MS + 5 * SESSION_MS)
    living = [member for member in world.members if not member.is_dead]
    assert all(member.machine.is_steady for member in living), world.told()
    known = world.topics.known
    wanted = {topic for member in living for topic in wants(world, member)}
    assert set(world.owners) == {(topic, n) for topic in wanted for n in range(known[topic].partitions)}, world.told()
    for member in living:
        assert {topic for topic, _ in member.owned} <= wants(world, member)
        assert member.owned == member.machine.owned
        expected = {KafkaError._TRANSPORT, KafkaError.UNRELEASED_INSTANCE_ID}
        assert all(error.retriable() or error.code() in expected for error in member.errors), member.errors


def wants(world: ConsumerWorld, member: Sim) -> set[str]:
    said = world.group.members.said[member.name]
    return {topic for topic in world.group.members.topics_of(said) if topic in world.topics.known}


@deeper
def test_no_partition_is_ever_with_two_members_of_a_group_and_all_are_shared_out_in_the_end() -> None:
    for seed in range(scaled(25)):
        try:
            settles(history(seed))
        except AssertionError as failure:
            raise AssertionError(f"seed {seed}: {failure}") from failure
