"""A coroutine that begins at once: most handlers end without having waited, and need no task then.

Up to its first wait it runs outside of a task, where `asyncio.timeout` and `wait_for` fail from Python 3.12 on.
"""

from collections.abc import Coroutine, Generator
from functools import partial
from types import coroutine
from typing import Any, TypeVar

Result = TypeVar("Result")


class Pending:
    """What has begun and waits; `rest` ends it."""

    __slots__ = ("rest",)

    def __init__(self, rest: Any) -> None:
        self.rest = rest


def begun(work: Coroutine[Any, Any, Result]) -> Result | Pending:
    try:
        awaited = work.send(None)
    except StopIteration as end:
        result: Result = end.value
        return result
    return Pending(_rest(work, awaited))


@coroutine
def _rest(work: Coroutine[Any, Any, Result], awaited: Any) -> Generator[Any, Any, Result]:
    while True:
        try:
            sent = yield awaited
        except BaseException as error:
            go_on = partial(work.throw, error)
        else:
            go_on = partial(work.send, sent)
        try:
            awaited = go_on()
        except StopIteration as end:
            result: Result = end.value
            return result
