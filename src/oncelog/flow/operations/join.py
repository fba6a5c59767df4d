"""Tables, and streams that are joined with them: the last value of each key of a topic is its row.

Rows are state of the cell, as those of a step are, and which of them are taken between which records is planned. So a
cell that is restored joins each record with the row that it was joined with first.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from oncelog.flow.codecs import Codec
from oncelog.flow.scope import Make, Push, Scope
from oncelog.flow.stepping import StepStates, Trail

MOST_ROWS: Final = 1_000_000  # of one partition
_MISSING: Final = object()


class TableRows(StepStates):
    """Of one table in one cell."""

    def __init__(self, name: str, codec: Codec[Any], trail: Trail | None) -> None:
        super().__init__(name, codec, trail)
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

    def get(self, key: bytes) -> Any:
        found = self.objects.get(key, _MISSING)
        if found is _MISSING:
            found = self.objects[key] = self.load(key)
        return found

    def put(self, key: bytes, row: Any, most: int) -> None:
        stands = self.get(key)
        known = self.known + (row is not None) - (stands is not None)
        if known > max(most, self.known):
            raise ValueError(f"the table {self.name} has more than {most:,} rows in this partition. Raise `most`")
        self.known = known
        self.before.setdefault(key, stands)
        self.objects[key] = row


def kept(name: str, codec: Codec[Any], most: int) -> Make:
    """What a table does with its records: nothing goes on."""
    if most < 1:
        raise ValueError(f"{name}: it has {most} rows at most; 1 is the least")

    def make(_: Push, scope: Scope) -> Push:
        rows = scope.add_states(TableRows(name, codec, scope.trail))
        return lambda key, value: rows.put(scope.key, value, most)

    return make


def joined(name: str, codec: Codec[Any], function: Callable[[Any, Any], Any], *, is_left: bool) -> Make:
    def make(then: Push, scope: Scope) -> Push:
        rows = scope.add_states(TableRows(name, codec, scope.trail))

        def push(key: Any, value: Any) -> None:
            row = rows.get(scope.key)
            if row is not None or is_left:
                then(key, function(value, row))

        return push

    return make
