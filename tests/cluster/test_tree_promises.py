"""What every kind of tree promises to the brokers that agree by it."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
import pytest_asyncio

from oncelog.cluster.tree import (
    ABSENT,
    MOST_VALUE_BYTES,
    Change,
    Check,
    Node,
    Outdated,
    Put,
    PutEphemeral,
    Remove,
    Unsure,
)
from tests.cluster.trees import KINDS, Told, Trees

ORDERS, CONFIG, BROKER, LIVE = "/topics/orders", "/config", "/nodes/1", "/live/1"


@pytest_asyncio.fixture(params=KINDS)
async def trees(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Trees]:
    async with KINDS[request.param](tmp_path) as made:
        yield made


# Changes


async def test_a_node_is_made_changed_and_removed_each_by_its_version(trees: Trees) -> None:
    tree = await trees.session()
    assert await tree.get(ORDERS) is None
    await tree.change(Put(ORDERS, b"a", ABSENT))
    assert await tree.get(ORDERS) == Node(b"a", 0)
    await tree.change(Put(ORDERS, b"b", 0))
    await tree.change(Put(ORDERS, b"", 1))
    assert await tree.get(ORDERS) == Node(b"", 2)
    await tree.change(Remove(ORDERS, 2))
    assert await tree.get(ORDERS) is None
    await tree.change(Put(ORDERS, b"c", ABSENT))
    assert await tree.get(ORDERS) == Node(b"c", 0)


OUTDATED: list[Change] = [
    Put(CONFIG, b"x", ABSENT),
    Put(CONFIG, b"x", 0),
    Put(CONFIG, b"x", 2),
    Put(ORDERS, b"x", 0),
    PutEphemeral(CONFIG, b"x"),
    Remove(CONFIG, 0),
    Remove(ORDERS, 0),
    Check(CONFIG, 2),
    Check(ORDERS, 0),
]


@pytest.mark.parametrize("change", OUTDATED, ids=str)
async def test_a_change_from_another_version_is_outdated_and_says_which_path(trees: Trees, change: Change) -> None:
    tree = await trees.session()
    await tree.change(Put(CONFIG, b"a", ABSENT))
    await tree.change(Put(CONFIG, b"b", 0))
    with pytest.raises(Outdated) as refusal:
        await tree.change(change)
    assert refusal.value.path == change.path
    assert await tree.get(CONFIG) == Node(b"b", 1)
    assert await tree.get(ORDERS) is None


async def test_all_of_a_change_is_done_or_nothing_of_it(trees: Trees) -> None:
    tree = await trees.session()
    await tree.change(Put(CONFIG, b"a", ABSENT))
    with pytest.raises(Outdated) as refusal:
        await tree.change(Put(ORDERS, b"x", ABSENT), Remove(CONFIG, 0), Check(BROKER, 0), PutEphemeral(LIVE, b""))
    assert refusal.value.path == BROKER
    assert await tree.get(CONFIG) == Node(b"a", 0)
    assert await tree.get(ORDERS) is None
    assert await tree.get(LIVE) is None


async def test_what_stands_behind_in_a_change_sees_what_stands_before(trees: Trees) -> None:
    tree = await trees.session()
    await tree.change(Put(ORDERS, b"a", ABSENT), Put(ORDERS, b"b", 0), Check(ORDERS, 1))
    assert await tree.get(ORDERS) == Node(b"b", 1)
    await tree.change(Remove(ORDERS, 1), Put(ORDERS, b"c", ABSENT))
    assert await tree.get(ORDERS) == Node(b"c", 0)
    with pytest.raises(Outdated):
        await tree.change(Put(ORDERS, b"d", 0), Remove(ORDERS, 0))
    assert await tree.get(ORDERS) == Node(b"c", 0)


async def test_a_change_can_say_that_a_node_must_not_be_there(trees: Trees) -> None:
    tree = await trees.session()
    is_absent = Put(ORDERS, b"", ABSENT), Remove(ORDERS, 0)
    await tree.change(*is_absent, Put(CONFIG, b"a", ABSENT))
    assert (await tree.get(ORDERS), await tree.get(CONFIG)) == (None, Node(b"a", 0))
    await tree.change(Put(ORDERS, b"x", ABSENT))
    with pytest.raises(Outdated) as refusal:
        await tree.change(*is_absent, Put(CONFIG, b"b", 0))
    assert refusal.value.path == ORDERS
    assert (await tree.get(ORDERS), await tree.get(CONFIG)) == (Node(b"x", 0), Node(b"a", 0))


async def test_of_many_that_change_one_version_one_wins(trees: Trees) -> None:
    sessions = [await trees.session() for _ in range(3)]
    await sessions[0].change(Put(CONFIG, b"", ABSENT))

    async def tries(number: int) -> int:
        try:
            await sessions[number % 3].change(Put(CONFIG, b"%d" % number, 0))
        except Outdated:
            return 0
        return number

    (winner,) = {*await asyncio.gather(*map(tries, range(1, 30)))} - {0}
    for tree in sessions:
        await tree.change(Check(CONFIG, 1))
    assert await sessions[winner % 3].get(CONFIG) == Node(b"%d" % winner, 1)


async def test_a_broker_that_was_started_again_changes_no_topic_by_its_old_epoch(trees: Trees) -> None:
    old, new = await trees.session(), await trees.session()
    await old.change(Put(BROKER, b"", ABSENT), Put(ORDERS, b"0", ABSENT))
    await old.change(Check(BROKER, 0), Put(ORDERS, b"1", 0))
    await new.change(Put(BROKER, b"again", 0))
    with pytest.raises(Outdated) as refusal:
        await old.change(Check(BROKER, 0), Put(ORDERS, b"2", 1))
    assert refusal.value.path == BROKER
    await new.change(Check(BROKER, 1), Put(ORDERS, b"3", 1))


@pytest.mark.parametrize(
    "change",
    [
        Put("orders", b"", ABSENT),
        Put("/orders/0/1", b"", ABSENT),
        Put("/folder/orders", b"", ABSENT),
        Put("/topics", b"", ABSENT),
        Put("/topics/", b"", ABSENT),
        Put("/topics/..", b"", ABSENT),
        Put("/topics/a\nb", b"", ABSENT),
        Put(CONFIG, b"", -2),
        Put(CONFIG, bytes(MOST_VALUE_BYTES + 1), ABSENT),
        Check(CONFIG, ABSENT),
        Remove(CONFIG, ABSENT),
    ],
    ids=lambda change: repr(change)[:50],
)
async def test_what_no_tree_takes_is_not_sent(trees: Trees, change: Change) -> None:
    tree = await trees.session()
    with pytest.raises(ValueError):
        await tree.change(change)


async def test_a_change_has_a_bound_as_a_whole(trees: Trees) -> None:
    tree = await trees.session()
    half = bytes(MOST_VALUE_BYTES // 2)
    await tree.change(Put("/topics/a", half, ABSENT), Put("/topics/b", half, ABSENT))
    with pytest.raises(ValueError, match="together"):
        await tree.change(*(Put(f"/topics/{name}", half, ABSENT) for name in "cde"))
    await tree.change(Put(CONFIG, bytes(MOST_VALUE_BYTES), ABSENT))
    assert {name: len(node.value) for name, node in (await tree.children("/topics")).items()} == {
        "a": len(half),
        "b": len(half),
    }


# Reading


async def test_children_are_the_nodes_of_a_folder(trees: Trees) -> None:
    tree = await trees.session()
    assert await tree.children("/topics") == {}
    names = [f"t-{number:03}" for number in range(300)]
    await tree.change(Put(CONFIG, b"", ABSENT), Put("/nodes/7", b"", ABSENT))
    await tree.change(*(Put(f"/topics/{name}", name.encode(), ABSENT) for name in names))
    await tree.change(Put("/topics/t-007", b"new", 0))
    found = await tree.children("/topics")
    assert found == {name: Node(name.encode(), 0) for name in names} | {"t-007": Node(b"new", 1)}
    with pytest.raises(ValueError):
        await tree.children("/config")


# Sessions


async def test_a_node_of_a_session_is_gone_when_that_is_closed(trees: Trees) -> None:
    one, other = await trees.session(), await trees.session()
    await one.change(PutEphemeral(LIVE, b"x"), Put(BROKER, b"y", ABSENT))
    await one.change(Put(LIVE, b"z", 0))
    assert await other.get(LIVE) == Node(b"z", 1)
    told = Told(other)
    await one.close()
    assert await other.get(LIVE) is None
    assert await other.get(BROKER) == Node(b"y", 0)
    await told.until(LIVE)
    assert one.sure_until_ms() == 0
    assert not one.is_connected
    with pytest.raises(Unsure):
        await one.change(Put(CONFIG, b"", ABSENT))


async def test_a_node_of_a_session_is_gone_when_that_is_over_and_its_broker_is_told(trees: Trees) -> None:
    one, other = await trees.session(), await trees.session()
    lost = asyncio.Event()
    one.on_lost(lost.set)
    await one.change(PutEphemeral(LIVE, b"x"), Put(BROKER, b"y", ABSENT))
    told = Told(other)
    await trees.cut(one)
    assert await other.get(LIVE) == Node(b"x", 0)
    sure_until_ms = one.sure_until_ms()
    await trees.expire(one)
    await told.until(LIVE)
    assert await other.get(LIVE) is None
    assert sure_until_ms <= trees.clock.now().monotonic_ms, "somebody found it over while it could be sure"
    assert not lost.is_set(), "nobody could tell it"
    await trees.mend(one)
    await asyncio.wait_for(lost.wait(), 20)
    assert one.sure_until_ms() == 0
    with pytest.raises(Unsure):
        await one.change(Put(CONFIG, b"", ABSENT))
    assert await other.get(CONFIG) is None


async def test_another_session_begins_where_one_was_lost(trees: Trees) -> None:
    one = await trees.session()
    lost = asyncio.Event()
    one.on_lost(lost.set)
    await one.change(PutEphemeral(LIVE, b"x"))
    await trees.cut(one)
    await trees.expire(one)
    await trees.mend(one)
    await asyncio.wait_for(lost.wait(), 20)
    told = Told(one)
    await one.begin_session()
    await told.until("")
    await one.change(PutEphemeral(LIVE, b"y"))
    assert await one.get(LIVE) == Node(b"y", 0)


async def test_a_session_goes_on_after_a_cut(trees: Trees) -> None:
    one, other = await trees.session(), await trees.session()
    lost = asyncio.Event()
    one.on_lost(lost.set)
    told = Told(one)
    await one.change(PutEphemeral(LIVE, b"x"), Put(CONFIG, b"", ABSENT))
    await told.until(CONFIG)
    await trees.cut(one)
    assert not one.is_connected
    told.paths.clear()
    await other.change(Put(CONFIG, b"new", 0))
    assert CONFIG not in told.paths
    await trees.mend(one)
    await told.until("")
    assert one.is_connected
    assert await one.get(CONFIG) == Node(b"new", 1)
    assert await one.get(LIVE) == Node(b"x", 0)
    told.paths.clear()
    await other.change(Put(CONFIG, b"newer", 1))
    await told.until(CONFIG)
    assert not lost.is_set()


async def test_the_node_of_an_older_session_can_be_taken_over_in_one_change(trees: Trees) -> None:
    old, new = await trees.session(), await trees.session()
    await old.change(PutEphemeral(LIVE, b"old"))
    with pytest.raises(Outdated):
        await new.change(PutEphemeral(LIVE, b"new"))
    await new.change(Remove(LIVE, 0), PutEphemeral(LIVE, b"new"))
    await old.close()
    assert await new.get(LIVE) == Node(b"new", 0)


async def test_a_broker_is_sure_of_its_session_for_the_timeout_after_it_was_last_heard(trees: Trees) -> None:
    before_ms = trees.clock.now().monotonic_ms
    tree = await trees.session()
    assert before_ms <= tree.sure_until_ms() - trees.timeout_ms <= trees.clock.now().monotonic_ms
    await trees.cut(tree)
    sure_until_ms = tree.sure_until_ms()
    trees.let_pass(trees.timeout_ms // 2)
    assert tree.sure_until_ms() == sure_until_ms


# Watches


async def test_each_change_is_told_whoever_makes_it(trees: Trees) -> None:
    one, other = await trees.session(), await trees.session()
    told, own = Told(one), Told(other)
    steps: list[tuple[Change, Node | None]] = [
        (Put(ORDERS, b"a", ABSENT), Node(b"a", 0)),
        (Put(ORDERS, b"b", 0), Node(b"b", 1)),
        (Remove(ORDERS, 1), None),
        (Put(ORDERS, b"c", ABSENT), Node(b"c", 0)),
        (Put(CONFIG, b"d", ABSENT), Node(b"d", 0)),
        (PutEphemeral(LIVE, b"e"), Node(b"e", 0)),
    ]
    for change, after in steps:
        for each in told, own:
            each.paths.clear()
        await other.change(change)
        for each, tree in (told, one), (own, other):
            await each.until(change.path)
            await each.until_seen(_is(tree.get, change.path, after))


def _is(
    get: Callable[[str], Awaitable[Node | None]], path: str, expected: Node | None
) -> Callable[[], Awaitable[bool]]:
    async def answer() -> bool:
        return await get(path) == expected

    return answer


async def test_every_node_of_a_change_is_told(trees: Trees) -> None:
    one, other = await trees.session(), await trees.session()
    told = Told(one)
    paths = [f"/topics/{number}" for number in range(100)]
    await other.change(*(Put(path, b"", ABSENT) for path in paths))
    for path in paths:
        await told.until(path)


# Doubt


@pytest.mark.parametrize("is_done", [True, False])
async def test_a_change_whose_answer_is_lost_is_unsure_and_can_be_looked_up(trees: Trees, is_done: bool) -> None:
    one, other = await trees.session(), await trees.session()
    await one.change(Put(CONFIG, b"a", ABSENT))
    with pytest.raises(Unsure):
        await trees.doubt(one, Put(CONFIG, b"b", 0), is_done=is_done)
    told = Told(one)
    await trees.mend(one)
    await told.until("")
    expected = Node(b"b", 1) if is_done else Node(b"a", 0)
    assert await other.get(CONFIG) == expected
    assert await one.get(CONFIG) == expected


async def test_what_is_asked_without_a_connection_is_never_done(trees: Trees) -> None:
    one, other = await trees.session(), await trees.session()
    await trees.cut(one)
    with pytest.raises(Unsure):
        await one.change(Put(CONFIG, b"late", ABSENT))
    with pytest.raises(Unsure):
        await one.get(CONFIG)
    with pytest.raises(Unsure):
        await one.children("/topics")
    told = Told(one)
    await trees.mend(one)
    await told.until("")
    assert await one.get(CONFIG) is None
    assert await other.get(CONFIG) is None


async def test_what_has_no_time_left_is_unsure(trees: Trees) -> None:
    tree = await trees.session()
    with pytest.raises(Unsure):
        await tree.change(Put(CONFIG, b"late", ABSENT), within_s=0)
    await tree.change(Put(ORDERS, b"", ABSENT))
    assert await tree.get(CONFIG) is None
