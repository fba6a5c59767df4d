"""Whether users' functions can be called, seen before a flow runs."""

import inspect
from collections.abc import Callable


def check_function(what: str, function: object, *takes: str) -> None:
    """That it can be called with these."""
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


def check_kind(what: str, value: object, kind: type, remedy: str) -> None:
    """That it is one of ours, and not its name, say."""
    if not isinstance(value, kind):
        shown = repr(value)[:100] if isinstance(value, str | int | float | type) else f"a {type(value).__name__}"
        raise ValueError(f"{what}: {shown} is no {kind.__name__}. {remedy}")


def check_begins(flow: str, name: str, state: Callable[[], object]) -> None:
    """That a state can be made where there is none."""
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
