"""A part of a flow as the work of a cell: a run of records in, bytes out, the user's functions in between.

The operations of a part are put together once into one function for each input. So a record costs its codecs, the
user's functions, and a call for each operation; what is needed once for a run (bytes of changed states, bytes of
batches) is made once for a run.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from oncelog.flow.codecs import Codec
from oncelog.flow.messages import Outputs, Records, Stepped, Unworkable, Work
from oncelog.flow.program import Branch, Node, Part, Sink
from oncelog.flow.scope import Push
from oncelog.flow.stepping import StepStates, TimedStates
from oncelog.slots import Place

MOST_KNOWN: Final = 100_000  # keys whose partition is
TIMER: Final = b"timer@"  # in the place of a source


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


class RunInput(NamedTuple):
    branch: Branch
    source: bytes  # what an output says of where it comes from, before the offset
    push: Push


class PartWork(Work):
    """One for each life of a cell."""

    def __init__(self, part: Part, cell: int) -> None:
        self.key = b""
        self.time_ms = 0
        self.watermark_ms = -1
        self.offset = 0
        self._item: Any = None  # the key as an object
        self._source = b""
        self._states: dict[str, StepStates] = {}
        self._timed: list[TimedStates] = []
        self._routes: dict[str, Route] = {}
        shared = self._behind(part.root)
        self._inputs = [self._input(branch, cell, shared) for branch in part.branches]

    def begin(self, state: Mapping[bytes, bytes], marks: Sequence[int]) -> None:
        super().begin(state, marks)
        for states in self._states.values():
            states.begin(state)

    @property
    def next_timer_ms(self) -> int | None:
        due = [found[0] for states in self._timed if (found := states.next())]
        return min(due, default=None)

    def run(self, input: int, records: Records, most: int) -> Stepped:
        for states in self._states.values():
            states.begin_run()
        for route in self._routes.values():
            route.begin()
        self._marks_before = list(self.marks)
        branch = self._inputs[input].branch
        try:
            if self._timed:
                taken = self._run_by_time(input, records, most)
            else:
                self._run(input, records)
                taken = len(records.offsets)
                if taken and not branch.is_derived:
                    self.mark(input, max(records.times) - branch.wait_ms)
            changes = {key: value for states in self._states.values() for key, value in states.changes()}
        except Unworkable:
            raise
        except Exception as error:
            where = f"the record at offset {self.offset} of {branch.source.name}"
            if self._source == TIMER:
                where = f"the timer of {self.key!r} at {self.time_ms}"
            raise Unworkable(f"{where}: {type(error).__name__}: {error}") from error
        outputs = {place: each for route in self._routes.values() for place, each in route.outputs()}
        return Stepped(changes, outputs, taken)

    def _run(self, input: int, records: Records) -> None:
        branch, self._source, push = self._inputs[input]
        decode_key, decode_value = branch.source.key.decode, branch.source.value.decode
        columns = zip(records.offsets, records.keys, records.values, records.times, strict=True)
        for self.offset, key, value, self.time_ms in columns:
            if key is None or value is None:
                lacks = "key" if key is None else "value"
                raise Unworkable(f"the record at offset {self.offset} of {branch.source.name} has no {lacks}")
            self.key, self._item = key, decode_key(key)
            push(self._item, decode_value(value))

    def _run_by_time(self, input: int, records: Records, most: int) -> int:
        """What is due comes between the records, in the order of time and key."""
        branch = self._inputs[input].branch
        fired = self._fire(most)
        for at, time_ms in enumerate(records.times):
            if fired >= most:
                return at
            self._run(input, records.part(at, at + 1))
            if not branch.is_derived and time_ms - branch.wait_ms > self.marks[input]:
                self.mark(input, time_ms - branch.wait_ms)
            fired += self._fire(most - fired)
        return len(records.offsets)

    def _fire(self, most: int) -> int:
        for fired in range(most):
            due = [(found, index) for index, states in enumerate(self._timed) if (found := states.next())]
            if not due or min(due)[0][0] > self.watermark_ms:
                return fired
            states = self._timed[min(due)[1]]
            time_ms, key = states.take()
            states.fire(key, time_ms)
        return most

    def undo(self) -> None:
        self.marks = self._marks_before
        self.watermark_ms = min(self.marks)
        for states in self._states.values():
            states.undo()

    def begin_timer(self, key: bytes, item: object, time_ms: int) -> None:
        self.key, self._item, self.time_ms = key, item, time_ms
        self._source, self.offset = TIMER, time_ms

    # --- how the operations are put together

    def states(self, name: str, codec: Codec[Any]) -> StepStates:
        return self._states.setdefault(name, StepStates(name, codec))

    def timed(self, name: str, codec: Codec[Any]) -> TimedStates:
        found = self._states.get(name)
        if not isinstance(found, TimedStates):
            found = self._states[name] = TimedStates(name, codec)
            self._timed.append(found)
        return found

    def _input(self, branch: Branch, cell: int, push: Push) -> "RunInput":
        for node in reversed(branch.operations):
            assert node.make is not None
            push = node.make(push, self)
        return RunInput(branch, f"{branch.source.name}/{cell}/".encode(), push)

    def _behind(self, node: Node) -> Push:
        ways = [self._behind(child) for child in node.children if any(each.sinks for each in child.below)]
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
