"""What has to happen in the application's thread, when it polls."""

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Call:
    """The application's own callback, and what has to follow on the loop, whatever becomes of the callback."""

    function: Callable[[], Any] | None
    then: Callable[[], Coroutine[Any, Any, None]] | None = None
