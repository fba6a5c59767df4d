"""The kinds of values that a setting can have, and how each is written: a function reads it or raises ValueError."""

import re
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, Final


class Kind(Enum):
    TEXT = "a text"
    BOOLEAN = "true or false"
    INTEGER = "a whole number"
    NUMBER = "a number"
    DURATION = "a time such as 500ms, 30s, 15m or 1h"
    LIST = "a list, separated by commas"
    CHOICE = "one of its words, in either case"
    FLAGS = "words, in either case, separated by commas"
    CALLABLE = "a callable"


Syntax = Mapping[Kind, Callable[[str], Any]]

_MS: Final = {"us": 0.001, "ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
_DURATION: Final = re.compile(r"(\d+)([a-z]*)", re.ASCII)
_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,20}")


def boolean(text: str) -> bool:
    lowered = text.lower()
    if lowered not in ("true", "false"):
        raise ValueError(text)
    return lowered == "true"


def integer(text: str) -> int:
    if not _INTEGER.fullmatch(text):
        raise ValueError(text)
    return int(text)


def number(text: str) -> float:
    value = float(text)
    if value != value or value in (float("inf"), float("-inf")):
        raise ValueError(text)
    return value


def duration_ms(text: str) -> int:
    """A duration as Spark reads times: a number, and a unit; milliseconds where there is none."""
    found = _DURATION.fullmatch(text.lower())
    unit_ms = _MS.get(found[2] or "ms") if found else None
    if found is None or unit_ms is None:
        raise ValueError(text)
    return int(int(found[1]) * unit_ms)


def texts(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def flags(text: str) -> tuple[str, ...]:
    """Words with commas between; a sign may stand before each."""
    return tuple(word for part in texts(text) if (word := part.lstrip("+-")))


PLAIN: Final[Syntax] = {
    Kind.BOOLEAN: boolean,
    Kind.INTEGER: integer,
    Kind.NUMBER: number,
    Kind.DURATION: duration_ms,
    Kind.LIST: texts,
    Kind.FLAGS: flags,
}
