"""The equality of two records, and the words for their differences. The one definition, for all that compare.

A replay is only safe while it brings the records that stand in its slots already. What came is held against what
stands: key, value, headers, and the timestamp where both sides have one of their own. Whole columns are compared by
`comparing_columns.py`, which finds the first pair that differs and has it described here.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

SHOWN_BYTES: Final = 60
SHOWN_HEADERS: Final = 200

Headers = Sequence[tuple[str | bytes, bytes | str | None]]


class Content(NamedTuple):
    """The parts of a record that are compared."""

    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp_ms: int | None  # None: nobody set it, or the log did, so it is as good as any


def difference(came: Content, stands: Content) -> str | None:
    """The difference between a record that came and the one that stands there, in words; None where there is none."""
    if came.key != stands.key:
        return f"the key is {_shown(came.key)} where {_shown(stands.key)} stands"
    if came.value != stands.value:
        return f"the value is {_shown(came.value)} where {_shown(stands.value)} stands"
    mine, theirs = plain_headers(came.headers), plain_headers(stands.headers)
    if mine != theirs:
        return f"the headers are {mine!r:.{SHOWN_HEADERS}} where {theirs!r:.{SHOWN_HEADERS}} stand"
    if None not in (came.timestamp_ms, stands.timestamp_ms) and came.timestamp_ms != stands.timestamp_ms:
        return f"the timestamp is {came.timestamp_ms} where {stands.timestamp_ms} stands"
    return None


def plain_headers(headers: Headers) -> tuple[tuple[bytes, bytes | None], ...]:
    """Names and values as the bytes that go into the log."""
    return tuple(
        (name.encode() if isinstance(name, str) else bytes(name), value.encode() if isinstance(value, str) else value)
        for name, value in headers
    )


def _shown(data: bytes | None) -> str:
    if data is None or len(data) <= SHOWN_BYTES:
        return repr(data)
    return f"{bytes(data[:SHOWN_BYTES])!r}... ({len(data)} bytes)"
