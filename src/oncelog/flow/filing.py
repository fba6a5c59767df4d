"""Files of a stage: which hour a record belongs to, and what the columns are. Pure.

A file is what one plan has of one hour, so its name follows from the plan, and who repeats the work writes the same
rows under the same name.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import inspect

from oncelog.clock import HOUR_MS
from oncelog.flow.codecs import info_of, text
from oncelog.flow.messages import HourRows, Records, Unworkable
from oncelog.flow.scope import Scope
from oncelog.flow.stepping import Trail

try:
    import numpy as np
    import pyarrow as pa

    from oncelog.records.arrow import binary_array
    from oncelog.records.column_types import BytesColumn
except ImportError as missing:
    raise ImportError(f"files need {missing.name}, which is not installed: pip install 'oncelog[columns]'") from missing

FOLDER: Final = "hour="
SUCCESS: Final = "_SUCCESS"
# Of each row: where its record stands in the log. Beside `key` and `value` they have the names that Spark gives them.
PLACE: Final = ("key", "partition", "offset", "timestamp")
TIME_TYPE: Final = pa.timestamp("ms", "UTC")


def folder_of(hour_ms: int) -> str:
    return f"{FOLDER}{np.datetime_as_string(np.datetime64(hour_ms, 'ms'), unit='h')}"


def hour_of(folder: str) -> int | None:
    """The hour's beginning; None for another folder."""
    if not folder.startswith(FOLDER):
        return None
    try:
        return int(np.datetime64(folder.removeprefix(FOLDER), "h").astype("datetime64[ms]").astype(np.int64))
    except ValueError:
        return None


def by_hour(rows: Any, times: Sequence[int], over_ms: int) -> Iterator[HourRows]:
    """The rows hour by hour. Rows of an hour that ended by `over_ms` are late."""
    hours = np.asarray(times, np.int64) // HOUR_MS
    found = [hours[0]] if (hours == hours[0]).all() else np.unique(hours)
    for hour in map(int, found):
        own = rows if len(found) == 1 else rows.take(pa.array(np.flatnonzero(hours == hour)))
        yield HourRows(folder_of(hour * HOUR_MS), (hour + 1) * HOUR_MS <= over_ms, own)


class Unfit(ValueError):
    """A type without columns, or a value that does not fit them; the text says what to do."""


class Shape:
    """The columns of values of one type: the fields of a dataclass or a msgspec.Struct, or `value`."""

    def __init__(self, kind: Any, key: str) -> None:
        """`key`: the name of the codec of the keys."""
        found = info_of(kind)
        self._fields: list[tuple[str, str, Column]] = []
        if isinstance(found, inspect.DataclassType | inspect.StructType):
            self._fields = [
                (each.name, each.encode_name, _column(each.type, each.encode_name)) for each in found.fields
            ]
        self._value = _column(found, "value") if not self._fields else None
        names = [name for _, name, _ in self._fields] or ["value"]
        place = PLACE if not self._fields else tuple(f"kafka_{name}" for name in PLACE)
        taken = {"hour", *place} & set(names)
        if taken:
            raise Unfit(f"the field {min(taken)} has the name of a column that all files have: give it another name")
        own = [each.type for _, _, each in self._fields] or [self._value.type if self._value else None]
        self._key_type = pa.string() if key == text.name else pa.binary()
        types = [self._key_type, pa.int32(), pa.int64(), TIME_TYPE]
        self.schema = pa.schema([*zip(names, own, strict=True), *zip(place, types, strict=True)])

    def batch(
        self,
        partition: int,
        keys: Sequence[bytes | None],
        values: Sequence[Any],
        offsets: Sequence[int],
        times: Sequence[int],
    ) -> Any:
        """A pyarrow.RecordBatch."""
        if self._value is not None:
            own = [self._value.array(values)]
        else:
            empty = any(each is None for each in values)
            own = [
                column.array([None if empty and each is None else getattr(each, name) for each in values])
                for name, _, column in self._fields
            ]
        place = [
            Column(pa.binary()).array(keys).cast(self._key_type),
            pa.array(np.full(len(offsets), partition, np.int32)),
            pa.array(np.asarray(offsets, np.int64)),
            pa.array(np.asarray(times, np.int64)).cast(TIME_TYPE),
        ]
        return pa.RecordBatch.from_arrays([*own, *place], schema=self.schema)


