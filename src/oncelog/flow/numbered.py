"""Runs of records as columns (extra `[columns]`): the states of a step by numbers that their keys have in this process,
and results on their way to a topic."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from operator import itemgetter
from typing import Any, Final, cast

import numpy as np

from oncelog.flow.codecs import Codec, check_classes, class_of, is_msgpack, raw
from oncelog.flow.formats import SOURCE, STATE, TIME
from oncelog.flow.messages import ColumnChanges, Outputs
from oncelog.records.column_types import BytesColumn, Int64s
from oncelog.records.key_columns import KeyTable, as_text, by_part, partitions_of, taken, taken_behind

WORTH_COLUMNS: Final = 200  # keys that a run changes


class NumberedStates:
    """States by the number of their key. The changes of one run can be undone until the next one begins."""

    def __init__(self, prefix: bytes, load: Callable[..., Any]) -> None:
        """`load`: by the key, and where it is one that came now for the first time, with this as its `owner`."""
        self._prefix, self._load = prefix, load
        self._table = KeyTable()
        self.objects: list[Any] = []  # None: there is none
        self.distinct: list[int] = []  # of this run, in the order in which they came first
        self.hits: list[int] = []  # how often each of these did
        self._stood: Sequence[Any] = []

    def __len__(self) -> int:
        return len(self.objects)

    def forget_run(self) -> None:
        self.distinct, self.hits, self._stood = [], [], []

    def read_anew(self, keys: Iterable[bytes]) -> None:
        """Read states anew that were changed elsewhere. An unknown one is read when its key comes."""
        found, known = [*keys], len(self.objects)
        for number, key in zip(self._table.number(BytesColumn.of(found)).numbers.tolist(), found, strict=True):
            if number < known:
                self.objects[number] = self._load(key)

    def number(self, keys: BytesColumn, decode_key: Callable[[bytes], Any]) -> list[int]:
        """The number of each record's key. A key that does not decode is an error, and so is a state."""
        found = self._table.number(keys)
        known = len(self.objects)
        new: list[Any] = self._table.keys[known:].to_list()
        try:
            if decode_key is not bytes:
                for key in new:
                    decode_key(key)
            self.objects += [self._load(key, owner=self) for key in new]  # all or none
        except BaseException:
            self._table.forget_from(known)
            raise
        self.distinct, self.hits = found.distinct.tolist(), found.hits.tolist()
        self._stood = self.now
        numbers: list[int] = found.numbers.tolist()
        return numbers

    @property
    def keys(self) -> list[bytes]:
        """The distinct keys of this run."""
        return cast(list[bytes], self.keys_of(self.distinct).to_list())

    def keys_of(self, numbers: Sequence[int]) -> BytesColumn:
        return taken(self._table.keys, np.array(numbers, np.int64))

    @property
    def now(self) -> Sequence[Any]:
        """The objects of the distinct keys."""
        objects, places = self.objects, self.distinct
        return itemgetter(*places)(objects) if len(places) > 1 else [objects[place] for place in places]

    def column_changes(self, codec: Codec[Any]) -> "NumberedChanges | None":
        """None where they are few, or some are removed."""
        if len(self.distinct) < WORTH_COLUMNS or None in (now := self.now):
            return None
        numbers = np.array(self.distinct, np.int64)
        return NumberedChanges(self, numbers, self.entries_of(numbers), encoded(codec, now))

    def entries_of(self, numbers: Int64s) -> BytesColumn:
        """The entries of these numbers, as they stand in the journal."""
        return taken_behind(STATE + self._prefix, self._table.keys, numbers)

    def changes(self, encode: Callable[[Any], bytes]) -> dict[bytes, bytes | None]:
        now = self.now
        entries = [*_without_kind(self.entries_of(np.array(self.distinct, np.int64)))]
        if None not in now:
            return dict(zip(entries, map(encode, now), strict=True))
        return {
            entry: None if stands is None else encode(stands)
            for entry, stands, stood in zip(entries, now, self._stood, strict=True)
            if stands is not None or stood is not None
        }

    def undo(self, *, is_simple: bool) -> None:
        """The earlier state is read anew where a function may have changed it in place."""
        for number, key, stood in zip(self.distinct, self.keys, self._stood, strict=True):
            self.objects[number] = stood if stood is None or is_simple else self._load(key)
        self.forget_run()


