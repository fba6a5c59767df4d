"""Commits, questions and moves in any order, over a log that loses what was not safe: no offset ever goes back."""

import asyncio
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from oncelog.server import moves as server_moves
from oncelog.server.errors import ErrorCode
from oncelog.server.groups import moves
from oncelog.server.topics import Partition
from oncelog.server.turns import Turns
from tests.server.groups.two_brokers import LOADING, Broker, Held, all_have, ask, replicated, two_brokers

GROUPS = "ghijklmn"
REFUSALS = (LOADING, ErrorCode.not_coordinator)


class OthersFirst(Turns):
    def is_over(self) -> bool:
        return True

    async def next(self) -> None:
        await asyncio.sleep(0)


class History:
    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.held = Held()
        self.house = house = two_brokers()[0]
        self.partition: Partition = replicated(house)
        all_have(self.partition)
        self.brokers = [Broker(house, in_turns=self.held) for _ in range(2)]
        self.known = dict.fromkeys(GROUPS, -1) | {"g": 5}  # what somebody was told
        self.offset = 5
        self.answers = 0
        self.late: list[tuple[Broker, int]] = []
        self.tasks: set[asyncio.Task[None]] = set()
        self.elect()

    def begin(self, work: Any) -> None:
        self.tasks.add(asyncio.ensure_future(work))

    async def commit(self, group_id: str, broker: Broker, offset: int) -> None:
        settled = broker.commit(offset, group_id)
        error = settled if isinstance(settled, ErrorCode) else await settled
        assert error is ErrorCode.none or error in REFUSALS
        if error is ErrorCode.none:
            self.know(group_id, offset)

    async def fetch(self, group_id: str, broker: Broker) -> None:
        before = self.known[group_id]
        topics = [SimpleNamespace(name="t", partition_indexes=[0])]
        answer = await ask(broker, 9, 7, OthersFirst(lambda: 0), group_id=group_id, topics=topics)
        if answer.error_code is ErrorCode.none:
            told = answer.topics[0].partitions[0].committed_offset
            assert told >= before, f"{group_id} was at {before}, and is told {told}"
            self.know(group_id, told)
        else:
            assert answer.error_code in REFUSALS

    def know(self, group_id: str, offset: int) -> None:
        self.answers += 1
        self.known[group_id] = max(self.known[group_id], offset)

    def elect(self) -> None:
        """What is above the high watermark may be lost, and some hear late that they lead no more, or never do."""
        log = self.partition.log
        epoch = log.leader_epoch + 2
        if self.random.random() < 0.7:
            log.follow_epoch(epoch - 1)
            log.truncate_to(self.random.randint(log.high_watermark, log.next_offset))
        log.begin_epoch(epoch)
        leader = self.random.choice(self.brokers)
        self.late += [(each, epoch) for each in self.brokers if each is not leader]
        leader.groups.elected(self.partition, epoch)
        self.partition.wake()

    def hear(self) -> None:
        if self.late:
            broker, epoch = self.late.pop(self.random.randrange(len(self.late)))
            broker.groups.resigned(self.partition, epoch)

    def move_high_watermark(self) -> None:
        log = self.partition.log
        log.advance_high_watermark(self.random.randint(log.high_watermark, log.next_offset))
        self.partition.wake()

    async def step(self) -> None:
        broker, group_id = self.random.choice(self.brokers), self.random.choice(GROUPS)
        chosen = self.random.random()
        if chosen < 0.3:
            self.offset += 1
            self.begin(self.commit(group_id, broker, self.offset))
        elif chosen < 0.55:
            self.begin(self.fetch(group_id, broker))
        elif chosen < 0.6:
            self.elect()
        elif chosen < 0.65:
            self.hear()
        elif chosen < 0.75:
            self.move_high_watermark()
        elif chosen < 0.9:
            self.held.step()
        else:
            await asyncio.sleep(0)

    async def run(self, steps: int) -> None:
        for _ in range(steps):
            await self.step()
        while self.late:
            self.hear()
        self.elect()
        while self.late:
            self.hear()
        await self.quiet()
        leaders = [each for each in self.brokers if each.offset() not in REFUSALS]
        assert len(leaders) == 1
        for group_id in GROUPS:
            self.begin(self.fetch(group_id, leaders[0]))
        await self.quiet()
        fresh = Broker(self.house)  # which has seen nothing but the log
        assert [fresh.offset(each) for each in GROUPS] == [leaders[0].offset(each) for each in GROUPS]
        assert fresh.groups.groups.keys() == leaders[0].groups.groups.keys()

    async def quiet(self) -> None:
        """Each request is answered."""
        for _ in range(100):
            self.held.finish()
            all_have(self.partition)
            await asyncio.sleep(0)
        assert all(task.done() for task in self.tasks)
        await asyncio.gather(*self.tasks)


@pytest.mark.parametrize("first_seed", range(0, 60, 20))
async def test_no_offset_that_was_told_goes_back(first_seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_moves, "READ_AT_A_TIME", 3)
    monkeypatch.setattr(moves, "GROUPS_AT_A_TIME", 1)
    answers = 0
    for seed in range(first_seed, first_seed + 20):
        history = History(seed)
        try:
            await history.run(300)
        except Exception as failure:
            failure.add_note(f"seed {seed}")
            raise
        answers += history.answers
    assert answers > 200
