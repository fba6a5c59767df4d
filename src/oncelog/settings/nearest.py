"""The known name that a mistyped one is most like."""

from collections.abc import Iterable
from difflib import get_close_matches


def nearest(name: str, known: Iterable[str], *, at_least: float = 0.0) -> str | None:
    """`at_least`: how much of it must be alike, from 0 to 1; None where nothing is."""
    found = get_close_matches(name, list(known), n=1, cutoff=at_least)
    return found[0] if found else None
