"""Users, rights and quotas changed where brokers agree, while others may be changing them, too."""

import asyncio
from unittest.mock import create_autospec

import pytest

from oncelog.clock import ManualClock
from oncelog.cluster.cluster_topics import ClusterTopics
from oncelog.cluster.seen_documents import SeenDocuments
from oncelog.cluster.stored_documents import change_in_tree
from oncelog.cluster.tree import Outdated
from oncelog.security import documents
from oncelog.security.documents import Document, Kind
from tests.cluster.tree_memory import MemorySession, MemoryTree


async def begun() -> tuple[MemoryTree, MemorySession]:
    tree = MemoryTree()
    session = tree.session(ManualClock())
    await session.begin_session()
    return tree, session


def adding(name: str) -> documents.Change:
    return lambda document: {**document, name: {}}


def stored(tree: MemoryTree, kind: Kind) -> Document:
    found = tree.nodes.get(f"/{kind}")
    return {} if found is None else documents.decode(kind, found.node.value)


async def test_what_is_there_is_kept_and_each_kind_is_its_own() -> None:
    tree, session = await begun()
    for kind in Kind:
        assert await change_in_tree(session, kind, adding("a")) == {"a": {}}
        assert await change_in_tree(session, kind, adding("b")) == {"a": {}, "b": {}}
        assert stored(tree, kind) == {"a": {}, "b": {}}


async def test_nothing_is_written_where_nothing_changes() -> None:
    tree, session = await begun()
    await change_in_tree(session, Kind.USERS, lambda document: document)
    assert tree.nodes.get("/users") is None


async def test_what_somebody_else_changes_meanwhile_is_not_lost() -> None:
    tree, session = await begun()
    other = tree.session(ManualClock())
    await other.begin_session()
    meanwhile = ["b", "c"]

    async def others() -> None:
        if meanwhile:
            name = meanwhile.pop()
            await change_in_tree(other, Kind.USERS, adding(name))

    tree.pause = others
    await change_in_tree(session, Kind.USERS, adding("a"))
    assert stored(tree, Kind.USERS) == {"a": {}, "b": {}, "c": {}}


async def test_it_is_given_up_where_others_never_stop() -> None:
    tree, session = await begun()
    other = tree.session(ManualClock())
    await other.begin_session()
    names, is_other = iter(map(str, range(1000))), False

    async def others() -> None:
        nonlocal is_other
        if not is_other:
            is_other = True
            await change_in_tree(other, Kind.USERS, adding(next(names)))
            is_other = False

    tree.pause = others
    with pytest.raises(Outdated):
        await change_in_tree(session, Kind.USERS, adding("a"))
    assert "a" not in stored(tree, Kind.USERS)


async def test_a_brokers_own_changes_go_one_by_one_so_that_none_is_tried_anew() -> None:
    tree, session = await begun()
    asked = 0

    async def count() -> None:
        nonlocal asked
        asked += 1
        await asyncio.sleep(0)

    tree.pause = count
    seen = SeenDocuments(session, create_autospec(ClusterTopics))
    names = [str(number) for number in range(20)]
    await asyncio.gather(*(seen.change(Kind.USERS, adding(name)) for name in names))
    assert list(stored(tree, Kind.USERS)) == sorted(names)
    assert asked == len(names) * 3  # a read, and what comes before and after a write
