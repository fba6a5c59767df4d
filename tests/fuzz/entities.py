"""Random instances of any message of kio's: values that a client could mean, and values that none would."""

import uuid
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime, timedelta
from random import Random
from types import UnionType
from typing import Any, Union, get_args, get_origin

from tests.raw import batch
from tests.raw.entities import without_none

# Names that exist on the server under test, and some that do not. The witness's topic is not among them.
TOPICS = ("fuzzed", "fuzzed-compacted", "absent", "__consumer_offsets", "", "no/name", "x" * 300)
GROUPS = ("group", "other-group", "", "g" * 1000)
TEXTS = ("", "range", "consumer", "retention.ms", "cleanup.policy", "compact", "1", "-1", "é", "\x00", "x" * 5000)
NUMBERS = (0, 1, 2, -1, -2, 3, 5, 100, 1000)
SMALL_ARRAYS = (0, 1, 1, 1, 2, 3)

_RANGES = {"i8": 8, "i16": 16, "i32": 32, "i64": 64, "u8": 8, "u16": 16, "u32": 32, "u64": 64}


class Instances:
    def __init__(self, random: Random) -> None:
        self._random = random

    def of(self, entity_type: Any) -> Any:
        values = {field.name: self._value(field.name, field.type) for field in fields(entity_type)}
        return entity_type(**values)

    def _value(self, name: str, hint: Any) -> Any:
        if get_origin(hint) in (UnionType, Union):
            if self._random.random() < 0.15:
                return None
            hint = without_none(hint)
        if get_origin(hint) is tuple:
            inner = get_args(hint)[0]
            return tuple(self._value(name, inner) for _ in range(self.count()))
        if is_dataclass(hint):
            return self.of(hint)
        return self._plain(name, hint)

    def count(self) -> int:
        """Of an array's elements."""
        return self._random.choice(SMALL_ARRAYS)

    def _plain(self, name: str, hint: type) -> Any:
        for kind, make in self._makers().items():
            if issubclass(hint, kind):
                return make(name, hint)
        raise TypeError(f"no random value is known for {hint}")

    def _makers(self) -> dict[type, Callable[[str, type], Any]]:
        random = self._random
        return {
            bool: lambda name, hint: random.random() < 0.5,
            timedelta: lambda name, hint: timedelta(milliseconds=random.choice((0, 1, 10, 500, 10_000))),
            datetime: lambda name, hint: datetime.fromtimestamp(random.choice((0, 1_700_000_000)), UTC),
            uuid.UUID: lambda name, hint: uuid.UUID(int=random.getrandbits(128)),
            int: self._number,
            float: lambda name, hint: random.choice((0.0, 1.5, -1.0)),
            str: lambda name, hint: self.text(name, hint),
            bytes: lambda name, hint: self.blob(name),
        }

    def _number(self, name: str, hint: type) -> int:
        bits = next((_RANGES[base.__name__] for base in hint.__mro__ if base.__name__ in _RANGES), 32)
        signed = not any(base.__name__.startswith("u") and base.__name__ in _RANGES for base in hint.__mro__)
        low: int = -(2 ** (bits - 1)) if signed else 0
        high: int = 2 ** (bits - 1) - 1 if signed else 2**bits - 1
        if "partitions" in name and bits == 32:
            return self._random.choice((-1, 0, 1, 2, 2**31 - 1))  # a topic for every number would only fill the disk
        if self._random.random() < 0.8:
            return max(low, min(high, self._random.choice(NUMBERS)))
        return self._random.choice((low, high, self._random.randint(low, high)))

    def text(self, name: str, hint: type) -> str:
        if "topic" in name or hint.__name__ == "TopicName":
            return self._random.choice(TOPICS)
        if "group" in name:
            return self._random.choice(GROUPS)
        return self._random.choice(TEXTS + TOPICS[:2] + GROUPS[:1])

    def blob(self, name: str) -> bytes:
        if name == "records" and self._random.random() < 0.8:
            return self._records()
        return self._random.randbytes(self._random.choice((0, 1, 10, 300)))

    def _records(self) -> bytes:
        random = self._random
        made = bytearray(
            batch(
                [random.randbytes(random.choice((0, 10, 1000))) for _ in range(random.choice((1, 1, 3, 50)))],
                pid=random.choice((-1, -1, 0, 7, 2**32 + 5)),
                epoch=random.choice((-1, 0, 3)),
                sequence=random.choice((-1, 0, 1, 2**31 - 1)),
                codec=random.randrange(5),
            )
        )
        if random.random() < 0.3:
            made[random.randrange(len(made))] ^= 1 << random.randrange(8)
        return bytes(made)
