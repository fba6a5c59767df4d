"""What users write: topics, and a flow from topic to topic. A description only; nothing runs here.

    orders, bills = Topic("orders", text, json_of(Order)), Topic("bills", text, json_of(Bill))
    flow = Flow("billing", version="1")
    flow.read(orders).step("owed", Owed, book).write(bills)

`mypy --strict` finds a `write` to a topic of other types. Functions are pure, `(state, value, at) -> (state, outputs)`.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from crc32c import crc32c

from oncelog.flow.codecs import Codec, json_of
from oncelog.records.murmur2 import murmur2

K = TypeVar("K")
V = TypeVar("V")
K2 = TypeVar("K2")
V2 = TypeVar("V2")
S = TypeVar("S")


class Sent(NamedTuple):
    """A record for `simulate`."""

    topic: "Topic[Any, Any]"
    key: bytes
    value: bytes
    at_ms: int


@dataclass(frozen=True)
class Topic(Generic[K, V]):
    name: str
    key: Codec[K]
    value: Codec[V]
    partitions: int = 1

    def sent(self, key: K, value: V, at_ms: int = 0) -> Sent:
        return Sent(self, self.key.encode(key), self.value.encode(value), at_ms)

    def partition_of(self, key: bytes) -> int:
        """As Java's producer places it."""
        return murmur2(key) % self.partitions


class Context(Generic[K]):
    """What is known of a record beside its value. One object serves all records: what is to be kept is taken out."""

    __slots__ = ("key", "time_ms")

    key: K
    time_ms: int  # event time


Push = Callable[[Any, Any], object]  # takes a key and a value a step further


class States(Protocol):
    """The state of one step, as objects by the bytes of their keys."""

    objects: dict[bytes, Any]  # None: there is none
    before: dict[bytes, Any]  # as it stood when this run of records began

    def load(self, key: bytes) -> Any:
        """Of one that is not among the objects."""


class Scope(Protocol):
    """What operations may look at while a record is worked on."""

    key: bytes  # of the record, as it came
    time_ms: int

    def states(self, name: str, codec: Codec[Any]) -> States: ...


Make = Callable[[Push, Scope], Push]  # of what follows, what precedes it


class Sink(NamedTuple):
    topic: Topic[Any, Any]
    key: Callable[[Any], Any] | None  # None: the key stays
    tells_source: bool = False


class Node:
    """An operation on what comes from the one before it, and where its results go."""

    def __init__(self, make: Make | None = None, before: "Node | None" = None) -> None:
        self.make = make
        self.before = before
        self.children: list[Node] = []
        self.sinks: list[Sink] = []

    def then(self, make: Make) -> "Node":
        child = Node(make, self)
        self.children.append(child)
        return child

    @property
    def path(self) -> tuple[Make, ...]:
        """The operations up to here."""
        own = () if self.make is None else (self.make,)
        return own if self.before is None else (*self.before.path, *own)

    @property
    def all_sinks(self) -> tuple[Sink, ...]:
        return (*self.sinks, *(sink for child in self.children for sink in child.all_sinks))


class Branch(NamedTuple):
    """An input, and what happens to its records before they meet those of others."""

    source: Topic[Any, Any]
    operations: tuple[Make, ...] = ()


@dataclass(frozen=True)
class Part:
    """What becomes one stage: from topics to topics."""

    name: str
    branches: tuple[Branch, ...]  # several: their order is planned
    root: Node  # what happens to all of them

    @property
    def sinks(self) -> tuple[Topic[Any, Any], ...]:
        return tuple({sink.topic.name: sink.topic for sink in self.root.all_sinks}.values())


