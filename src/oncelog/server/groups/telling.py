"""Answers of a group, brought to those that wait for them, some at a time."""

import asyncio
from collections.abc import Sequence

from oncelog.log.steps import Pauses
from oncelog.server.groups.messages import Answer

TOLD_AT_A_TIME = 100  # members: each answer wakes a connection


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