@dataclass(frozen=True, eq=False)
class NumberedChanges(ColumnChanges):
    owner: NumberedStates
    numbers: Int64s
    entries: BytesColumn  # their keys in the journal
    stored: BytesColumn

    @cached_property
    def _found(self) -> dict[bytes, bytes]:
        return dict(self.rows())

    def __getitem__(self, key: bytes) -> bytes:
        return self._found[key]

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self.numbers)

    @property
    def size_bytes(self) -> int:
        return self.entries.size_bytes + self.stored.size_bytes

    @property
    def keys_known(self) -> int:
        return len(self.owner)

    def rows(self) -> Iterator[tuple[bytes, bytes]]:
        return zip(_without_kind(self.entries), cast(list[bytes], self.stored.to_list()), strict=True)

    def over(self, before: Sequence[ColumnChanges]) -> "NumberedChanges":
        if not before:
            return self
        pieces = *cast(Sequence[NumberedChanges], before), self
        numbers = np.concatenate([each.numbers for each in pieces])
        last = np.full(len(self.owner), -1, np.int64)
        last[numbers] = np.arange(len(numbers))  # of a number that comes again the last place stays
        rows = last[last >= 0]
        entries, stored = (
            taken(BytesColumn.joined(columns), rows)
            for columns in zip(*((each.entries, each.stored) for each in pieces), strict=True)
        )
        return NumberedChanges(self.owner, numbers[rows], entries, stored)

    def records(self, before: Outputs, behind: Outputs) -> Outputs:
        keys = [BytesColumn.of(before.keys), self.entries, BytesColumn.of(behind.keys)]
        values = [BytesColumn.of(before.values), self.stored, BytesColumn.of(behind.values)]
        return Outputs(BytesColumn.joined(keys), BytesColumn.joined(values))


def _without_kind(entries: BytesColumn) -> Iterator[bytes]:
    """Entries as keys of the state."""
    data = entries.data.tobytes()
    return (data[at + len(STATE) : end] for at, end in pairwise(entries.ends.tolist()))


def encoded(codec: Codec[Any], values: Sequence[Any]) -> BytesColumn:
    kind, encode = class_of(codec), codec.encode
    if encode is raw.encode and isinstance(values, BytesColumn):
        return values
    if kind is int and not is_msgpack(codec) and set(map(type, values)) == {int}:
        try:
            return as_text(np.fromiter(values, np.int64, len(values)))
        except OverflowError:
            pass
    else:
        check_classes(kind, values, takes_null=codec.takes_null)
    if codec.takes_null:
        return BytesColumn.of([None if value is None else encode(value) for value in values])
    return BytesColumn.of([*map(encode, values)])


def by_partition(
    keys: Sequence[bytes | None],
    values: Sequence[bytes | None],
    times: Sequence[int] | int,
    partitions: int,
    sources: tuple[bytes, Sequence[int]] | None = None,
) -> Iterator[tuple[int, Outputs]]:
    """A single time is that of all of them. Of sources: how all begin, and the offsets behind it."""
    keys, values = BytesColumn.of(keys), BytesColumn.of(values)
    every = np.asarray(times, np.int64)
    offsets = None if sources is None else as_text(np.asarray(sources[1], np.int64))
    parts = by_part(partitions_of(keys, partitions), partitions)
    for partition, rows in enumerate(parts):
        if len(rows):
            here = Outputs(taken(keys, rows), taken(values, rows))
            if isinstance(times, int):
                yield partition, here._replace(times=[times] * len(rows))
            else:
                more = {TIME: as_text(every[rows])}
                if sources is not None and offsets is not None:
                    more[SOURCE] = taken_behind(sources[0], offsets, rows)
                yield partition, here._replace(more=cast(dict[bytes, Sequence[bytes]], more))
