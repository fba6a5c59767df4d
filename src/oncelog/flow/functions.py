"""Whether users' functions can be called, seen before a flow runs."""

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any


def check_function(what: str, function: object, *takes: str) -> None:
    """The function can be called with these arguments; raises ValueError otherwise."""
    if not callable(function):
        raise ValueError(f"{what}: {function!r} is no function. Give one that takes ({', '.join(takes)})")
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return  # of what is built in it is not always known
    try:
        signature.bind(*takes)
    except TypeError as error:
        name = getattr(function, "__name__", type(function).__name__)
        raise ValueError(
            f"{what}: {name}{signature} cannot be called with ({', '.join(takes)}): {error}. Have it take these"
        ) from None


def check_begins(flow: str, name: str, state: Callable[[], object]) -> None:
    """A state can be made for a new key; raises ValueError otherwise."""
    if not callable(state):
        raise ValueError(
            f"flow {flow}: the state of {name} is made where there is none, by its type, and {state!r:.100} is no "
            f"type. Give {type(state).__name__}, or a dataclass whose fields have defaults"
        )
    try:
        state()
    except TypeError as unfit:
        raise ValueError(
            f"flow {flow}: the state of {name} begins as {getattr(state, '__name__', state)}(), which raises {unfit}. "
            "Give each of its fields a default"
        ) from None


def check_outputs(what: str, returned: object) -> None:
    """The outputs are a list or the like: a text would give its letters, and a mapping its keys."""
    if isinstance(returned, str | bytes | Mapping) or not isinstance(returned, Iterable):
        raise TypeError(f"{what} returned {returned!r:.200} as its outputs, and not a list of them, such as `[output]`")


def check_type(what: str, kind: Any) -> None:
    """The type works in `isinstance`: a class, or several of them."""
    try:
        isinstance(None, kind)
    except TypeError:
        raise TypeError(f"{what}: expected a type, such as Click, not {type(kind).__name__}") from None
