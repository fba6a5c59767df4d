"""What connections may hold: buffers that are used again, and answers that are made while there is room."""

import asyncio

import pytest

from oncelog.server import memory
from oncelog.server.memory import UNSENT_BYTES, LargeBuffers, Memory

SIZE_BYTES = 900_000


def test_the_largest_buffer_is_used_again_so_that_the_next_frame_need_not_grow() -> None:
    buffers = LargeBuffers()
    grown, small = bytearray(SIZE_BYTES), bytearray(100_000)
    buffers.give_back(grown)
    buffers.give_back(small)
    assert buffers.take(100_000) is grown
    assert buffers.take(100_000) is small


def test_small_buffers_give_way_to_large_ones_when_enough_are_kept() -> None:
    buffers = LargeBuffers()
    grown = bytearray(SIZE_BYTES)
    for _ in range(LargeBuffers.KEPT):
        buffers.give_back(bytearray(100_000))
    buffers.give_back(grown)
    assert buffers.kept(SIZE_BYTES) is grown
    assert buffers.kept(SIZE_BYTES) is None


def test_no_more_than_some_are_kept_and_none_that_is_very_large() -> None:
    buffers = LargeBuffers()
    for _ in range(2 * LargeBuffers.KEPT):
        buffers.give_back(bytearray(LargeBuffers.KEPT_BYTES + 1))
        buffers.give_back(bytearray(100_000))
    kept = [buffers.kept(1) for _ in range(2 * LargeBuffers.KEPT)]
    assert sum(1 for each in kept if each is not None) == LargeBuffers.KEPT
    assert max(len(each) for each in kept if each is not None) == 100_000


async def test_answers_that_are_being_made_wait_for_room_and_one_may_always_get_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(memory, "MADE_BYTES", 100)
    answers = Memory(unserved_bytes=1).answers
    first, second = object(), object()
    await answers.hold(60, first)
    await answers.hold(60, second)
    await answers.hold(500, first)
    waiting = asyncio.ensure_future(answers.hold(60, second))
    await asyncio.sleep(0)
    assert not waiting.done(), "only one may go beyond it"
    await answers.hold(500, first)
    answers.let_go(1060, first)
    await waiting
    answers.let_go(120, second)
    assert answers.held_bytes == 0


async def test_no_answer_grows_while_too_much_waits_to_be_taken() -> None:
    everything = Memory(unserved_bytes=1)
    wanted: list[None] = []
    everything.watch(lambda: wanted.append(None))
    everything.unsent.hold(UNSENT_BYTES)
    waiting = asyncio.ensure_future(everything.answers.hold(60, object()))
    await asyncio.sleep(0)
    assert wanted and not waiting.done()
    everything.unsent.give_back(1)
    await waiting


async def test_who_hangs_up_waits_no_longer() -> None:
    everything = Memory(unserved_bytes=1)
    everything.unsent.hold(UNSENT_BYTES)
    waiting = asyncio.ensure_future(everything.answers.hold(60, object()))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    assert everything.unsent.waiting == 0
