"""News from a group to those who wait for them."""

import asyncio
from collections.abc import Callable, Sequence
from typing import TypeVar

from oncelog.log.work_steps import Pauses
from oncelog.server.errors import ErrorCode
from oncelog.server.groups.messages import Answer, JoinAnswer, SyncAnswer
from oncelog.server.groups.store import Settled

TOLD_AT_A_TIME = 100  # members: each answer wakes a connection

T = TypeVar("T", JoinAnswer, SyncAnswer)


def once_settled(answer: T, settled: Settled, refused: Callable[..., T]) -> T | asyncio.Future[T]:
    """Nobody hears of what could still be lost."""
    if isinstance(settled, ErrorCode):
        return answer if settled is ErrorCode.none else refused(error=settled)
    waiter: asyncio.Future[T] = asyncio.get_running_loop().create_future()

    def told(future: asyncio.Future[ErrorCode]) -> None:
        if not waiter.done():
            error = future.result()
            waiter.set_result(answer if error is ErrorCode.none else refused(error=error))

    settled.add_done_callback(told)
    return waiter


def are_many(answers: Sequence[Answer]) -> bool:
    return len(answers) > TOLD_AT_A_TIME


def telling(answers: Sequence[Answer]) -> Pauses:
    """The group has gone on by then; who is told later is as one whose answer takes longer on its way."""
    for start in range(0, len(answers), TOLD_AT_A_TIME):
        if start:
            yield
        for each in answers[start : start + TOLD_AT_A_TIME]:
            _tell(each)


def _tell(effect: Answer) -> None:
    future = effect.waiter
    assert isinstance(future, asyncio.Future)
    if not future.done():
        future.set_result(effect.answer)
