"""A coroutine that begins at once: most handlers end without having waited, and need no task then.

Up to its first wait it runs outside of a task, where `asyncio.timeout` and `wait_for` fail from Python 3.12 on.
"""

from collections.abc import Coroutine, Generator
from typing import Any, TypeVar

Result = TypeVar("Result")


class Pending:
    """Work that has begun and waits; `rest` ends it."""

    __slots__ = ("rest",)

    def __init__(self, rest: Any) -> None:
        self.rest = rest


def begun(work: Coroutine[Any, Any, Result]) -> Result | Pending:
    try:
        awaited = work.send(None)
    except StopIteration as end:
        result: Result = end.value
        return result
    return Pending(_Rest(work, awaited))


class _Rest(Coroutine[Any, Any, Result]):
    """The rest of the work for a task, as if the task had begun it. No generator, because a task that is cancelled
    before its first step would end it without the work having heard of it."""

    __slots__ = ("_awaited", "_work")

    def __init__(self, work: Coroutine[Any, Any, Result], awaited: Any) -> None:
        self._work = work
        self._awaited = awaited  # until the task's first step

    def send(self, value: Any) -> Any:
        awaited, self._awaited = self._awaited, None
        return self._work.send(value) if awaited is None else awaited

    def throw(self, *error: Any) -> Any:
        awaited, self._awaited = self._awaited, None
        is_cancelled = awaited is not None and awaited.cancel()
        try:
            return awaited if is_cancelled else self._work.throw(*error)
        finally:
            del error  # what comes out of the work refers to this frame: all that the work held would be left to gc

    def close(self) -> None:
        self._work.close()

    def __await__(self) -> Generator[Any, Any, Result]:
        raise TypeError("what has begun goes on in a task of its own")
