"""Commits with a producer: whose turn it is, whatever is cancelled or fails meanwhile, and the daily one."""

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from oncelog.client.errors import KafkaException
from oncelog.client.net.loop_thread import LoopThread
from oncelog.client.saving.committing import Committer
from oncelog.client.saving.saved import SavedProducer


class _Stored(Committer):
    def __init__(self) -> None:
        super().__init__(None, "group", _Saving(), 4096)  # type: ignore[arg-type]
        self.stored: list[SavedProducer] = []

    async def store(self, positions: Any, value: SavedProducer) -> None:
        self.stored.append(value)
        self.last = value


class _Saving:
    started_from = None


def _value() -> SavedProducer:
    return SavedProducer(cluster_id="c", partitioner="consistent_random", made_at_ms=0, topics={})


async def test_a_boundary_that_is_not_the_last_one_any_more_is_not_committed_again() -> None:
    committer, old, new = _Stored(), _value(), _value()
    await committer.turn.acquire()
    committer.last = new  # by the commit that has the turn
    committer.turn.release()
    await committer.commit_again(old, 1000.0)
    assert committer.stored == []
    await committer.commit_again(new, 1000.0)
    assert len(committer.stored) == 1
    assert committer.again is not None
    committer.again.cancel()


class _OwnThread:
    """A producer's side on a loop of its own, whose turn can be looked at."""

    started_from = None

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.turn = asyncio.Lock()
        self.began = threading.Event()
        self.may_end = threading.Event()

    async def begin_commit(self) -> SavedProducer:
        await self.turn.acquire()
        self.began.set()
        assert self.may_end.wait(20)  # its thread stands still, with the turn, while ours goes on
        return _value()

    async def end_commit(self, *, is_stored: bool) -> None:
        assert not is_stored
        self.turn.release()


@pytest.fixture
def thread() -> Iterator[LoopThread]:
    thread = LoopThread("the producer's")
    yield thread
    thread.stop()


async def test_a_commit_that_is_cancelled_in_the_instant_it_begins_gives_the_turn_back(thread: LoopThread) -> None:
    saving = _OwnThread(thread.loop)
    committer = _Stored()
    committer.saving = saving  # type: ignore[assignment]
    commit = asyncio.create_task(committer.commit([], 1000.0))
    await asyncio.to_thread(saving.began.wait, 20)
    commit.cancel()
    await asyncio.wait([commit])
    saving.may_end.set()
    thread.run(saving.turn.acquire(), 20)
    assert committer.stored == []


async def test_a_commit_that_is_cancelled_with_the_turn_on_its_way_back_to_it_gives_it_back(thread: LoopThread) -> None:
    saving = _OwnThread(thread.loop)
    saving.may_end.set()
    committer = _Stored()
    committer.saving = saving  # type: ignore[assignment]
    commit = asyncio.create_task(committer.commit([], 1000.0))
    await asyncio.sleep(0)
    assert saving.began.wait(20)  # this loop stands still, so it learns of the turn and of its end at once
    thread.run(asyncio.sleep(0))
    commit.cancel()
    await asyncio.wait([commit])
    assert commit.cancelled()
    thread.run(saving.turn.acquire(), 20)


async def test_a_producer_that_is_closed_while_a_commit_begins_ends_the_commit() -> None:
    thread = LoopThread("the producer's")
    saving = _OwnThread(thread.loop)
    committer = _Stored()
    committer.saving = saving  # type: ignore[assignment]
    thread.run(saving.turn.acquire())  # so that it waits
    commit = asyncio.create_task(committer.commit([], 1000.0))
    await asyncio.sleep(0)
    thread.run(asyncio.sleep(0))
    await asyncio.to_thread(thread.stop)
    with pytest.raises(KafkaException, match="the producer was closed meanwhile"):
        await commit


class _Broken(_Stored):
    def __init__(self) -> None:
        super().__init__()
        self.tried: list[SavedProducer] = []

    async def store(self, positions: Any, value: SavedProducer) -> None:
        self.tried.append(value)
        raise OSError("nobody thought of this")


async def test_the_daily_commit_puts_nothing_over_one_that_may_stand_there_unheard() -> None:
    committer = _Broken()
    saving = _OwnThread(asyncio.get_running_loop())
    saving.may_end.set()
    committer.saving = saving  # type: ignore[assignment]
    committer.last = old = _value()
    with pytest.raises(OSError, match="nobody thought of this"):
        await committer.commit([], 1000.0)
    committer.tried.clear()
    await committer.commit_again(old, 1000.0)
    assert committer.tried == []


async def test_the_daily_commit_goes_on_after_a_failure_that_nobody_thought_of(
    caplog: pytest.LogCaptureFixture,
) -> None:
    committer = _Broken()
    committer.last = value = _value()
    await committer.commit_again(value, 0.0)
    async with asyncio.timeout(30):
        while len(committer.tried) < 3:  # on the days after, too
            await asyncio.sleep(0)
    assert committer.again is not None
    committer.again.cancel()
    assert "nobody thought of this" in caplog.text
