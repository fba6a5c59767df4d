"""The faults that a test can ask of the tree in memory."""

import asyncio

import pytest

from oncelog.clock import ManualClock
from oncelog.cluster.tree import ABSENT, SESSION_TIMEOUT_MS, Node, Outdated, Put, PutEphemeral, Unsure
from tests.cluster.tree_memory import Doubt, MemorySession, MemoryTree
from tests.cluster.trees import Told

A, B, LIVE = "/topics/a", "/topics/b", "/live/1"


async def two() -> tuple[MemoryTree, MemorySession, MemorySession]:
    store = MemoryTree()
    one, other = store.session(ManualClock()), store.session(ManualClock())
    for session in one, other:
        await session.begin_session()
    return store, one, other


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_a_change_may_be_done_long_after_its_answer_was_lost() -> None:
    _, one, other = await two()
    one.doubt_next(Doubt.LATE)
    with pytest.raises(Unsure):
        await one.change(Put(A, b"late", ABSENT))
    assert await other.get(A) is None
    await one.change(Put(B, b"", ABSENT))
    one.do_late()
    assert await other.get(A) == Node(b"late", 0)


async def test_a_late_change_counts_no_more_after_another_or_after_its_session() -> None:
    _, one, other = await two()
    for session, path in (one, A), (other, B):
        session.doubt_next(Doubt.LATE)
        with pytest.raises(Unsure):
            await session.change(Put(path, b"late", ABSENT))
    await other.change(Put(A, b"first", ABSENT))
    one.do_late()
    assert await one.get(A) == Node(b"first", 0)
    other.expire()
    other.do_late()
    assert await one.get(B) is None


async def test_a_doubt_is_over_with_its_change() -> None:
    _, one, _ = await two()
    one.doubt_next(Doubt.DONE)
    with pytest.raises(Unsure):
        await one.change(Put(A, b"", 5))
    with pytest.raises(Outdated):
        await one.change(Put(A, b"", 5))


async def test_watches_that_are_held_are_told_when_released_and_once() -> None:
    _, one, other = await two()
    told = Told(one)
    await turns()
    told.paths.clear()
    one.hold_watches()
    await other.change(Put(A, b"", ABSENT))
    await other.change(Put(A, b"", 0))
    assert await one.get(A) == Node(b"", 1)
    await turns()
    assert told.paths == []
    one.release_watches()
    await turns()
    assert told.paths == [A]


async def test_reads_that_are_frozen_are_old_but_for_own_changes() -> None:
    _, one, other = await two()
    await other.change(Put(A, b"", ABSENT))
    one.freeze_reads()
    await other.change(Put(A, b"new", 0), PutEphemeral(LIVE, b""))
    await one.change(Put(B, b"own", ABSENT))
    assert await one.get(A) == Node(b"", 0)
    assert await one.get(LIVE) is None
    assert await one.children("/topics") == {"a": Node(b"", 0), "b": Node(b"own", 0)}
    with pytest.raises(Outdated):
        await one.change(Put(A, b"x", 0))
    one.thaw_reads()
    assert await one.get(A) == Node(b"new", 1)


async def test_a_suspended_session_that_expires_is_sure_no_longer_than_its_timeout_and_learns_of_it_late() -> None:
    store = MemoryTree()
    clock = ManualClock()
    session = store.session(clock)
    await session.begin_session()
    lost: list[bool] = []
    session.on_lost(lambda: lost.append(True))
    session.suspend()
    clock.advance(SESSION_TIMEOUT_MS)
    session.expire()
    await turns()
    assert (session.sure_until_ms(), lost) == (SESSION_TIMEOUT_MS, [])
    session.resume()
    await turns()
    assert (session.sure_until_ms(), lost) == (0, [True])


async def test_others_come_in_between_a_call_and_its_answer() -> None:
    store, one, other = await two()
    turn = asyncio.Event()

    async def wait() -> None:
        await turn.wait()

    store.pause = wait
    asked = [asyncio.create_task(each.change(Put(A, b"", ABSENT))) for each in (one, other)]
    await turns()
    assert not asked[0].done()
    turn.set()
    results = await asyncio.gather(*asked, return_exceptions=True)
    assert [type(result) for result in results] == [type(None), Outdated]
