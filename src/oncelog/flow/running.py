"""A part of a flow as the work of a cell: a run of records in, bytes out, the user's functions in between.

The operations of a part are put together once into one function for each input. So a record costs its codecs, the
user's functions, and a call for each operation; what is needed once for a run (bytes of changed states, bytes of
batches) is made once for a run.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from oncelog.flow.codecs import Codec
from oncelog.flow.messages import Outputs, Records, Stepped, Unworkable
from oncelog.flow.program import Branch, Node, Part, Push, Sink
from oncelog.slots import Place

MOST_KNOWN: Final = 100_000  # keys whose state is kept as an object, and keys whose partition is


class StepStates:
    def __init__(self, name: str, codec: Codec[Any]) -> None:
        self._prefix = name.encode() + b"\0"
        self._codec = codec
        self._committed: Mapping[bytes, bytes] = {}
        self.objects: dict[bytes, Any] = {}
        self.before: dict[bytes, Any] = {}

    def begin(self, committed: Mapping[bytes, bytes]) -> None:
        self._committed = committed
        self.before.clear()
        if len(self.objects) > MOST_KNOWN:
            self.objects.clear()

    def load(self, key: bytes) -> Any:
        stands = self._committed.get(self._prefix + key)
        return None if stands is None else self._codec.decode(stands)

    def changes(self) -> Iterator[tuple[bytes, bytes | None]]:
        prefix, objects, encode = self._prefix, self.objects, self._codec.encode
        for key, stood in self.before.items():
            stands = objects[key]
            if stands is not None:
                yield prefix + key, encode(stands)
            elif stood is not None:
                yield prefix + key, None

    def undo(self) -> None:
        self.objects.update(self.before)
        self.before.clear()


class Route:
    """The partitions of one output topic, and what is on its way to each."""

    def __init__(self, sink: Sink) -> None:
        self.topic = sink.topic
        self.tells_source = sink.tells_source
        self.known: dict[bytes, int] = {}
        self.begin()

    def begin(self) -> None:
        partitions = range(self.topic.partitions)
        self.keys: list[list[bytes]] = [[] for _ in partitions]
        self.values: list[list[bytes]] = [[] for _ in partitions]
        self.times: list[list[int]] = [[] for _ in partitions]
        self.sources: list[list[bytes]] = [[] for _ in partitions]
        if len(self.known) > MOST_KNOWN:
            self.known.clear()

    def partition_of(self, key: bytes) -> int:
        found = self.known[key] = self.topic.partition_of(key)
        return found

    def outputs(self) -> Iterator[tuple[Place, Outputs]]:
        for partition, keys in enumerate(self.keys):
            if keys:
                sources = self.sources[partition] if self.tells_source else None
                yield (
                    Place(self.topic.name, partition),
                    Outputs(keys, self.values[partition], self.times[partition], sources),
                )


class PartWork:
    """One for each life of a cell."""

    def __init__(self, part: Part, cell: int) -> None:
        self.key = b""
        self.time_ms = 0
        self.offset = 0
        self._source = b""
        self._item: Any = None  # the key as an object
        self._states: dict[str, StepStates] = {}
        self._routes: dict[str, Route] = {}
        shared = self._behind(part.root)
        self._inputs = [self._input(branch, cell, shared) for branch in part.branches]

    def run(self, state: Mapping[bytes, bytes], input: int, records: Records) -> Stepped:
        branch, self._source, push = self._inputs[input]
        for states in self._states.values():
            states.begin(state)
        for route in self._routes.values():
            route.begin()
        decode_key, decode_value = branch.source.key.decode, branch.source.value.decode
        columns = zip(records.offsets, records.keys, records.values, records.times, strict=True)
        try:
            for self.offset, key, value, self.time_ms in columns:
                if key is None or value is None:
                    lacks = "key" if key is None else "value"
                    raise Unworkable(f"the record at offset {self.offset} of {branch.source.name} has no {lacks}")
                self.key, self._item = key, decode_key(key)
                push(self._item, decode_value(value))
            changes = {key: value for states in self._states.values() for key, value in states.changes()}
        except Unworkable:
            raise
        except Exception as error:
            raise Unworkable(
                f"the record at offset {self.offset} of {branch.source.name}: {type(error).__name__}: {error}"
            ) from error
        return Stepped(changes, {place: each for route in self._routes.values() for place, each in route.outputs()})

    def undo(self) -> None:
        for states in self._states.values():
            states.undo()

    # --- how the operations are put together

    def states(self, name: str, codec: Codec[Any]) -> StepStates:
        return self._states.setdefault(name, StepStates(name, codec))

    def _input(self, branch: Branch, cell: int, push: Push) -> tuple[Branch, bytes, Push]:
        for make in reversed(branch.operations):
            push = make(push, self)
        return branch, f"{branch.source.name}/{cell}/".encode(), push

    def _behind(self, node: Node) -> Push:
        ways = [self._behind(child) for child in node.children if child.all_sinks]
        ways += [self._emit(sink) for sink in node.sinks]
        then = ways[0] if len(ways) == 1 else _each_of(ways)
        return then if node.make is None else node.make(then, self)

    def _emit(self, sink: Sink) -> Push:
        topic, key_of, tells_source = sink.topic, sink.key, sink.tells_source
        route = self._routes.setdefault(topic.name, Route(sink))
        encode_key, encode_value = topic.key.encode, topic.value.encode

        def push(key: Any, value: Any) -> None:
            if key_of is not None:
                raw = encode_key(key_of(value))
            else:
                raw = self.key if key is self._item else encode_key(key)
            partition = route.known.get(raw)
            if partition is None:
                partition = route.partition_of(raw)
            route.keys[partition].append(raw)
            route.values[partition].append(encode_value(value))
            route.times[partition].append(self.time_ms)
            if tells_source:
                route.sources[partition].append(b"%b%d" % (self._source, self.offset))

        return push


def _each_of(ways: list[Push]) -> Push:
    def push(key: Any, value: Any) -> None:
        for way in ways:
            way(key, value)

    return push
