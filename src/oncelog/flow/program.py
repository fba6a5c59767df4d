"""The language of users: topics, and a flow from topic to topic. A description only; nothing runs here.

    orders, bills = Topic("orders", text, json_of(Order)), Topic("bills", text, json_of(Bill))
    flow = Flow("billing", version="1")
    flow.read(orders).step("owed", Owed, book).write(bills)

`mypy --strict` finds a `write` to a topic of other types. Functions are pure, `(state, value, at) -> (state, outputs)`.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import reduce
from types import NoneType
from typing import Any, Final, Generic, Literal, TypeVar, cast, overload

from crc32c import crc32c

from oncelog.arguments import check_kind, check_text, number_within
from oncelog.clock import MINUTE_MS
from oncelog.flow.codecs import Codec, json_of, kind_of, shape_of
from oncelog.flow.functions import check_begins, check_function, check_outputs, check_type
from oncelog.flow.operations.call import calling
from oncelog.flow.operations.dedup import in_header, without_known_ids, without_lower_offsets
from oncelog.flow.operations.join import joined
from oncelog.flow.operations.state import with_state, with_timers
from oncelog.flow.operations.totals import add, count_columns, latest_columns, one, replace, sum_columns, totals
from oncelog.flow.operations.windows import Window, in_time, windows
from oncelog.flow.operations.windows import late as late_ones
from oncelog.flow.parts import OTHER, SAME, Branch, FileSink, Node, Part, Sink
from oncelog.flow.scope import Context, Make, Push, Scope
from oncelog.flow.stepping import Old, Upgrade
from oncelog.flow.topics import Dead, Topic

K = TypeVar("K")
V = TypeVar("V")
K2 = TypeVar("K2")
V2 = TypeVar("V2")
N = TypeVar("N", int, float)
S = TypeVar("S")
T = TypeVar("T")

MOST_IDS: Final = 1_000_000
MOST_VERSION: Final = 200  # letters; it stands in each commit, with a fingerprint
A_TOPIC: Final = 'a Topic, such as Topic("orders", text, json_of(Order))'


EVERY_MS: Final = 10 * MINUTE_MS  # six files an hour for each partition that has records
FILE_RECORDS: Final = 1_000_000
MOST_FILE_RECORDS: Final = 100_000_000


@dataclass(frozen=True)
class Table(Generic[K, V]):
    """The last value of each key of a topic, for streams to be joined with."""

    name: str
    branch: Branch


class Stream(Generic[K, V]):
    """Records of one key type and one value type, somewhere in a flow."""

    def __init__(self, flow: "Program", part: Part, node: Node) -> None:
        self._flow, self._part, self._node = flow, part, node

    def _then(self, make: Make, *, gives: Any = None, table: Branch | None = None, **how: bool) -> "Stream[Any, Any]":
        return Stream(self._flow, self._part, self._node.then(make, gives=gives, table=table, **how))

    def map(self, function: Callable[[V], V2]) -> "Stream[K, V2]":
        """Replace each value by what the function returns."""
        self._takes("map", function, "value")
        return self._then(lambda then, _: lambda key, value: then(key, function(value)), gives=OTHER)

    def filter(self, keeps: Callable[[V], bool]) -> "Stream[K, V]":
        """Keep the records for whose value the function returns true."""
        self._takes("filter", keeps, "value")
        return self._then(lambda then, _: lambda key, value: then(key, value) if keeps(value) else None, gives=SAME)

    def flat_map(self, function: Callable[[V], Iterable[V2]]) -> "Stream[K, V2]":
        """Replace each value by the values that the function returns: none, one or more."""
        self._takes("flat_map", function, "value")

        def make(then: Push, _: Scope) -> Push:
            def push(key: Any, value: Any) -> None:
                outputs = function(value)
                if type(outputs) is not list:
                    check_outputs("flat_map", outputs)
                for each in outputs:
                    then(key, each)

            return push

        return self._then(make, gives=OTHER)

    def only(self, kind: type[V2]) -> "Stream[K, V2]":
        """Keep values of this type only: one branch of a fan-out."""
        check_type(self._what("only"), kind)

        def make(then: Push, _: Scope) -> Push:
            return lambda key, value: then(key, value) if isinstance(value, kind) else None

        return self._then(make, gives=kind)

    def call(self, function: Callable[[V, Context[K]], V2], *, name: str = "call") -> "Stream[K, V2]":
        """Call a function whose result may differ the next time: it asks a service, or chance. Results that follow from
        its answer are sent from the commit, once. After a crash it may be called again, with the same `at.id`."""
        self._refuse_behind_totals(name)
        self._takes(name, function, "value", "at")
        stream: Stream[K, V2] = self._then(calling(self._flow.claim_name(name), function), repeats=False)
        stream._node.call = name
        return stream

    def count(self, name: str) -> "Stream[K, int]":
        """The number of records of each key so far, written at commits: one number for each key that changed since."""
        return self._totals(name, json_of(int), add, one, count_columns, reads_values=False)

    def sum(self, name: str, of: Callable[[V], N]) -> "Stream[K, N]":
        """The sum of a number of each key's values so far, written at commits."""
        self._takes(name, of, "value")
        columns = sum_columns(self._part.branches[0].source.value.decode, of)
        return self._totals(name, cast(Codec[N], json_of(cast(type[N], int | float))), add, of, columns)

    def latest(self, name: str) -> "Stream[K, V]":
        """The last value of each key, written at commits."""
        if self._node.before is not None or len(self._part.branches) > 1:
            raise ValueError(
                f"flow {self._flow.name}: `latest` ({name}) keeps values as their topic has them. Put it right behind "
                "`read` or `through`"
            )
        codec = self._part.branches[0].source.value
        return self._totals(name, codec, replace, lambda value: value, latest_columns(codec.decode))

    def _totals(self, name: str, codec: Codec[V2], *how: Any, reads_values: bool = True) -> "Stream[K, V2]":
        self._refuse_behind_totals(name)
        of_key = self._part.branches[0].source.key
        stream: Stream[K, V2] = self._then(
            totals(name, self._flow.claim_state(name, codec), of_key, *how, reads_values=reads_values)
        )
        stream._node.tells_at_commits = stream._node.repeats = True
        return stream

    def step(
        self,
        name: str,
        state: type[S],
        function: Callable[[S, V, Context[K]], tuple[S | None, Iterable[V2]]],
        on_timer: Callable[[S, K, Context[K]], tuple[S | None, Iterable[V2]]] | None = None,
        upgrade: Upgrade[Any, S] | None = None,
    ) -> "Stream[K, V2]":
        """Work with a state for each key. `state()` makes the first one. Where the function returns None as the state,
        the state is removed, with its timers. A new field needs a default; any other change of the state's shape needs
        another name, and `upgrade`."""
        self._refuse_behind_totals(name)
        check_begins(self._flow.name, name, state)
        self._takes(name, function, "state", "value", "at")
        codec = self._flow.claim_state(name, json_of(state))
        old = None
        if upgrade is not None:
            self._takes(f"upgrade of {name}", upgrade.function, "state")
            old = Old(upgrade.name, self._flow.claim_state(upgrade.name, json_of(upgrade.state)), upgrade.function)
        if on_timer is None:
            return self._then(with_state(name, state, codec, function, old))
        self._takes(f"on_timer of {name}", on_timer, "state", "key", "at")
        of_key = self._part.branches[0].source.key
        return self._then(with_timers(name, state, codec, of_key, function, on_timer, old), asks_for_time=True)

    def dedup(
        self, name: str, id: Callable[[V], str], *, most: int = MOST_IDS, keep_ms: int | None = None
    ) -> "Stream[K, V]":
        """Leave out records whose id came before in the same partition. The newest `most` ids of each partition are
        kept; with `keep_ms`, no id that is older than the newest one by more than that."""
        self._refuse_behind_totals(name)
        self._takes(name, id, "value")
        codec = self._flow.claim_state(name, json_of(int))
        return self._then(without_known_ids(name, id, codec, most, keep_ms))

    def dedup_offsets(
        self, name: str, source: Callable[[V, Context[K]], tuple[str, int]] = in_header
    ) -> "Stream[K, V]":
        """Leave out records that a copier has written before. The copier names the origin of each record, by a source
        and a rising offset: by default in the header `oncelog.source`. One number is kept for each source."""
        self._refuse_behind_totals(name)
        self._takes(name, source, "value", "at")
        return self._then(without_lower_offsets(name, source, self._flow.claim_state(name, json_of(int))))

    def window(
        self,
        name: str,
        state: type[S],
        add: Callable[[S, V], S],
        *,
        size_ms: int,
        every_ms: int | None = None,
        late: "Topic[K, V] | None" = None,
    ) -> "Stream[K, Window[S]]":
        """Keep a state for each key and window of event time; a window begins every `every_ms`. Each window is written
        once, when the watermark has passed its end. A record that comes later goes to `late`, or nowhere."""
        self._refuse_behind_totals(name)
        check_begins(self._flow.name, name, state)
        self._takes(name, add, "state", "value")
        codec = self._flow.claim_state(name, json_of(state))
        make = windows(name, state, codec, self._part.branches[0].source.key, add, size_ms, every_ms)
        behind = self._then(make, asks_for_time=True)
        if late is not None:
            check_kind(self._what(f"late of {name}"), late, Topic, A_TOPIC)
            behind._then(late_ones)._end(Sink(late, None))
        return behind._then(in_time)

    def merge(self, name: str, other: "Stream[K2, V2]") -> "Stream[K | K2, V | V2]":
        """Merge two streams into one order, by times. The order is written down before any result of it is sent."""
        self._refuse_behind_totals(name)
        check_kind(self._what(name), other, Stream, "another stream of this flow, such as flow.read(payments)")
        other._refuse_behind_totals(name)
        if other._flow is not self._flow:
            raise ValueError(
                f"{self._what(name)}: a stream of flow {other._flow.name} is merged. Read both in one flow"
            )
        branches = tuple(
            branch._replace(operations=(*branch.operations, *stream._node.path))
            for stream in (self, other)
            for branch in stream._part.branches
        )
        counts = {branch.source.partitions for branch in branches}
        if len(counts) > 1:
            raise ValueError(
                f"flow {self._flow.name}: {name} merges topics of {' and '.join(map(str, sorted(counts)))} partitions: "
                "bring them to one number with `through` first"
            )
        self._node.is_taken = other._node.is_taken = True
        repeats = self._node.repeats and other._node.repeats
        return self._flow.begin(name, branches, repeats=repeats)

    @overload
    def join(self, table: Table[K, T], function: Callable[[V, T], V2]) -> "Stream[K, V2]": ...
    @overload
    def join(
        self, table: Table[K, T], function: Callable[[V, T | None], V2], *, left: Literal[True]
    ) -> "Stream[K, V2]": ...
    def join(self, table: Table[K, Any], function: Callable[[V, Any], V2], *, left: bool = False) -> "Stream[K, V2]":
        """Join each record with the row that a table has for its key. A record without a row goes no further; with
        `left` the function gets None. The rows that are there by then are planned, so a crash does not change them."""
        check_kind(self._what("join"), table, Table, "a table of this flow, such as flow.table(customers)")
        self._refuse_behind_totals(f"join with {table.name}")
        self._takes(f"join with {table.name}", function, "value", "row")
        what, of_table = f"flow {self._flow.name}: join with {table.name}", table.branch.source
        for source in (branch.source for branch in self._part.branches):
            if source.partitions != of_table.partitions:
                raise ValueError(
                    f"{what}: {source.name} has {source.partitions} partitions and {of_table.name} has "
                    f"{of_table.partitions}, so a key's records and its row would be in different cells. Bring the "
                    "stream to the table's number with `through` first"
                )
            if source.key.name != of_table.key.name:
                raise ValueError(
                    f"{what}: keys of {source.name} are written as {source.key.name} and those of {of_table.name} as "
                    f"{of_table.key.name}, so they would never be equal. Write both in one way (`through`)"
                )
        return self._then(
            joined(table.name, of_table.value, of_table.partitions, function, is_left=left), table=table.branch
        )

    def through(self, topic: Topic[K2, V], key: Callable[[V], K2]) -> "Stream[K2, V]":
        """Send the records through a topic, to partitions by another key: one stage ends here and another begins."""
        check_kind(self._what("through"), topic, Topic, A_TOPIC)
        self._takes(f"through {topic.name}", key, "value")
        self._end(Sink(topic, key, tells_source=True))
        (otherwise, *others) = {branch.otherwise for branch in self._part.branches}
        otherwise = self._flow.otherwise if others else otherwise
        return self._flow.begin(topic.name, (Branch(topic, is_derived=True, otherwise=otherwise),))

    def write(self, topic: Topic[K, V]) -> None:
        """Write the records to this topic, under their keys."""
        check_kind(self._what("write"), topic, Topic, A_TOPIC)
        self._end(Sink(topic, None))

    def files(
        self,
        url: str,
        *,
        every_ms: int = EVERY_MS,
        most_records: int = FILE_RECORDS,
        rows: type[V] | None = None,
        name: str | None = None,
    ) -> None:
        """Write Parquet under a folder or URL, one folder for each hour of event time. A file has the records that came
        to a partition within `every_ms`, `most_records` at most. Its columns are the fields of `rows`, or else those of
        the type that the topic's codec makes."""
        part, node = self._part, self._node
        flow, what = self._flow, f"flow {self._flow.name}: files of {self._part.name}"
        if len(part.branches) > 1 or any(each.gives is None for each in node.path):
            raise ValueError(f"{what}: a merge or a state stands before them. Put `through` a topic between")
        check_text(f"{what}: where they go", url, "lake/orders or s3://lake/orders")
        every_ms = number_within(f"{what}: every_ms", every_ms, 0)
        most_records = number_within(f"{what}: most_records", most_records, 1, MOST_FILE_RECORDS)
        if any(each.files is not None and each.files.url == url for each in flow.parts):
            raise ValueError(f"{what}: {url} has those of another part already. Give each a folder of its own")
        (branch,) = part.branches
        given = kind_of(branch.source.value)
        kind = rows or reduce(lambda kind, each: kind if each.gives is SAME else each.gives, node.path, given)
        if kind is None or kind is OTHER:
            raise ValueError(f"{what}: of which type are the values? Say it, `rows=`")
        try:
            from oncelog.flow.filing import Shape

            Shape(kind, branch.source.key.name)
        except ValueError as unfit:
            raise ValueError(f"{what}: {unfit}") from None
        flow.codecs.append(f"files {shape_of(kind)}")
        operations, node.is_taken = (*branch.operations, *node.path), True
        sink = FileSink(url, kind, every_ms, most_records)
        flow.begin(name or f"{part.name}-files", (branch._replace(operations=operations),), files=sink)

    def _takes(self, what: str, function: object, *takes: str) -> None:
        check_function(self._what(what), function, *takes)

    def _what(self, what: str) -> str:
        return f"flow {self._flow.name}: {what}"

    def _refuse_behind_totals(self, name: str) -> None:
        if self._node.tells_at_commits:
            raise ValueError(
                f"flow {self._flow.name}: {name} stands behind something that is told at commits. Begin a stage of its "
                "own for it, with `through`"
            )

    def _end(self, sink: Sink) -> None:
        self._flow.codecs += [sink.topic.key.name, sink.topic.value.name]
        self._node.sinks.append(sink)


