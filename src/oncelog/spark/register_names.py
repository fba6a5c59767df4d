"""Names of sinks and copies: each becomes part of the name of the topic that keeps its register. Pure."""

from typing import Final

_TOPIC_LETTERS: Final = 249  # that Kafka takes
_ALLOWED: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")


def most_letters(prefix: str) -> int:
    return _TOPIC_LETTERS - len(prefix)


def unfit_name(name: str, prefix: str) -> str | None:
    """The reason why the name cannot stand behind this prefix; None where it can."""
    if name and len(name) <= most_letters(prefix) and _ALLOWED.issuperset(name):
        return None
    return (
        f"it is 1 to {most_letters(prefix)} letters, digits, dots, hyphens and underscores, as it becomes part of a "
        "topic's name"
    )
