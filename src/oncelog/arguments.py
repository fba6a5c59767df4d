"""The arguments at a public door, checked before anything is done with them.

A value of another kind is a TypeError, one out of bounds a ValueError: one sentence that says what to give. The value
is named by its type alone, since a password may stand in it.
"""

from numbers import Real
from operator import index
from typing import SupportsIndex


def check_kind(what: str, given: object, kinds: type | tuple[type, ...], takes: str) -> None:
    """`takes`: in words, best with an example. True and False are no numbers."""
    all_kinds = kinds if isinstance(kinds, tuple) else (kinds,)
    if not isinstance(given, all_kinds) or (isinstance(given, bool) and bool not in all_kinds):
        raise _another_kind(what, given, takes)


def as_whole(given: object) -> int | None:
    """The whole number that was given, by numpy too; None where it is something else. True and False are no numbers."""
    if type(given) is int:
        return given
    if type(given).__name__ in ("bool", "bool_"):  # numpy's own has an index up to 2.2; a server imports no numpy
        return None
    if not isinstance(given, SupportsIndex):
        return None
    try:
        return index(given)
    except TypeError:  # an array of several numbers
        return None


def as_number(given: object) -> float | None:
    """The number that was given, whole or not, by numpy too; None where it is something else."""
    if type(given) is float:
        return given
    whole = as_whole(given)
    return float(given) if whole is None and isinstance(given, Real) and not isinstance(given, bool) else whole


def whole_number(what: str, given: object, takes: str) -> int:
    """`takes`: in words, best with an example."""
    number = as_whole(given)
    if number is None:
        raise _another_kind(what, given, takes)
    return number


def number_within(what: str, given: object, least: int, most: int | None = None) -> int:
    """A whole one, within these bounds."""
    takes = f"a whole number of at least {least}" if most is None else f"a whole number from {least} to {most:,}"
    number = whole_number(what, given, takes)
    if number < least or (most is not None and number > most):
        raise ValueError(f"{what}: expected {takes}, not {number}")
    return number


def check_text(what: str, given: object, such_as: str) -> None:
    """Refuse a value that is no text, or an empty one."""
    takes = f"a text, such as {such_as}"
    check_kind(what, given, str, takes)
    if not given:
        raise ValueError(f"{what}: expected {takes}, not an empty one")


def _another_kind(what: str, given: object, takes: str) -> TypeError:
    return TypeError(f"{what}: expected {takes}, not {type(given).__name__}")
