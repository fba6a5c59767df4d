"""What users write: topics, and a flow from topic to topic. A description only; nothing runs here.

    orders, bills = Topic("orders", text, json_of(Order)), Topic("bills", text, json_of(Bill))
    flow = Flow("billing", version="1")
    flow.read(orders).step("owed", Owed, book).write(bills)

`mypy --strict` finds a `write` to a topic of other types. Functions are pure, `(state, value, at) -> (state, outputs)`.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

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


@dataclass(frozen=True, slots=True)
class Context(Generic[K]):
    """What is known of a record beside its value."""

    key: K
    time_ms: int  # event time


class Item(NamedTuple):
    """On its way through a stage."""

    key: Any
    value: Any


class Scope(NamedTuple):
    """What an operation may look at."""

    key: bytes  # of the record, as it came
    time_ms: int
    get: Callable[[bytes], bytes | None]
    put: Callable[[bytes, bytes | None], None]


Operation = Callable[[Item, Scope], Iterable[Item]]


class Branch(NamedTuple):
    """An input, and what happens to its records before they meet those of others."""

    source: Topic[Any, Any]
    operations: tuple[Operation, ...] = ()


@dataclass(frozen=True)
class Part:
    """What becomes one stage: from a topic to a topic."""

    name: str
    branches: tuple["Branch", ...]  # several: their order is planned
    operations: tuple[Operation, ...]  # on all of them
    sink: Topic[Any, Any]
    key: Callable[[Any], Any] | None  # None: the key stays


class Stream(Generic[K, V]):
    """Records of one key type and one value type, somewhere in a flow."""

    def __init__(
        self, flow: "Program", name: str, branches: tuple[Branch, ...], operations: tuple[Operation, ...] = ()
    ) -> None:
        self._flow, self._name, self._branches, self._operations = flow, name, branches, operations

    def _then(self, operation: Operation) -> "Stream[Any, Any]":
        return Stream(self._flow, self._name, self._branches, (*self._operations, operation))

    def map(self, function: Callable[[V], V2]) -> "Stream[K, V2]":
        return self._then(lambda item, _: (Item(item.key, function(item.value)),))

    def filter(self, keeps: Callable[[V], bool]) -> "Stream[K, V]":
        return self._then(lambda item, _: (item,) if keeps(item.value) else ())

    def step(
        self, name: str, state: type[S], function: Callable[[S, V, Context[K]], tuple[S | None, Iterable[V2]]]
    ) -> "Stream[K, V2]":
        """With a state for each key, that `state()` makes where there is none. As None it goes."""
        codec = json_of(state)
        self._flow.claim_name(name)
        self._flow.codecs.append(codec.name)
        prefix = name.encode() + b"\0"

        def run(item: Item, scope: Scope) -> Iterable[Item]:
            entry = prefix + scope.key
            stands = scope.get(entry)
            before = state() if stands is None else codec.decode(stands)
            after, outputs = function(before, item.value, Context(item.key, scope.time_ms))
            scope.put(entry, None if after is None else codec.encode(after))
            return [Item(item.key, output) for output in outputs]

        return self._then(run)

    def merge(self, name: str, other: "Stream[K2, V2]") -> "Stream[K | K2, V | V2]":
        """Both, in one order, by their times. The order is written down before anything of it is sent."""
        branches = [Branch(b.source, (*b.operations, *s._operations)) for s in (self, other) for b in s._branches]
        counts = {branch.source.partitions for branch in branches}
        if len(counts) > 1:
            raise ValueError(
                f"flow {self._flow.name}: {name} merges topics of {' and '.join(map(str, sorted(counts)))} partitions: "
                "bring them to one number with `through` first"
            )
        return Stream(self._flow, self._flow.claim_name(name), tuple(branches))

    def through(self, topic: Topic[K2, V], key: Callable[[V], K2]) -> "Stream[K2, V]":
        """Records change partition by another key: here one stage ends and another begins."""
        self._end(topic, key)
        return Stream(self._flow, self._flow.claim_name(topic.name), (Branch(topic),))

    def write(self, topic: Topic[K, V]) -> None:
        self._end(topic, None)

    def _end(self, topic: Topic[Any, Any], key: Callable[[Any], Any] | None) -> None:
        self._flow.codecs += [topic.key.name, topic.value.name]
        self._flow.parts.append(Part(self._name, self._branches, self._operations, topic, key))


class Program:
    """The parts of a flow, as they are written down."""

    def __init__(self, name: str, *, version: str) -> None:
        self.name, self.version = name, version
        self.parts: list[Part] = []
        self.codecs: list[str] = []
        self._names: set[str] = set()

    @property
    def code(self) -> str:
        """The version and a fingerprint of the codecs: a holder with another one waits for those before it."""
        return f"{self.version}-{crc32c(' '.join(self.codecs).encode()):08x}"

    def read(self, topic: Topic[K, V], *, name: str | None = None) -> Stream[K, V]:
        self.codecs += [topic.key.name, topic.value.name]
        return Stream(self, self.claim_name(name or topic.name), (Branch(topic),))

    def claim_name(self, name: str) -> str:
        if name in self._names:
            raise ValueError(f"flow {self.name} has two parts with the name {name}: give one of them another (`name=`)")
        self._names.add(name)
        return name
