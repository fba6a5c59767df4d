"""Functions that do not repeat: services, chance. What follows from them waits in the commit (`held.py`)."""

from collections.abc import Callable
from functools import partial
from typing import Any

from oncelog.flow.scope import Context, Make, Push, Scope


def calling(name: str, function: Callable[[Any, Context[Any]], Any]) -> Make:
    """Call the function. Where that fails, or what follows from its answer, the record is dead from here on: what
    happened before the call, or beside it, may have been sent."""

    def make(then: Push, scope: Scope) -> Push:
        at: Context[Any] = Context(scope)

        def push(key: Any, value: Any) -> None:
            within = scope.within
            scope.within = f"{within}/{name}.{scope.number(name)}"
            try:
                scope.attempt(partial(run, key, value))
            finally:
                scope.within = within

        def run(key: Any, value: Any) -> None:
            at.key, at.time_ms = key, scope.time_ms
            then(key, function(value, at))

        return push

    return make
