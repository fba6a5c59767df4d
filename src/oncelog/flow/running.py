"""A part of a flow as the work of a cell: bytes in, bytes out, the user's functions in between."""

from collections.abc import Mapping

from oncelog.flow.messages import InputRecord, Stepped, Unworkable
from oncelog.flow.program import Item, Part, Scope
from oncelog.slots import Place
from oncelog.slots.replay import Output

TIME = b"oncelog.time"  # header: event time, in milliseconds. The record's own time is when it was sent


class PartWork:
    def __init__(self, part: Part) -> None:
        self.part = part

    def step(self, state: Mapping[bytes, bytes], input: int, record: InputRecord) -> Stepped:
        part = self.part
        source, first = part.branches[input]
        changes: dict[bytes, bytes | None] = {}
        if record.key is None or record.value is None:
            lacks = "key" if record.key is None else "value"
            raise Unworkable(f"the record at offset {record.offset} of {source.name} has no {lacks}")

        def get(key: bytes) -> bytes | None:
            return changes[key] if key in changes else state.get(key)

        scope = Scope(record.key, time_of(record), get, changes.__setitem__)
        try:
            items = [Item(source.key.decode(record.key), source.value.decode(record.value))]
            for operation in (*first, *part.operations):
                items = [each for item in items for each in operation(item, scope)]
            outputs = [self._output(item, scope.time_ms) for item in items]
        except Exception as error:
            raise Unworkable(
                f"the record at offset {record.offset} of {source.name}: {type(error).__name__}: {error}"
            ) from error
        return Stepped(changes, outputs)

    def _output(self, item: Item, time_ms: int) -> tuple[Place, Output]:
        part = self.part
        key = part.sink.key.encode(item.key if part.key is None else part.key(item.value))
        headers = ((TIME, b"%d" % time_ms),)
        place = Place(part.sink.name, part.sink.partition_of(key))
        return place, Output(key, part.sink.value.encode(item.value), headers, None)


def time_of(record: InputRecord) -> int:
    for name, value in record.headers:
        if name in (TIME, TIME.decode()) and value is not None:
            return int(value)
    return record.timestamp_ms
