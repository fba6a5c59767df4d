"""Calls that must run in the application's thread, when it polls."""

from collections import deque
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Final


@dataclass(frozen=True, slots=True)
class Call:
    """The application's own callback, and what has to follow on the loop, whatever becomes of the callback."""

    function: Callable[[], Any] | None
    then: Callable[[], Coroutine[Any, Any, None]] | None = None


# In the place of the calls of a consumer that is not started: `poll` then goes the way on which that is noticed.
NOT_OPEN: Final = deque([Call(None)])
