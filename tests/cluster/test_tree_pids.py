"""Pids where several brokers agree: blocks are disjoint, and each broker knows about how old the others' are."""

import asyncio
from collections.abc import Callable
from functools import partial

import pytest

from oncelog.clock import ManualClock
from oncelog.cluster.tree import ABSENT, Put
from oncelog.cluster.tree_pids import TreePids
from oncelog.producers.leases import GrantHistory
from oncelog.server.ports import ClusterStorageError, PidKind
from tests.cluster.tree_memory import Doubt, MemorySession, MemoryTree

DAY_MS = 86_400_000
HOUR_MS = 3_600_000
LEASED, KAFKA = PidKind.LEASED, PidKind.KAFKA


class Brokers:
    """Two on one tree, and on one clock."""

    def __init__(self) -> None:
        self.tree, self.clock = MemoryTree(), ManualClock()
        self.sessions: list[MemorySession] = []
        self.pids: list[TreePids] = []

    async def start(self) -> tuple[TreePids, TreePids]:
        return await self.another(), await self.another()

    async def another(self, earlier: GrantHistory | None = None) -> TreePids:
        session = self.tree.session(self.clock)
        await session.begin_session()
        self.sessions.append(session)
        self.pids.append(TreePids(session, self.clock, earlier or GrantHistory(DAY_MS)))
        return self.pids[-1]

    def may_be_new(self, pid: int) -> list[bool]:
        return [each.may_be_new(pid, self.clock.now()) for each in self.pids]


async def test_blocks_are_disjoint_however_many_take_at_once() -> None:
    brokers = Brokers()
    one, other = await brokers.start()
    blocks = await asyncio.gather(*(each.reserve_pids(LEASED, 100) for each in (one, other) * 5))
    assert sorted(block.first_pid for block in blocks) == list(range(1, 1001, 100))
    assert {block.end_pid - block.first_pid for block in blocks} == {100}
    kafka = [await each.reserve_pids(KAFKA, 100) for each in (one, other)]
    assert [block.first_pid for block in kafka] == [2**32, 2**32 + 100]


@pytest.mark.parametrize("doubt", list(Doubt), ids=lambda doubt: doubt.value)
async def test_a_block_whose_answer_was_lost_is_nobodys(doubt: Doubt) -> None:
    brokers = Brokers()
    one, other = await brokers.start()
    first = await one.reserve_pids(LEASED, 100)
    brokers.sessions[0].doubt_next(doubt)
    with pytest.raises(ClusterStorageError, match="no pids can be reserved"):
        await one.reserve_pids(LEASED, 100)
    blocks = [first, await other.reserve_pids(LEASED, 100)]
    if doubt is Doubt.LATE:
        brokers.sessions[0].do_late()
    blocks += [await each.reserve_pids(LEASED, 100) for each in (one, other)]
    pids = [pid for block in blocks for pid in range(*block)]
    assert len(set(pids)) == len(pids)


async def test_a_pid_is_as_old_as_the_last_look_in_which_it_was_not_there() -> None:
    brokers = Brokers()
    one, other = await brokers.start()
    await other.read()
    brokers.clock.advance(HOUR_MS)
    await other.read()
    brokers.clock.advance(HOUR_MS)
    pid = (await one.reserve_pids(LEASED, 100)).first_pid
    assert brokers.may_be_new(pid) == [True, False]
    brokers.clock.advance(HOUR_MS)
    await other.read()
    brokers.clock.advance(2 * DAY_MS - 2 * HOUR_MS - 1)
    assert brokers.may_be_new(pid) == [True, True]
    brokers.clock.advance(1)
    assert brokers.may_be_new(pid) == [True, False]


async def test_a_read_that_lags_tells_what_there_is_and_makes_nothing_younger() -> None:
    brokers = Brokers()
    one, other = await brokers.start()
    await other.read()
    brokers.clock.advance(HOUR_MS)
    brokers.sessions[1].freeze_reads()
    pid = (await one.reserve_pids(LEASED, 100)).first_pid
    brokers.clock.advance(HOUR_MS)
    await other.read()  # of what was there before
    brokers.sessions[1].thaw_reads()
    await other.read()
    brokers.clock.advance(2 * DAY_MS - 2 * HOUR_MS - 1)
    assert brokers.may_be_new(pid) == [True, True]
    brokers.clock.advance(1)
    assert brokers.may_be_new(pid) == [True, False]


async def test_a_broker_that_comes_back_goes_on_from_what_it_knew() -> None:
    brokers = Brokers()
    one, other = await brokers.start()
    await other.read()
    pid = (await one.reserve_pids(LEASED, 100)).first_pid
    knew = await brokers.another(other.history)
    knows_nothing = await brokers.another()
    for each in (knew, knows_nothing):
        await each.read()
    assert brokers.may_be_new(pid) == [True, False, True, False]


async def test_who_watches_reads_what_others_take() -> None:
    brokers = Brokers()
    one, other = await brokers.start()
    reading = asyncio.ensure_future(other.keep_reading())

    async def until(is_so: Callable[[], bool]) -> None:
        async with asyncio.timeout(30):
            while not is_so():
                await asyncio.sleep(0)

    def knows(next_pid: int) -> bool:
        return other.history.next_pid == next_pid

    await until(partial(knows, 1))
    for _ in range(3):
        end_pid = (await one.reserve_pids(LEASED, 100)).end_pid
        await until(partial(knows, end_pid))
    brokers.sessions[1].suspend()
    pid = (await one.reserve_pids(LEASED, 100)).first_pid
    brokers.sessions[1].resume()
    await until(lambda: brokers.may_be_new(pid) == [True, True])
    reading.cancel()


async def test_what_is_no_number_grants_nothing() -> None:
    brokers = Brokers()
    one, _ = await brokers.start()
    await brokers.sessions[0].change(Put("/pids/leased", b"many", ABSENT))
    with pytest.raises(ClusterStorageError, match="/pids/leased holds b'many' and no number"):
        await one.reserve_pids(LEASED, 100)
