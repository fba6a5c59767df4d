"""What one option is, and how its text becomes a value."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from oncelog.spark.source.bounds import INT64_MAX

READ: Final = "read"
STREAM: Final = "readStream"
WRITE: Final = "write"
SINK: Final = "writeStream"

_MS: Final = {"us": 0.001, "ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
_DURATION: Final = re.compile(r"(-?\d+)([a-z]*)")


class BadOption(ValueError):
    """An option that cannot be meant; the message is for the user."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """`attribute` is where its value goes in `SourceOptions` or `SinkOptions`."""

    name: str
    attribute: str
    takes: str  # in words, for the page
    parse: Callable[[str, str], Any]  # of its name and the text
    used_by: tuple[str, ...]
    default: str
    doc: str
    is_refused_by: tuple[tuple[str, str], ...] = ()  # who refuses it, and in which words


def text(name: str, value: str) -> str:
    if not value.strip():
        raise BadOption(f"Option '{name}' must not be empty")
    return value.strip()


def truth(name: str, value: str) -> bool:
    word = value.strip().lower()
    if word not in ("true", "false"):
        raise BadOption(f"Option '{name}' takes true or false, not '{value}'")
    return word == "true"


def whole_number(name: str, value: str) -> int:
    try:
        number = int(value.strip())
    except ValueError:
        raise BadOption(f"Option '{name}' takes a whole number, not '{value}'") from None
    if not 0 <= number <= INT64_MAX:
        raise BadOption(f"Option '{name}' takes a whole number from 0 on, not {number}")
    return number


def positive(name: str, value: str) -> int:
    number = whole_number(name, value)
    if number == 0:
        raise BadOption(f"{name} must be positive")
    return number


def duration_ms(name: str, value: str) -> int:
    """As Spark reads times: a number, and a unit; milliseconds where there is none."""
    found = _DURATION.fullmatch(value.strip().lower())
    unit_ms = _MS.get((found.group(2) or "ms") if found else "")
    if found is None or unit_ms is None or int(found.group(1)) < 0:
        raise BadOption(f"Option '{name}' takes a time such as 500ms, 30s, 15m or 1h, not '{value}'")
    return int(int(found.group(1)) * unit_ms)


def one_of(*words: str) -> Callable[[str, str], str]:
    def parse(name: str, value: str) -> str:
        if value.strip().lower() not in words:
            raise BadOption(f"Option '{name}' takes {' or '.join(words)}, not '{value}'")
        return value.strip().lower()

    return parse
