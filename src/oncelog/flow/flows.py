"""Flows, as users write and run them."""

from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from typing import Any, Final, Literal, Protocol, TypeVar

from oncelog.arguments import as_whole, check_kind, number_within
from oncelog.flow.backfilling import Target, beside
from oncelog.flow.operations.join import MOST_ROWS, kept
from oncelog.flow.parts import EARLIEST, LATEST, Branch, Node
from oncelog.flow.program import A_TOPIC, Program, Stream, Table
from oncelog.flow.simulating import SEEDS, Crashes, Simulated, simulate
from oncelog.flow.topics import Dead, Sent, Topic

K = TypeVar("K")
V = TypeVar("V")

SIGNALLED: Final = 128  # and the number: as a shell says of a process that ended by a signal


class Run(Protocol):
    """A flow at work. Its names are those of Spark's StreamingQuery."""

    @property
    def id(self) -> str: ...

    @property
    def run_id(self) -> str: ...

    @property
    def name(self) -> str: ...

    @property
    def is_active(self) -> bool: ...

    @property
    def status(self) -> dict[str, Any]: ...

    @property
    def last_progress(self) -> dict[str, Any] | None: ...

    @property
    def recent_progress(self) -> list[dict[str, Any]]: ...

    @property
    def cells(self) -> Sequence[Any]: ...

    @property
    def is_paused(self) -> bool: ...
    @property
    def metrics(self) -> str | None: ...

    def exception(self) -> Exception | None: ...

    def await_termination(self, timeout: float | None = None) -> bool | None: ...

    def stop(self) -> None: ...

    def work(self) -> int | None: ...


