"""Turns, coroutines that begin at once, and no work for the garbage collector."""

import asyncio
import gc
from typing import Any

import pytest

from oncelog.embedded import Server
from oncelog.server.connection import Connection
from oncelog.server.eagerly import Pending, begun
from oncelog.server.interpreter import MIDDLE, YOUNG, keep_pauses_short
from oncelog.server.turns import TURN_MS, Turns
from tests.raw import RawConnection, batch
from tests.waiting import until


class Work:
    """A clock that moves as work is done, and a note of who worked."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.done: list[str] = []
        self.turns = Turns(lambda: self.now_ms)

    async def long(self, name: str, steps: int) -> None:
        for _ in range(steps):
            if self.turns.is_over():
                await self.turns.next()
            self.step(name)

    def step(self, name: str) -> None:
        self.done.append(name)
        self.now_ms += TURN_MS

    async def rounds(self) -> None:
        """One letter for each round of the loop, as a connection would notice it."""
        while True:
            self.done.append(".")
            await asyncio.sleep(0)


def longest_between_rounds(done: list[str]) -> int:
    return max(len(each) for each in "".join(done).split("."))


async def test_long_work_of_many_has_one_turn_in_a_round_and_all_get_on() -> None:
    work = Work()
    watching = asyncio.create_task(work.rounds())
    await asyncio.gather(*(work.long(name, 5) for name in "abc"))
    watching.cancel()
    assert sorted(each for each in work.done if each != ".") == sorted("abc" * 5)
    assert longest_between_rounds(work.done) <= 3, "the first step of each is free, then one in a round"
    assert longest_between_rounds(work.done[work.done.index("c") :]) == 1
    last = [len(work.done) - 1 - work.done[::-1].index(name) for name in "abc"]
    assert max(last) - min(last) < len(work.done) / 3, "nobody waits for another one's end"


async def test_steps_that_nobody_waits_for_leave_rounds_to_others() -> None:
    work = Work()
    watching = asyncio.create_task(work.rounds())

    def steps() -> Any:
        for _ in range(5):
            work.step("s")
            yield

    work.turns.go_through(steps())
    while work.done.count("s") < 5:
        await asyncio.sleep(0)
    watching.cancel()
    assert longest_between_rounds(work.done[1:]) == 1, "after the first, which nobody asked about"


async def test_who_hangs_up_gives_the_turn_to_the_next() -> None:
    work = Work()
    first, second = (asyncio.create_task(work.long(name, 3)) for name in "ab")
    await asyncio.sleep(0)
    first.cancel()
    await second
    assert work.done.count("b") == 3


async def test_what_does_not_wait_is_done_at_once() -> None:
    async def quick() -> int:
        return 7

    assert begun(quick()) == 7


async def test_what_waits_ends_with_its_result_or_its_error() -> None:
    gate: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def slow(fails: bool) -> int:
        found = await asyncio.shield(gate)
        await asyncio.sleep(0)
        if fails:
            raise LookupError(str(found))
        return found

    started = [begun(slow(fails)) for fails in (False, True)]
    rests = [each.rest for each in started if isinstance(each, Pending)]
    assert len(rests) == 2
    gate.set_result(5)
    results = await asyncio.gather(*rests, return_exceptions=True)
    assert results[0] == 5
    assert isinstance(results[1], LookupError)


@pytest.mark.parametrize("rounds", [0, 1], ids=["before its first step", "after it"])
async def test_what_waits_hears_of_its_end(rounds: int) -> None:
    heard: list[str] = []
    awaited: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def waits() -> None:
        try:
            await awaited
        except asyncio.CancelledError:
            await asyncio.sleep(0)
            heard.append("cancelled")
            raise

    started = begun(waits())
    assert isinstance(started, Pending)
    task = asyncio.ensure_future(started.rest)
    for _ in range(rounds):
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert heard == ["cancelled"]
    assert awaited.cancelled()


async def test_an_error_before_the_first_wait_is_raised_at_once() -> None:
    async def fails() -> None:
        raise LookupError

    with pytest.raises(LookupError):
        begun(fails())


async def test_the_garbage_collector_looks_through_little_at_a_time() -> None:
    """However much comes: 980,000 objects when 200 fetches wait at 4,900 partitions."""
    looked_through: list[int] = []

    def watch(phase: str, about: dict[str, int]) -> None:
        if phase == "start":
            looked_through.append(sum(len(gc.get_objects(each)) for each in range(about["generation"] + 1)))

    keeping = asyncio.create_task(keep_pauses_short())
    await asyncio.sleep(0)
    gc.callbacks.append(watch)
    try:
        kept: list[list[int]] = [[] for _ in range(200_000)]
        gc.collect()
    finally:
        gc.callbacks.remove(watch)
        keeping.cancel()
    assert len(kept) == 200_000
    assert max(looked_through) <= 1.5 * YOUNG * (MIDDLE + 1)


def test_a_connection_that_is_gone_leaves_nothing_to_the_garbage_collector(server: Server) -> None:
    """A server that looked through everything for such cycles would stop for as long."""

    def use() -> None:
        with RawConnection(server.bootstrap_servers) as raw:
            raw.produce("t", 0, batch([b"x"]))
            raw.fetch("t", 0, 0)
            raw.fetch("t", 0, 1, max_wait_ms=1)
            raw.call("list_groups", 4)
            raw.call("metadata", 9, topics=None)

    with RawConnection(server.bootstrap_servers) as raw:
        raw.create_topic("t")
    use()
    until(lambda: server.call(lambda: server.broker.metrics.connections_open) == 0, "connections to be gone")
    server.call(gc.collect)
    gc.disable()
    try:
        for _ in range(20):
            use()
        until(lambda: server.call(lambda: server.broker.metrics.connections_open) == 0, "connections to be gone")
        left = {id(each) for each in server.call(lambda: [e for e in gc.get_objects() if type(e) is Connection])}
    finally:
        gc.enable()
    assert left == set()