class Stream(Generic[K, V]):
    """Records of one key type and one value type, somewhere in a flow."""

    def __init__(self, flow: "Program", part: Part, node: Node) -> None:
        self._flow, self._part, self._node = flow, part, node

    def _then(self, make: Make) -> "Stream[Any, Any]":
        return Stream(self._flow, self._part, self._node.then(make))

    def map(self, function: Callable[[V], V2]) -> "Stream[K, V2]":
        return self._then(lambda then, _: lambda key, value: then(key, function(value)))

    def filter(self, keeps: Callable[[V], bool]) -> "Stream[K, V]":
        return self._then(lambda then, _: lambda key, value: then(key, value) if keeps(value) else None)

    def flat_map(self, function: Callable[[V], Iterable[V2]]) -> "Stream[K, V2]":
        def make(then: Push, _: Scope) -> Push:
            def push(key: Any, value: Any) -> None:
                for each in function(value):
                    then(key, each)

            return push

        return self._then(make)

    def only(self, kind: type[V2]) -> "Stream[K, V2]":
        """Those of one type: the branches of a fan-out."""
        return self._then(lambda then, _: lambda key, value: then(key, value) if isinstance(value, kind) else None)

    def step(
        self, name: str, state: type[S], function: Callable[[S, V, Context[K]], tuple[S | None, Iterable[V2]]]
    ) -> "Stream[K, V2]":
        """With a state for each key, that `state()` makes where there is none. As None it goes."""
        codec = json_of(state)
        self._flow.claim_name(name)
        self._flow.codecs.append(codec.name)
        missing = object()

        def make(then: Push, scope: Scope) -> Push:
            states = scope.states(name, codec)
            objects, before, load = states.objects, states.before, states.load
            at: Context[Any] = Context()

            def push(key: Any, value: Any) -> None:
                entry = scope.key
                stands = objects.get(entry, missing)
                if stands is missing:
                    stands = load(entry)
                if entry not in before:
                    before[entry] = stands
                at.key, at.time_ms = key, scope.time_ms
                objects[entry], outputs = function(state() if stands is None else stands, value, at)
                for output in outputs:
                    then(key, output)

            return push

        return self._then(make)

    def merge(self, name: str, other: "Stream[K2, V2]") -> "Stream[K | K2, V | V2]":
        """Both, in one order, by their times. The order is written down before anything of it is sent."""
        branches = tuple(
            Branch(branch.source, (*branch.operations, *stream._node.path))
            for stream in (self, other)
            for branch in stream._part.branches
        )
        counts = {branch.source.partitions for branch in branches}
        if len(counts) > 1:
            raise ValueError(
                f"flow {self._flow.name}: {name} merges topics of {' and '.join(map(str, sorted(counts)))} partitions: "
                "bring them to one number with `through` first"
            )
        return self._flow.begin(name, branches)

    def through(self, topic: Topic[K2, V], key: Callable[[V], K2]) -> "Stream[K2, V]":
        """Records change partition by another key: here one stage ends and another begins."""
        self._end(Sink(topic, key, tells_source=True))
        return self._flow.begin(topic.name, (Branch(topic),))

    def write(self, topic: Topic[K, V]) -> None:
        self._end(Sink(topic, None))

    def _end(self, sink: Sink) -> None:
        self._flow.codecs += [sink.topic.key.name, sink.topic.value.name]
        self._node.sinks.append(sink)


class Program:
    """The parts of a flow, as they are written down."""

    def __init__(self, name: str, *, version: str) -> None:
        self.name, self.version = name, version
        self.codecs: list[str] = []
        self._begun: dict[str, Part] = {}
        self._names: set[str] = set()

    @property
    def parts(self) -> list[Part]:
        """Those that write something."""
        return [part for part in self._begun.values() if part.sinks]

    @property
    def code(self) -> str:
        """The version and a fingerprint of the codecs: a holder with another one waits for those before it."""
        return f"{self.version}-{crc32c(' '.join(self.codecs).encode()):08x}"

    def read(self, topic: Topic[K, V], *, name: str | None = None) -> Stream[K, V]:
        self.codecs += [topic.key.name, topic.value.name]
        return self.begin(name or topic.name, (Branch(topic),))

    def begin(self, name: str, branches: tuple[Branch, ...]) -> Stream[Any, Any]:
        part = self._begun[self.claim_name(name)] = Part(name, branches, Node())
        return Stream(self, part, part.root)

    def claim_name(self, name: str) -> str:
        if name in self._names:
            raise ValueError(f"flow {self.name} has two parts with the name {name}: give one of them another (`name=`)")
        self._names.add(name)
        return name