class Flow:
    """A flow: topics that it reads, steps with state for each key, topics that it writes.

    `simulate` runs it in memory, `run` and `start` against brokers. `program` is its description, for those who run it.
    """

    def __init__(self, name: str, *, version: str, otherwise: Dead | None = None) -> None:
        """`otherwise`: the topic for records that cannot be worked on. Without it a cell stops at such a record."""
        self.program = Program(name, version=version, otherwise=otherwise)

    @property
    def name(self) -> str:
        return self.program.name

    @property
    def version(self) -> str:
        return self.program.version

    def read(
        self,
        topic: Topic[K, V],
        *,
        name: str | None = None,
        wait_ms: int = 0,
        otherwise: Dead | None = None,
        headers: bool = False,
        start: Literal["earliest", "latest"] | int = "earliest",
    ) -> Stream[K, V]:
        """Read a topic. `wait_ms`: by how much a record may be older than those before it and still be in time.
        `headers`: functions can read them, as `at.headers`. `start`: where a flow that has never read the topic begins;
        a number is a time in milliseconds, by the log's times."""
        program, what = self.program, f"flow {self.name}: read"
        check_kind(what, topic, Topic, A_TOPIC)
        wait_ms = number_within(f"{what} of {topic.name}: wait_ms", wait_ms, 0)
        begins = start if start in (EARLIEST, LATEST) else as_whole(start)
        if begins is None or (isinstance(begins, int) and begins < 0):
            raise ValueError(
                f"flow {self.name}: {topic.name} is read from start={start!r}; it is {EARLIEST!r}, {LATEST!r}, or a "
                "time in milliseconds since 1970"
            )
        program.codecs += [topic.key.name, topic.value.name]
        otherwise = program.dead_letters(otherwise)
        branch = Branch(topic, wait_ms=wait_ms, otherwise=otherwise, has_headers=headers, start=begins)
        return program.begin(name or topic.name, (branch,))

    def table(
        self, topic: Topic[K, V], *, name: str | None = None, most: int = MOST_ROWS, otherwise: Dead | None = None
    ) -> Table[K, V]:
        """The last value of each key of a compacted topic, for streams to be joined with; a null value deletes a key.
        Each partition may have `most` rows, which are state of its cell."""
        program = self.program
        check_kind(f"flow {self.name}: table", topic, Topic, A_TOPIC)
        name = name or topic.name
        program.codecs.append(topic.key.name)
        keeps = Node(kept(name, program.claim_state(name, topic.value), topic.partitions, most))
        return Table(name, Branch(topic, (keeps,), otherwise=program.dead_letters(otherwise), is_table=True))

    def run(
        self,
        properties: Mapping[str, Any],
        *,
        spark: Any = None,
        until: str | None = None,
        run_id: str | None = None,
        **options: Any,
    ) -> None:
        """Run in this process until Ctrl-C or SIGTERM, or, with `until="end"`, up to where its inputs end now.

        With a `run_id` that was begun before, it is the same run, with the same ends; a finished run is not repeated.
        A run with `until` that a signal stops early raises SystemExit, since it has not finished.
        `metrics="HOST:PORT"` serves Prometheus text there, at /metrics.

        With a Spark session, Spark's tasks do the work of the cells: `tasks=` is how many at a time (by default all
        slots but one), and `tenure=` for how many seconds a task holds its cells (300)."""
        _work(self.start(properties, spark=spark, until=until, run_id=run_id, **options), until)

    def start(
        self,
        properties: Mapping[str, Any],
        *,
        spark: Any = None,
        until: str | None = None,
        run_id: str | None = None,
        **options: Any,
    ) -> Run:
        """Run as `run` does, and return once its cells are at work."""
        return _started(self.program, properties, spark=spark, until=until, run_id=run_id, **options)

    def stream(
        self,
        properties: Mapping[str, Any],
        *,
        spark: Any,
        until: str | None = None,
        run_id: str | None = None,
        **options: Any,
    ) -> Any:
        """Run on Spark as a real StreamingQuery, which is returned. A batch is a tenancy (`tenure=`, 60 seconds); with
        `until="end"` it is the only one, by `availableNow`. Where no query is needed, `start` with a session serves
        better."""
        return import_module("oncelog.spark.flows").stream(
            self.program, properties, spark=spark, until=until, run_id=run_id, **options
        )

    def backfill(
        self,
        name: str,
        properties: Mapping[str, Any],
        *,
        into: Mapping[Target, Target],
        since_ms: int | None = None,
        until_ms: int | None = None,
        spark: Any = None,
        **options: Any,
    ) -> None:
        """Run the same flow once more, beside the live one: over the input since one time and before another (by
        default from its start up to now), into other topics, with state of its own. `into` names another topic for each
        one that the flow writes. Called again with the same name it goes on; a finished one is not repeated."""
        other = beside(self.program, name, into, since_ms=since_ms, until_ms=until_ms)
        _work(_started(other, properties, spark=spark, until="end", run_id=name, **options), "end")

    def simulate(
        self,
        sent: Iterable[Sent],
        end: int | None = None,
        *,
        crashes: Crashes = False,
        seeds: Iterable[int] = SEEDS,
    ) -> Simulated:
        """Run the flow in memory over these records, and with `end` until that time of events, in milliseconds.

        With `crashes` the holder of a cell is killed at each point where something was sent or appended. "everywhere"
        also lets it go on behind the one that follows, and makes histories by chance: a seed is the order in which
        cells take turns and inputs grow, and the faults. All runs must have the same result: that of the functions over
        the input, once. Raises Stopped for one that differs, with a story of it as short as can be found."""
        return simulate(self.program, sent, end, crashes=crashes, seeds=seeds)


def _started(
    program: Program,
    properties: Mapping[str, Any],
    *,
    spark: Any,
    until: str | None,
    run_id: str | None,
    **options: Any,
) -> Run:
    # The room of the runner stands above this one, which is pure: it is found by its name, when it is needed.
    if spark is not None:
        options |= {"spark": spark}
    room = "oncelog.runner" if spark is None else "oncelog.spark.flows"
    started: Run = import_module(room).start(program, properties, until=until, run_id=run_id, **options)
    return started


def _work(run: Run, until: str | None) -> None:
    signalled = run.work()
    if signalled is not None and until is not None:
        raise SystemExit(SIGNALLED + signalled)
