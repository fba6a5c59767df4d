"""Patterns that settings or requests bring, over names that clients choose: matched in time that grows with the name.

By RE2, after which Kafka's own engine for patterns in requests (RE2/J) is made. It has no look-around, no references
back and no possessive repetitions, and so nothing that can take for ever. A pattern costs memory and time for each
letter of a name, so it has a bound of its own.
"""

from collections.abc import Callable
from functools import cache
from typing import Any, Final, Protocol

MOST_CHARACTERS: Final = 1024
SETTINGS_BYTES: Final = 128 * 1024  # of memory for what one is made into: some 5 ms for the worst with 1,024 characters
REQUESTS_BYTES: Final = 32 * 1024  # names may have 32,767 bytes there: some 25 ms


class BadPattern(ValueError):
    """It cannot be used; the text says why."""


class Found(Protocol):
    @property
    def re(self) -> "Pattern": ...

    def __getitem__(self, group: int) -> str | None: ...


class Pattern(Protocol):
    @property
    def groups(self) -> int: ...

    def fullmatch(self, text: str) -> Found | None: ...

    def sub(self, repl: Callable[[Found], str], text: str) -> str: ...


def compiled(text: str, most_bytes: int) -> Pattern:
    """Raises BadPattern."""
    import re2

    if len(text) > MOST_CHARACTERS:
        raise BadPattern(f"a pattern of more than {MOST_CHARACTERS:,} characters")
    try:
        found: Pattern = re2.compile(text, _options(most_bytes))
    except UnicodeError:
        raise BadPattern("it is no Unicode text") from None
    except re2.error as error:
        raise BadPattern(_why(error)) from None
    return found


@cache
def _options(most_bytes: int) -> Any:
    import re2

    options = re2.Options()
    options.max_mem = most_bytes
    options.log_errors = False
    return options


def _why(error: Exception) -> str:
    why = error.args[0] if error.args else ""
    return why.decode(errors="replace") if isinstance(why, bytes) else str(why)