class Program:
    """The parts of a flow, as they are written down."""

    def __init__(self, name: str, *, version: str, otherwise: Dead | None = None) -> None:
        """`otherwise`: the topic for records that cannot be worked on. Without it a cell stops at such a record."""
        check_text("the name of a flow", name, "billing")
        check_text(f"flow {name}: its version", version, "1")
        if len(version) > MOST_VERSION:
            raise ValueError(f"flow {name}: its version has {len(version)} letters, and {MOST_VERSION} are the most")
        self.name, self.version = name, version
        self.otherwise: Dead | None = None
        self.otherwise = self.dead_letters(otherwise)
        self.codecs: list[str] = []
        self.since_ms: int | None = None  # of its inputs: what the log had before is left out
        self.until_ms: int | None = None  # where it comes to an end: it ends where they had this time, else now
        self._begun: dict[str, Part] = {}
        self._names: set[str] = set()

    @property
    def parts(self) -> list[Part]:
        """The parts that write something."""
        return [part for part in self._begun.values() if part.files or any(node.sinks for node in part.root.below)]

    @property
    def loose(self) -> str:
        """The error about the first stream whose records are not written anywhere and would be dropped; empty where
        there is none."""
        parts = (part for part in self._begun.values() if part.files is None)
        # Records that were passed `through` a topic stand there: that may be the end of it.
        nodes = (node for part in parts for node in part.root.below if node.make or not part.is_derived)
        for node in nodes:
            if not (node.children or node.sinks or node.is_taken):
                return (
                    f"flow {self.name}: nothing is written of the stream that is made in {node.line}. End it with "
                    "`write` or `files`, or leave it out"
                )
        return ""

    @property
    def calls(self) -> dict[str, list[Node]]:
        """The nodes of each call, by its name; several of one that was merged."""
        found: dict[str, list[Node]] = {}
        for node in (node for part in self.parts for node in part.nodes if node.call):
            found.setdefault(node.call, []).append(node)
        return found

    def call_instead(self, name: str, function: object) -> None:
        check_function(f"flow {self.name}: {name}", function, "value", "at")
        assert callable(function), "it was checked"
        for node in self.calls[name]:
            node.make = calling(name, function)

    def tells_time(self, part: Part) -> bool:
        """Whether a stage behind it asks for the time, or one behind that."""
        behind = [each for each in self.parts if any(b.is_derived and b.source in part.sinks for b in each.branches)]
        return any(each.asks_for_time or self.tells_time(each) for each in behind)

    @property
    def code(self) -> str:
        """The version and a fingerprint of the codecs: a holder with another one waits for those before it."""
        return f"{self.version}-{crc32c(' '.join(self.codecs).encode()):08x}"

    def begin(
        self, name: str, branches: tuple[Branch, ...], *, repeats: bool = True, files: FileSink | None = None
    ) -> Stream[Any, Any]:
        part = self._begun[self.claim_name(name)] = Part(self.name, name, branches, Node(repeats=repeats), files)
        return Stream(self, part, part.root)

    def become(self, parts: Iterable[Part]) -> None:
        self._begun = {part.name: part for part in parts}

    def dead_letters(self, otherwise: Dead | None) -> Dead | None:
        takes = 'where they go, such as Dead("orders.dead")'
        check_kind(f"flow {self.name}: otherwise", otherwise, (Dead, NoneType), takes)
        return otherwise or self.otherwise

    def claim_state(self, name: str, codec: Codec[S]) -> Codec[S]:
        self.claim_name(name)
        self.codecs.append(codec.name)
        return codec

    def claim_name(self, name: str) -> str:
        check_text(f"flow {self.name}: the name of a part", name, "totals")
        if name in self._names:
            raise ValueError(f"flow {self.name} has two parts with the name {name}: give one of them another (`name=`)")
        self._names.add(name)
        return name
