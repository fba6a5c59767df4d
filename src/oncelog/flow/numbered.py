"""Runs of records as columns (extra `[columns]`): the states of a step by numbers that their keys have in this process,
and results on their way to a topic."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import itemgetter
from typing import Any, TypeVar, cast

import numpy as np

from oncelog.flow.codecs import Codec, check_classes, class_of
from oncelog.flow.formats import TIME
from oncelog.flow.messages import Outputs
from oncelog.records.column_types import BytesColumn
from oncelog.records.key_columns import KeyTable, as_text, by_part, partitions_of, taken

C = TypeVar("C")


class NumberedStates:
    """What one run changes can be undone until the next one begins."""

    def __init__(self, prefix: bytes, load: Callable[[bytes], Any]) -> None:
        self._prefix, self._load = prefix, load
        self._table = KeyTable()
        self.objects: list[Any] = []  # None: there is none
        self._entries: list[bytes] = []  # the keys that they have among all states
        self.distinct: list[int] = []  # of this run, in the order in which they came first
        self.hits: list[int] = []  # how often each of these did
        self._stood: Sequence[Any] = []

    def __len__(self) -> int:
        return len(self.objects)

    def forget_run(self) -> None:
        self.distinct, self.hits, self._stood = [], [], []

    def read_anew(self, keys: Iterable[bytes]) -> None:
        """They were changed elsewhere. One that is not known is read when it comes."""
        found, known = [*keys], len(self.objects)
        for number, key in zip(self._table.number(BytesColumn.of(found)).numbers.tolist(), found, strict=True):
            if number < known:
                self.objects[number] = self._load(key)

    def number(self, keys: BytesColumn, decode_key: Callable[[bytes], Any]) -> list[int]:
        """Of the key of each record. A key that does not decode is an error, and so is a state."""
        found = self._table.number(keys)
        known = len(self.objects)
        new: list[Any] = self._table.keys[known:].to_list()
        try:
            if decode_key is not bytes:
                for key in new:
                    decode_key(key)
            self.objects += [self._load(key) for key in new]  # all or none
        except BaseException:
            self._table.forget_from(known)
            raise
        self._entries += [self._prefix + key for key in new]
        self.distinct, self.hits = found.distinct.tolist(), found.hits.tolist()
        self._stood = self.now
        numbers: list[int] = found.numbers.tolist()
        return numbers

    @property
    def keys(self) -> Iterator[bytes]:
        """Of this run."""
        return (self._entries[number][len(self._prefix) :] for number in self.distinct)

    def keys_of(self, numbers: Sequence[int]) -> BytesColumn:
        return taken(self._table.keys, np.array(numbers, np.int64))

    @property
    def now(self) -> Sequence[Any]:
        """Of the distinct ones."""
        return _at(self.objects, self.distinct)

    def changes(self, encode: Callable[[Any], bytes]) -> dict[bytes, bytes | None]:
        entries, now = _at(self._entries, self.distinct), self.now
        if None not in now:
            return dict(zip(entries, map(encode, now), strict=True))
        return {
            entry: None if stands is None else encode(stands)
            for entry, stands, stood in zip(entries, now, self._stood, strict=True)
            if stands is not None or stood is not None
        }

    def undo(self, *, is_simple: bool) -> None:
        """What stood before is read anew where a function may have changed it in place."""
        for number, key, stood in zip(self.distinct, self.keys, self._stood, strict=True):
            self.objects[number] = stood if stood is None or is_simple else self._load(key)
        self.forget_run()


def _at(cells: list[C], places: list[int]) -> Sequence[C]:
    return itemgetter(*places)(cells) if len(places) > 1 else [cells[place] for place in places]


def encoded(codec: Codec[Any], values: Sequence[Any]) -> BytesColumn:
    kind, encode = class_of(codec), codec.encode
    if kind is int and set(map(type, values)) == {int}:
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
    keys: Sequence[bytes | None], values: Sequence[bytes | None], times: Sequence[int] | int, partitions: int
) -> Iterator[tuple[int, Outputs]]:
    """A single time is that of all of them."""
    keys, values = BytesColumn.of(keys), BytesColumn.of(values)
    every = np.asarray(times, np.int64)
    parts = by_part(partitions_of(keys, partitions), partitions)
    for partition, rows in enumerate(parts):
        if len(rows):
            here = Outputs(taken(keys, rows), taken(values, rows))
            if isinstance(times, int):
                yield partition, here._replace(times=[times] * len(rows))
            else:
                yield partition, here._replace(more={TIME: cast(Sequence[bytes], as_text(every[rows]))})
