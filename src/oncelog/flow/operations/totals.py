"""Running totals by key, that are told at commits: of each key that changed, as it stands in the commit.

So what is told follows from the commit alone, also after a crash, and wherever the commit fell. A run of records is
taken as columns where nothing comes before.
"""

from collections.abc import Callable, Iterable, Mapping
from math import isfinite
from typing import TYPE_CHECKING, Any, Final, cast

from oncelog.arguments import as_number
from oncelog.flow.codecs import Codec, decoded
from oncelog.flow.messages import Records
from oncelog.flow.scope import Make, Push, Scope
from oncelog.flow.stepping import StepStates

if TYPE_CHECKING:
    from oncelog.records.column_types import BytesColumn

_MISSING: Final = object()

Change = Callable[[Any, Any], Any]  # the total or None, what comes -> the total


class Totals(StepStates):
    """The totals of one cell, by key; and the greatest event time that was seen, which is the time of what is told."""

    def __init__(self, name: str, codec: Codec[Any], trail: Any, decode_key: Callable[[bytes], Any]) -> None:
        super().__init__(name, codec, trail)
        self.decode_key = decode_key
        self.time_key = name.encode() + b"\1time"
        self.time_ms = -1
        self._stood_ms = -1

    def begin(self, committed: Mapping[bytes, bytes]) -> None:
        super().begin(committed)
        self.time_ms = int(committed.get(self.time_key, b"-1"))

    def begin_run(self) -> None:
        super().begin_run()
        self._stood_ms = self.time_ms

    def undo(self) -> None:
        super().undo()
        self.time_ms = self._stood_ms

    def put(self, key: bytes, change: Change, what: Any) -> None:
        stands = self.objects.get(key, _MISSING)
        if stands is _MISSING:
            stands = self.load(key)
            self.decode_key(key)
        if key not in self.before:
            self.before[key] = stands
        if self.trail is not None:
            self.trail.append((self.objects.__setitem__, key, stands))
        self.objects[key] = change(stands, what)

    def column_changes(self) -> None:
        """None: the changes are told one by one."""

    def changes(self) -> dict[bytes, bytes | None]:
        changes = super().changes()
        if changes:
            changes[self.time_key] = b"%d" % self.time_ms
        return changes

    def told(self, changes: Mapping[bytes, bytes | None]) -> tuple[list[bytes], list[bytes]]:
        """Keys and totals, as a commit has them."""
        prefix, size = self.prefix, len(self.prefix)
        here = {key: stored for key, stored in changes.items() if stored is not None and key.startswith(prefix)}
        return [key[size:] for key in here], [*here.values()]


def totals(
    name: str,
    codec: Codec[Any],
    key_codec: Codec[Any],
    change: Change,
    of: Callable[[Any], Any],
    columns: "Columns",
    *,
    reads_values: bool = True,
) -> Make:
    def make(then: Push, scope: Scope) -> Push:
        states = scope.add_states(Totals(name, codec, scope.trail, key_codec.decode))

        def push(key: Any, value: Any) -> None:
            states.put(scope.key, change, of(value))
            states.time_ms = max(states.time_ms, scope.time_ms)

        def run(records: Records) -> None:
            columns(states, records)
            states.time_ms = max(states.time_ms, records.newest_ms)

        scope.tells_at_commits(states, then)
        scope.takes_columns(push, run, reads_values=reads_values)
        return push

    return make


Columns = Callable[[Totals, Records], None]


def add(total: Any, what: Any) -> Any:
    """Another kind of number would be written as JSON has it, a Decimal as a text, and not be read back."""
    total = (0 if total is None else total) + what  # so that True is one
    if type(total) is not int and type(total) is not float:
        total = as_number(total)  # numpy's is a number too
        if total is None:
            raise TypeError(f"a sum of {what!r:.200}, where an int or a float is expected, such as `float(price)`")
    if not isfinite(total):
        raise ValueError(f"the sum is {total}")
    return total


def replace(total: Any, what: Any) -> Any:
    return what


def one(value: Any) -> int:
    return 1


def _put_all(states: Totals, records: Records, change: Change, what: Iterable[Any]) -> None:
    numbered = states.numbered()
    numbers = numbered.number(cast("BytesColumn", records.keys), states.decode_key)
    objects = numbered.objects
    for number, each in zip(numbers, what, strict=True):
        objects[number] = change(objects[number], each)


def count_columns(states: Totals, records: Records) -> None:
    numbered = states.numbered()
    numbered.number(cast("BytesColumn", records.keys), states.decode_key)
    objects = numbered.objects
    for number, hits in zip(numbered.distinct, numbered.hits, strict=True):
        stands = objects[number]
        objects[number] = hits if stands is None else stands + hits


def sum_columns(decode: Callable[[bytes], Any], of: Callable[[Any], Any]) -> Columns:
    """The sums, added one after the other: sums of fractions hang on their order."""
    return lambda states, records: _put_all(states, records, add, map(of, decoded(records.values, decode)))


def latest_columns(decode: Callable[[bytes], Any]) -> Columns:
    return lambda states, records: _put_all(states, records, replace, decoded(records.values, decode))
