"""A look at a request before kio reads it: no array may claim more elements than there are bytes left for.

kio's native reader reserves memory for as many elements as an array claims, and a claim of two thousand million ends
the process. It also refuses tagged fields that it does not know, which are for newer servers and have to be passed
over: they are taken out here.

A request type is compiled once into steps; neighbouring fields of fixed size are one step.
"""

from dataclasses import fields, is_dataclass
from struct import Struct
from typing import Any, NamedTuple, get_args, get_origin

from oncelog.wire.frames import MOST_TAGGED_FIELDS, MalformedFrame, read_uvarint, write_uvarint
from oncelog.wire.nulls import without_none

# In one request, all arrays together. To look them up takes a quarter of a second, in which no other client is served.
MOST_ELEMENTS = 20_000

# Kafka's bound of a string. Its older form cannot say more; the compact one can, and is refused by Kafka, too.
MOST_STRING_BYTES = 32_767

_FIXED_BYTES = {
    "bool": 1,
    "int8": 1,
    "int16": 2,
    "uint16": 2,
    "error_code": 2,
    "int32": 4,
    "timedelta_i32": 4,
    "int64": 8,
    "timedelta_i64": 8,
    "datetime_i64": 8,
    "float64": 8,
    "uuid": 16,
}
_int16 = Struct(">h")
_int32 = Struct(">i")

FIXED, SHORT_SIZED, LONG_SIZED, COMPACT_SIZED, COMPACT_STRING, ARRAY, TAGS, OPTIONAL = range(8)


class Step(NamedTuple):
    kind: int
    size_bytes: int = 0  # FIXED
    is_compact: bool = False  # ARRAY
    inner: tuple["Step", ...] = ()  # ARRAY: of each element; OPTIONAL: of the struct, where it is there
    known: frozenset[int] = frozenset()  # TAGS


class Cut(NamedTuple):
    """Tagged fields to be replaced by those of them that are known."""

    start: int
    end: int
    kept: bytes


def steps_of(entity_type: Any) -> tuple[Step, ...]:
    steps: list[Step] = []
    tags: set[int] = set()
    for field in fields(entity_type):
        if "tag" in field.metadata:
            tags.add(field.metadata["tag"])
            continue
        for step in _steps_of_field(field, entity_type.__flexible__):
            if step.kind == FIXED and steps and steps[-1].kind == FIXED:
                steps[-1] = Step(FIXED, steps[-1].size_bytes + step.size_bytes)
            else:
                steps.append(step)
    if entity_type.__flexible__:
        steps.append(Step(TAGS, known=frozenset(tags)))
    return tuple(steps)


def _steps_of_field(field: Any, is_flexible: bool) -> tuple[Step, ...]:
    hint, may_be_null = without_none(field.type)
    if is_dataclass(hint):
        return (Step(OPTIONAL, inner=steps_of(hint)),) if may_be_null else steps_of(hint)
    if get_origin(hint) is not tuple:
        return (_plain(field.metadata["kafka_type"], is_flexible),)
    element, _ = without_none(get_args(hint)[0])
    inner = steps_of(element) if is_dataclass(element) else (_plain(field.metadata["kafka_type"], is_flexible),)
    return (Step(ARRAY, is_compact=is_flexible, inner=inner),)


def _plain(kafka_type: str, is_flexible: bool) -> Step:
    if kafka_type in _FIXED_BYTES:
        return Step(FIXED, _FIXED_BYTES[kafka_type])
    is_string = kafka_type == "string"
    if is_flexible:
        return Step(COMPACT_STRING if is_string else COMPACT_SIZED)
    return Step(SHORT_SIZED if is_string else LONG_SIZED)


class Bounds:
    def __init__(self, entity_type: Any, most_elements: int = MOST_ELEMENTS) -> None:
        self._steps = steps_of(entity_type)
        self._most_elements = most_elements

    def checked(self, data: bytes) -> bytes:
        """The request, without unknown tagged fields. Raises `MalformedFrame` for what cannot be read."""
        walk = _Walk(data, self._most_elements)
        try:
            walk.over(self._steps, 0)
        except (IndexError, ValueError) as error:
            raise MalformedFrame(f"it ends within a field: {error}") from None
        if not walk.cuts:
            return data
        parts: list[bytes] = []
        at = 0
        for cut in walk.cuts:
            parts += (data[at : cut.start], cut.kept)
            at = cut.end
        return b"".join((*parts, data[at:]))


class _Walk:
    def __init__(self, data: bytes, most_elements: int) -> None:
        self._data = data
        self._most_elements = most_elements
        self._end = len(data)
        self._elements = 0
        self._tags = 0
        self.cuts: list[Cut] = []

    def over(self, steps: tuple[Step, ...], at: int) -> int:
        data, end = self._data, self._end
        for step in steps:
            kind = step.kind
            if kind == FIXED:
                at += step.size_bytes
            elif kind == ARRAY:
                at = self._over_array(step, at)
            elif kind == TAGS:
                at = at + 1 if data[at] == 0 else self._over_tags(step, at)
            elif kind == OPTIONAL:
                is_there = data[at] < 0x80  # an int8 that is negative where the struct is left out
                at = self.over(step.inner, at + 1) if is_there else at + 1
            elif kind in (COMPACT_STRING, COMPACT_SIZED):
                size_bytes, at = read_uvarint(data, at)
                if kind == COMPACT_STRING and size_bytes > MOST_STRING_BYTES + 1:
                    raise MalformedFrame(f"a string of {size_bytes - 1} bytes; at most {MOST_STRING_BYTES} are read")
                at += max(0, size_bytes - 1)
            else:
                size = _int16 if kind == SHORT_SIZED else _int32
                if at + size.size > end:
                    raise MalformedFrame("it ends within a length")
                at += size.size + max(0, size.unpack_from(data, at)[0])
            if at > end:
                raise MalformedFrame(f"a field reaches {at - end} bytes beyond the end")
        return at

    def _over_array(self, step: Step, at: int) -> int:
        if step.is_compact:
            count, at = read_uvarint(self._data, at)
            count -= 1
        else:
            if at + 4 > self._end:
                raise MalformedFrame("it ends within the length of an array")
            (count,) = _int32.unpack_from(self._data, at)
            at += 4
        if count <= 0:
            return at
        self._elements += count
        if count > self._end - at or self._elements > self._most_elements:
            raise MalformedFrame(f"an array of {count} elements in {self._end - at} bytes")
        inner = step.inner
        if len(inner) == 1 and inner[0].kind == FIXED:
            return at + count * inner[0].size_bytes
        for _ in range(count):
            at = self.over(inner, at)
        return at

    def _over_tags(self, step: Step, at: int) -> int:
        start, kept, known = at, b"", 0
        count, at = read_uvarint(self._data, at)
        self._tags += count
        if self._tags > MOST_TAGGED_FIELDS:
            raise MalformedFrame(f"{self._tags} tagged fields; at most {MOST_TAGGED_FIELDS} are read")
        for _ in range(count):
            first = at
            tag, at = read_uvarint(self._data, at)
            size_bytes, at = read_uvarint(self._data, at)
            at += size_bytes
            if at > self._end:
                raise MalformedFrame("tagged fields reach beyond the end")
            if tag in step.known:
                known += 1
                kept += self._data[first:at]
        if known < count:
            self.cuts.append(Cut(start, at, write_uvarint(known) + kept))
        return at
