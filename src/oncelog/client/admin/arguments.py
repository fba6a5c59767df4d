"""The arguments of an administrator's calls, checked before anything is sent."""

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import TypeVar

from oncelog.arguments import as_number, check_kind, whole_number
from oncelog.client.errors import invalid_argument
from oncelog.client.types import NewPartitions, NewTopic

T = TypeVar("T")


def text(what: str, given: object) -> str:
    if not isinstance(given, str):
        raise TypeError(f"{what} is a str, not {type(given).__name__}")
    if not given:
        raise invalid_argument(f"{what} has an empty name")
    return given


def texts(what: str, given: object) -> list[str]:
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise TypeError(f"{what}: a list of str is expected, not {type(given).__name__}")
    return _distinct(what, [text(f"an entry of {what}", each) for each in given], lambda each: each)


def all_of(kind: type[T], what: str, given: object, key: Callable[[T], Hashable]) -> list[T]:
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise TypeError(f"{what}: a list of {kind.__name__} is expected, not {type(given).__name__}")
    entries: list[T] = []
    for each in given:
        if not isinstance(each, kind):
            raise TypeError(f"{what}: a list of {kind.__name__} is expected, not of {type(each).__name__}")
        entries.append(each)
    return _distinct(what, entries, key)


def _distinct(what: str, entries: list[T], key: Callable[[T], Hashable]) -> list[T]:
    if not entries:
        raise invalid_argument(f"{what} is empty: nothing is asked for")
    if len({key(each) for each in entries}) < len(entries):
        raise invalid_argument(f"{what} names something twice")
    return entries


def seconds(what: str, given: object) -> float:
    number = as_number(given)
    if number is None:
        raise TypeError(f"{what} is a number of seconds, not {type(given).__name__}")
    return number


def check_new_topic(topic: NewTopic) -> None:
    """The kinds of its fields are right; the brokers judge their values."""
    text("the topic of a NewTopic", topic.topic)
    for what in ("num_partitions", "replication_factor"):
        number = whole_number(f"NewTopic {topic.topic}: {what}", getattr(topic, what), "a whole number, such as 3")
        setattr(topic, what, number)  # where it was numpy's
    check_kind(f"NewTopic {topic.topic}: config", topic.config, Mapping, 'a dict, such as {"retention.ms": "3600000"}')


def check_new_partitions(wanted: NewPartitions) -> None:
    text("the topic of NewPartitions", wanted.topic)
    what = f"NewPartitions {wanted.topic}: new_total_count"
    wanted.new_total_count = whole_number(what, wanted.new_total_count, "a whole number, such as 6")
