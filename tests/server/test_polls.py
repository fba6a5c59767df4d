"""Readers that wait: who is called when a log has grown, and how many of them look at a time."""

import asyncio

import pytest

from oncelog.clock import ManualClock
from oncelog.embedded import Server
from oncelog.server.polls import NEVER, Looks, Polls
from oncelog.server.turns import TURN_MS
from tests.raw import RawConnection, batch
from tests.raw.topics import new_topic
from tests.server.test_connection_bounds import fetch_values
from tests.waiting import until


def test_those_are_called_once_that_wait_for_no_more_than_there_is() -> None:
    polls, called = Polls(), []
    sizes = (300, 100, 200, 100)
    waiting = [lambda number=number: called.append(number) for number in range(len(sizes))]
    for poll, size_bytes in zip(waiting, sizes, strict=True):
        polls.add(poll, size_bytes)
    for size_bytes, expected in ((99, []), (100, [1, 3]), (150, [1, 3])):
        polls.wake(size_bytes)
        assert called == expected
    polls.discard(waiting[2])
    polls.wake(250)
    assert called == [1, 3] and len(polls) == 1
    polls.wake(NEVER)
    assert called == [1, 3, 0] and not polls


def test_many_that_are_due_at_once_leave_rounds_of_the_loop_to_others() -> None:
    clock, done = ManualClock(), []
    looks = Looks(lambda: clock.now().monotonic_ms)

    def look() -> None:
        done.append(1)
        clock.advance(1)

    async def rounds() -> list[int]:
        for _ in range(3 * TURN_MS + 1):
            looks.add(look)
        found = []
        while len(done) < 3 * TURN_MS + 1:
            await asyncio.sleep(0)
            found.append(len(done))
        return found

    assert asyncio.run(rounds()) == [TURN_MS, 2 * TURN_MS, 3 * TURN_MS, 3 * TURN_MS + 1]


def test_one_that_fails_keeps_none_of_the_others() -> None:
    done = []
    looks = Looks(lambda: 0)

    def stumble() -> None:
        raise RuntimeError("an accident of this test")

    async def run() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda *_: None)
        looks.add(stumble)
        looks.add(lambda: done.append(1))
        for _ in range(3):
            await asyncio.sleep(0)

    asyncio.run(run())
    assert done == [1]


@pytest.mark.parametrize("at_once", [500, 5])
def test_all_fetches_together_wait_for_so_many_partitions(monkeypatch: pytest.MonkeyPatch, at_once: int) -> None:
    """One more is told at once what there is."""
    monkeypatch.setattr("oncelog.server.polls.MOST_AWAITED", 10)
    monkeypatch.setattr("oncelog.server.fetch.AT_ONCE", at_once)
    with Server() as server, RawConnection(server.bootstrap_servers) as raw:
        looks = server.broker.looks
        topic = new_topic(raw, 8)
        with RawConnection(server.bootstrap_servers) as waiting:
            waiting.ask("fetch", 11, **fetch_values(topic, list(range(8)), max_wait=60_000))
            until(lambda: looks.awaited == 8, "a fetch to wait")
            answer = raw.call("fetch", 11, **fetch_values(topic, list(range(8)), max_wait=60_000))
            assert len(answer.responses[0].partitions) == 8
            raw.produce(topic, 3, batch([b"x"]))
            assert len(waiting.answer().responses[0].partitions) == 8
            assert looks.awaited == 0
            waiting.ask("fetch", 11, **fetch_values(topic, [0, 1], max_wait=60_000))
            until(lambda: looks.awaited == 2, "a fetch to wait")
        until(lambda: looks.awaited == 0, "one that is gone to be forgotten")