class Rows:
    """The rows that a run of records gives, and the files that they belong to."""

    def __init__(self, shape: Shape, partition: int, scope: Scope, trail: Trail | None = None) -> None:
        self._shape = shape
        self._partition = partition
        self._scope = scope
        self._trail = trail
        self._begin()

    def _begin(self) -> None:
        self._keys: list[bytes | None] = []
        self._values: list[Any] = []
        self._offsets: list[int] = []
        self._times: list[int] = []

    def push(self, key: Any, value: Any) -> None:
        scope = self._scope
        self._keys.append(scope.key)
        self._values.append(value)
        self._offsets.append(scope.offset)
        self._times.append(scope.time_ms)
        if self._trail is not None:
            self._trail.append((self.take_back,))

    def take_back(self) -> None:
        for column in (self._keys, self._values, self._offsets, self._times):
            column.pop()

    def take(self, over_ms: int, records: Records | None = None) -> list[HourRows]:
        """`records`: as they are, and nothing that was pushed."""
        offsets, keys, values, times, _ = records or Records(self._offsets, self._keys, self._values, self._times)
        if not offsets:
            return []
        self._begin()
        try:
            rows = self._shape.batch(self._partition, keys, values, offsets, times)
        except (pa.ArrowException, AttributeError, OverflowError, TypeError, ValueError) as error:
            raise Unworkable(
                f"the records at offsets {offsets[0]} to {offsets[-1]} do not fit the columns of the files: {error}. "
                "Map them to what fits"
            ) from error
        return list(by_hour(rows, times, over_ms))


class Column(NamedTuple):
    type: Any  # a pyarrow.DataType
    simple: Callable[[Any], Any] | None = None  # what makes of a cell what pyarrow takes

    def array(self, cells: Sequence[Any]) -> Any:
        if isinstance(cells, BytesColumn):
            return binary_array(cells)
        simple = self.simple
        return pa.array(cells if simple is None else [simple(each) for each in cells], self.type)


_TYPES: Final[Mapping[type[Any], Any]] = {
    inspect.BoolType: pa.bool_(),
    inspect.IntType: pa.int64(),
    inspect.FloatType: pa.float64(),
    inspect.StrType: pa.string(),
    inspect.BytesType: pa.binary(),
    inspect.DateTimeType: pa.timestamp("us", "UTC"),
    inspect.DateType: pa.date32(),
}
_WORDS: Final = (inspect.DecimalType, inspect.UUIDType)  # as in JSON
_TIMES: Final = (inspect.DateTimeType, inspect.DateType)  # and these, where they are inside of something


def _column(about: inspect.Type, name: str, *, is_inner: bool = False) -> Column:
    if isinstance(about, inspect.UnionType):
        kinds = [each for each in about.types if not isinstance(each, inspect.NoneType)]
        if len(kinds) == 1:
            return _column(kinds[0], name, is_inner=is_inner)
    if is_inner and isinstance(about, _TIMES):
        return Column(pa.string(), _plain)
    if (simple := _TYPES.get(type(about))) is not None:
        return Column(simple)
    if isinstance(about, _WORDS):
        return Column(pa.string(), _plain)
    if isinstance(about, inspect.EnumType | inspect.LiteralType):
        values = [each.value for each in about.cls] if isinstance(about, inspect.EnumType) else about.values
        return Column(pa.int64() if all(isinstance(each, int) for each in values) else pa.string(), _plain)
    if isinstance(about, inspect.ListType | inspect.VarTupleType):
        return Column(pa.list_(_column(about.item_type, name, is_inner=True).type), _plain)
    if isinstance(about, inspect.DataclassType | inspect.StructType):
        fields = [(each.encode_name, each.type) for each in about.fields]
        inner = [(own, _column(kind, f"{name}.{own}", is_inner=True).type) for own, kind in fields]
        return Column(pa.struct(inner), _plain)
    what = type(about).__name__.removesuffix("Type")
    raise Unfit(
        f"{name} is of a type that has no column ({what}): map the records to a dataclass of numbers, texts, bytes, "
        "times, lists and dataclasses first, and say `rows=` which"
    )


def _plain(cell: Any) -> Any:
    return msgspec.to_builtins(cell, builtin_types=(bytes,))
