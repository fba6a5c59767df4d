"""Long work in steps, so that others may be served in between.

What a step yields waits for the disk or takes long: any thread runs it, and then the work goes on. What it raises is
raised where it was yielded. `None` is a pause.
"""

from collections.abc import Callable, Generator
from typing import TypeVar

T = TypeVar("T")
Wait = Callable[[], None]
Steps = Generator[Wait | None, None, T]
Pauses = Generator[None, None, None]  # and nothing waits for the disk


def at_once(steps: Steps[T]) -> T:
    """The result of the steps, for callers that need not leave turns to others."""
    failure: Exception | None = None
    while True:
        try:
            wait = next(steps) if failure is None else steps.throw(failure)
        except StopIteration as end:
            result: T = end.value
            return result
        failure = None
        if wait is not None:
            try:
                wait()
            except Exception as error:
                failure = error
