"""The bounds of reading, as the options give them: a word, offsets or times. Only brokers know them as
offsets."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from oncelog.client.door import EARLIEST, LATEST
from oncelog.settings import INT_MAX, LONG_MAX
from oncelog.slots import AnyPlace

T = TypeVar("T")

_PARTITIONS: Final = '{"topicA":[0,1],"topicB":[0,1]}'
_OFFSETS: Final = '{"topicA":{"0":23,"1":-1},"topicB":{"0":-2}}'
_TIMES: Final = '{"topicA": {"0": 123456789, "1": 123456789}, "topicB": {"0": 123456789, "1": 123456789}}'


class BadBound(ValueError):
    """The text is not what the option takes; the message is Spark's own."""


@dataclass(frozen=True, slots=True)
class Word:
    """`LATEST` or `EARLIEST`, for all partitions."""

    offset: int


@dataclass(frozen=True, slots=True)
class Offsets:
    """An offset for each partition; `LATEST` and `EARLIEST` are allowed among them."""

    of: Mapping[AnyPlace, int]


@dataclass(frozen=True, slots=True)
class Time:
    """Milliseconds since 1970, for all partitions."""

    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class Times:
    of: Mapping[AnyPlace, int]


Bound = Word | Offsets | Time | Times

FROM_EARLIEST: Final = Word(EARLIEST)
FROM_LATEST: Final = Word(LATEST)


def read_offsets(text: str) -> Bound:
    """The value of `startingOffsets` or `endingOffsets`."""
    word = text.strip().lower()
    if word == "latest":
        return FROM_LATEST
    if word == "earliest":
        return FROM_EARLIEST
    return Offsets(_by_partition(text, _OFFSETS, EARLIEST))


def read_time(text: str) -> Time:
    try:
        return Time(_whole(int(text.strip()), 0))
    except ValueError:
        raise BadBound(f"Expected a single long value, got {text.strip()}") from None


def read_times(text: str) -> Times:
    return Times(_by_partition(text, _TIMES, 0))


def read_partitions(text: str) -> tuple[AnyPlace, ...]:
    """The value of `assign`."""
    if not text.strip().startswith("{"):
        raise BadBound(f"No topicpartitions to assign as specified value for option 'assign' is '{text}'")

    def of(indexes: Any) -> list[int]:
        if not isinstance(indexes, list):
            raise TypeError
        return [_index(each) for each in indexes]

    topics = _topics(text, _PARTITIONS, of)
    return tuple(sorted({(topic, index) for topic, indexes in topics.items() for index in indexes}))


def _by_partition(text: str, example: str, low: int) -> dict[AnyPlace, int]:
    def of(numbers: Any) -> dict[int, int]:
        if not isinstance(numbers, dict):
            raise TypeError
        return {_index(int(index)): _whole(number, low) for index, number in numbers.items()}

    topics = _topics(text, example, of)
    return {(topic, index): number for topic, numbers in topics.items() for index, number in numbers.items()}


def _topics(text: str, example: str, of: Callable[[Any], T]) -> dict[str, T]:
    try:
        found = json.loads(text)
        if not isinstance(found, dict):
            raise TypeError
        return {topic: of(each) for topic, each in found.items()}
    except (ValueError, TypeError, RecursionError):
        raise BadBound(f"Expected e.g. {example}, got {text}") from None


def _index(number: Any) -> int:
    if not 0 <= _whole(number, 0) <= INT_MAX:
        raise ValueError
    return int(number)


def _whole(number: Any, low: int) -> int:
    if isinstance(number, bool) or not isinstance(number, int) or not low <= number <= LONG_MAX:
        raise ValueError
    return number
