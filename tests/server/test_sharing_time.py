"""Turns, coroutines that begin at once, and no work for the garbage collector."""

import asyncio
import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import pytest

from oncelog.clock import SystemClock
from oncelog.embedded import Server
from oncelog.server import call as calls
from oncelog.server.aside import THREADS, Aside
from oncelog.server.broker import Broker
from oncelog.server.call import Call, Encoded
from oncelog.server.connection import Connection
from oncelog.server.eagerly import Pending, begun
from oncelog.server.interpreter import MIDDLE, YOUNG, keep_pauses_short
from oncelog.server.memory import Memory
from oncelog.server.packing import LARGE_BYTES, packed_aside
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


class Part:
    """Of an answer: to free it takes a turn."""

    def __init__(self, work: Work, parts: Any = ()) -> None:
        self._work = work
        self._parts = parts

    def __del__(self) -> None:
        self._work.step("f")


@contextmanager
def answering(work: Work, monkeypatch: pytest.MonkeyPatch) -> Iterator[Call]:
    """A call whose answer may be packed, without a server."""
    monkeypatch.setattr(calls, "DROPPED_AT_A_TIME", 1)
    schema = SimpleNamespace(encode=lambda answer, correlation_id: b"packed")
    monkeypatch.setattr(Call, "schema", property(lambda call: schema))
    aside = Aside("test")
    broker = SimpleNamespace(turns=work.turns, memory=Memory(unserved_bytes=1), aside=aside)
    gc.disable()
    try:
        yield Call(cast(Broker, broker), "any", 0, None, "127.0.0.1", "PLAINTEXT", SystemClock().now())
    finally:
        gc.enable()
        aside.close()


@pytest.mark.parametrize("is_packed", [True, False], ids=["packed", "given up half-way"])
async def test_an_answer_of_many_parts_is_freed_in_turns(is_packed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the garbage collector, whether it was answered or its client hung up meanwhile."""
    work = Work()
    never: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @packed_aside
    async def handle(request: None, call: Call) -> Any:
        async def around(number: int) -> Part:
            parts = await call.each(range(5), lambda index: Part(work))
            if number == 2 and not is_packed:
                await never
            return Part(work, parts)

        call.answer_bytes = LARGE_BYTES
        return Part(work, await call.each(range(3), around))

    with answering(work, monkeypatch) as call:
        started = begun(cast(Any, handle(None, call)))
        assert isinstance(started, Pending)
        task = asyncio.ensure_future(started.rest)
        watching = asyncio.create_task(work.rounds())
        if is_packed:
            assert type(await task) is Encoded
        else:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
        del started, task
        for _ in range(100):
            await asyncio.sleep(0)
        watching.cancel()
    assert work.done.count("f") == (1 + 3 if is_packed else 2) + 3 * 5
    assert longest_between_rounds(work.done) <= 2


async def test_nothing_is_packed_for_who_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    @packed_aside
    async def handle(request: None, call: Call) -> Any:
        call.answer_bytes = LARGE_BYTES
        return "answer"

    with answering(Work(), monkeypatch) as call:
        gate = threading.Event()
        busy = [call.broker.aside.threads.submit(gate.wait) for _ in range(THREADS)]
        packed: list[Any] = []
        cast(Any, call.schema).encode = lambda answer, correlation_id: packed.append(answer)
        started = begun(cast(Any, handle(None, call)))
        assert isinstance(started, Pending)
        task = asyncio.ensure_future(started.rest)
        await asyncio.sleep(0)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        gate.set()
        await asyncio.gather(*(asyncio.wrap_future(each) for each in busy))
        await call.broker.aside.run(int)
        while call.made != [[]]:
            await asyncio.sleep(0)
    assert packed == []


async def test_many_that_hang_up_at_once_are_given_up_in_turns_and_before_long_work_goes_on() -> None:
    work = Work()
    work.turns.wait(lambda: work.step("l"))
    watching = asyncio.create_task(work.rounds())
    for name in "abc":
        work.turns.wait_first(partial(work.step, name))
    while work.done.count("l") == 0:
        await asyncio.sleep(0)
    watching.cancel()
    assert longest_between_rounds(work.done) == 1
    assert "".join(work.done).replace(".", "") == "cbal"


@pytest.mark.parametrize("is_limited", [False, True], ids=["", "with a quota"])
def test_a_connection_that_is_gone_leaves_nothing_to_the_garbage_collector(server: Server, is_limited: bool) -> None:
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
        ops = [{"key": "producer_byte_rate", "value": 1e9, "remove": not is_limited}]
        entries = [{"entity": [{"entity_type": "user", "entity_name": "ann"}], "ops": ops}]
        assert not raw.call("alter_client_quotas", 1, entries=entries, validate_only=False).entries[0].error_code
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
