"""The parts of a flow as a description: operations, what they read, where their results go."""

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from oncelog.flow.description import Collect
from oncelog.flow.scope import Make
from oncelog.flow.topics import Dead, Topic

SAME: Final = "the same"
OTHER: Final = "another"
ROOM: Final = "oncelog.flow."
EARLIEST: Final = "earliest"
LATEST: Final = "latest"


class Sink(NamedTuple):
    topic: Topic[Any, Any]
    key: Callable[[Any], Any] | None  # None: the key stays
    tells_source: bool = False


class FileSink(NamedTuple):
    """A folder of Parquet files, with columns of these values."""

    url: str
    kind: Any
    every_ms: int
    records: int  # of a file, at most


class Node:
    """An operation on what comes from the one before it, and where its results go."""

    def __init__(
        self,
        make: Make | None = None,
        before: "Node | None" = None,
        *,
        asks_for_time: bool = False,
        repeats: bool = True,
        gives: Any = None,
        table: "Branch | None" = None,
    ) -> None:
        """`gives`: where it looks at one record and keeps no state, which type its results are: SAME, OTHER or one.
        `table`: whose rows it looks at."""
        self.make = make
        self.table = table
        self.before = before
        self.asks_for_time = asks_for_time
        self.tells_at_commits = False  # or what comes before it does
        self.repeats: bool = repeats and (before is None or before.repeats)  # the same comes out, also after a crash
        self.gives = gives
        self.children: list[Node] = []
        self.sinks: list[Sink] = []
        self.is_taken = False  # by a merge, or by files
        self.call = ""  # the name of a function that need not give the same for the same
        self.line = _line()

    def then(self, make: Make, *, gives: Any = None, table: "Branch | None" = None, **how: bool) -> "Node":
        child = Node(make, self, gives=gives, table=table, **how)
        child.tells_at_commits = self.tells_at_commits
        self.children.append(child)
        return child

    @property
    def path(self) -> tuple["Node", ...]:
        """The operations up to here."""
        own = () if self.make is None else (self,)
        return own if self.before is None else (*self.before.path, *own)

    @property
    def below(self) -> tuple["Node", ...]:
        """Itself, and what follows."""
        return (self, *(node for child in self.children for node in child.below))

    @property
    def writes(self) -> bool:
        return any(node.sinks for node in self.below)


def _line() -> str:
    """The line of the user's program that led here."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(ROOM):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}, line {frame.f_lineno}"


class Branch(NamedTuple):
    """An input, and what happens to its records before they meet those of others."""

    source: Topic[Any, Any]
    operations: tuple[Node, ...] = ()
    wait_ms: int = 0  # for records that are older than what came before them
    is_derived: bool = False
    otherwise: Dead | None = None
    has_headers: bool = False  # that operations look at
    is_table: bool = False  # its records are rows, that the others are joined with
    start: str | int = EARLIEST  # where it is read from at first: or LATEST, or what came since a time


@dataclass(frozen=True)
class Part:
    """A part of a flow that becomes one stage: from topics to topics."""

    flow: str
    name: str
    branches: tuple[Branch, ...]
    root: Node  # what happens to all of them
    files: FileSink | None = None

    @property
    def sinks(self) -> tuple[Topic[Any, Any], ...]:
        """Its output topics."""
        written = [sink.topic for node in self.root.below for sink in node.sinks]
        return tuple({topic.name: topic for topic in (*self.dead, *written)}.values())

    @property
    def dead(self) -> tuple[Topic[Any, Any], ...]:
        return tuple(branch.otherwise.topic for branch in self.inputs if branch.otherwise)

    @property
    def nodes(self) -> Iterator[Node]:
        """Its operations, those of each branch first."""
        for branch in self.branches:
            yield from branch.operations
        yield from self.root.below

    @property
    def inputs(self) -> tuple[Branch, ...]:
        """Several: their order is planned. Tables come last."""
        tables = dict.fromkeys(node.table for node in self.nodes if node.table and self._is_at_work(node))
        return (*self.branches, *tables)

    def _is_at_work(self, node: Node) -> bool:
        return node.writes or any(node in branch.operations for branch in self.branches)

    @property
    def is_derived(self) -> bool:
        """It reads topics that the flow passes `through`, and no others."""
        return len(self.branches) == 1 and self.branches[0].is_derived

    @property
    def asks_for_time(self) -> bool:
        return self.files is not None or any(node.asks_for_time for node in self.nodes)

    @property
    def has_plan(self) -> bool:
        """Its result hangs on more than the order of one input."""
        return len(self.inputs) > 1 or self.asks_for_time or self.files is not None

    @property
    def collect(self) -> Collect | None:
        return None if self.files is None else Collect(self.files.every_ms, self.files.records)
