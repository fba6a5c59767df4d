"""Tables, and streams that are joined with them: the last value of each key of a topic is its row.

Rows are state of the cell, as those of a step are, and which of them are taken between which records is planned. So a
cell that is restored joins each record with the row that it was joined with first.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from oncelog.arguments import number_within
from oncelog.flow.codecs import Codec
from oncelog.flow.messages import Unworkable
from oncelog.flow.scope import Make, Push, Scope
from oncelog.flow.stepping import StepStates, Trail
from oncelog.records.murmur2 import murmur2

MOST_ROWS: Final = 1_000_000  # of one partition
SAMPLED: Final = 32  # keys of each side, by which it is known how they are placed
_MISSING: Final = object()


class Sample:
    """A sample of the keys on one side of a join: would murmur2 place all of them here?"""

    def __init__(self, cell: int, partitions: int) -> None:
        self._cell, self._partitions = cell, partitions
        self._keys: set[bytes] = set()
        self.misplaced: bytes | None = None
        self.is_full = partitions == 1  # which says nothing

    def add(self, key: bytes) -> None:
        self._keys.add(key)
        self.is_full = len(self._keys) == SAMPLED
        if murmur2(key) % self._partitions != self._cell:
            self.misplaced = key


class TableRows(StepStates):
    """The rows of one table in one cell."""

    def __init__(self, name: str, codec: Codec[Any], trail: Trail | None, cell: int, partitions: int) -> None:
        super().__init__(name, codec, trail)
        self.keys, self.stream_keys = Sample(cell, partitions), Sample(cell, partitions)
        self.known = 0
        self._stood = 0

    def begin(self, committed: Mapping[bytes, bytes]) -> None:
        super().begin(committed)
        self.known = sum(key.startswith(self.prefix) for key in committed)

    def begin_run(self) -> None:
        super().begin_run()
        self._stood = self.known

    def undo(self) -> None:
        super().undo()
        self.known = self._stood

    def look_at(self, key: bytes, sample: Sample) -> None:
        """Equal numbers of partitions prove nothing: two partitioners would place the same key in two of them."""
        sample.add(key)
        sides = (self.keys, self.stream_keys, "the table's"), (self.stream_keys, self.keys, "the stream's")
        for one, other, whose in sides:
            if one.is_full and one.misplaced is None and other.misplaced is not None:
                raise Unworkable(
                    f"the join with {self.name}: murmur2 places {whose} keys here, and would place the key "
                    f"{other.misplaced!r} of the other side elsewhere. Write both with one partitioner, or bring the "
                    "stream there with `through`"
                )

    def get(self, key: bytes) -> Any:
        found = self.objects.get(key, _MISSING)
        if found is _MISSING:
            found = self.objects[key] = self.load(key)
        return found

    def put(self, key: bytes, row: Any, most: int) -> None:
        stands = self.get(key)
        if not self.keys.is_full:
            self.look_at(key, self.keys)
        known = self.known + (row is not None) - (stands is not None)
        if known > max(most, self.known):
            raise ValueError(f"the table {self.name} has more than {most:,} rows in this partition. Raise `most`")
        self.known = known
        self.before.setdefault(key, stands)
        self.objects[key] = row


def kept(name: str, codec: Codec[Any], partitions: int, most: int) -> Make:
    """The step of a table: it keeps its records and passes nothing on."""
    most = number_within(f"{name}: most", most, 1)

    def make(_: Push, scope: Scope) -> Push:
        rows = scope.add_states(TableRows(name, codec, scope.trail, scope.cell, partitions))
        return lambda key, value: rows.put(scope.key, value, most)

    return make


def joined(
    name: str, codec: Codec[Any], partitions: int, function: Callable[[Any, Any], Any], *, is_left: bool
) -> Make:
    def make(then: Push, scope: Scope) -> Push:
        rows = scope.add_states(TableRows(name, codec, scope.trail, scope.cell, partitions))
        sample = rows.stream_keys

        def push(key: Any, value: Any) -> None:
            row = rows.get(scope.key)
            if not sample.is_full:
                rows.look_at(scope.key, sample)
            if row is not None or is_left:
                then(key, function(value, row))

        return push

    return make
