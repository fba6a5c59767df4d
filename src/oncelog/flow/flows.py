"""A flow, as users have it in hand."""

from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from typing import Any, Final, Protocol

from oncelog.flow.backfilling import Target, beside
from oncelog.flow.program import Program
from oncelog.flow.simulating import SEEDS, Crashes, Simulated, simulate
from oncelog.flow.topics import Sent

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


class Flow(Program):
    def run(
        self,
        properties: Mapping[str, Any],
        *,
        spark: Any = None,
        until: str | None = None,
        run_id: str | None = None,
        **options: Any,
    ) -> None:
        """In this process, until Ctrl-C or SIGTERM; with `until="end"` up to where its inputs end now. A run with a
        `run_id` that was begun before is the same run and has its ends; one that is finished is not repeated.
        A run with `until` that a signal stops early raises SystemExit, so that nobody takes it for finished.
        `metrics="HOST:PORT"`: Prometheus text is served at /metrics there.

        With a Spark session the cells are at work in Spark's tasks: `tasks=` says in how many at a time, by default all
        slots but one, and `tenure=` for how many seconds a task holds its cells (300)."""
        signalled = self.start(properties, spark=spark, until=until, run_id=run_id, **options).work()
        if signalled is not None and until is not None:
            raise SystemExit(SIGNALLED + signalled)

    def start(
        self,
        properties: Mapping[str, Any],
        *,
        spark: Any = None,
        until: str | None = None,
        run_id: str | None = None,
        **options: Any,
    ) -> Run:
        """The same, and returns once its cells are at work."""
        # The room of the runner stands above this one, which is pure: it is found by its name, when it is needed.
        if spark is not None:
            options |= {"spark": spark}
        room = "oncelog.runner" if spark is None else "oncelog.spark.flows"
        started: Run = import_module(room).start(self, properties, until=until, run_id=run_id, **options)
        return started

    def stream(
        self,
        properties: Mapping[str, Any],
        *,
        spark: Any,
        until: str | None = None,
        run_id: str | None = None,
        **options: Any,
    ) -> Any:
        """On Spark as a real StreamingQuery, which this returns: a batch is a tenancy (`tenure=`, 60 seconds), with
        `until="end"` the only one, by `availableNow`. `start` with a session serves those who need no query better."""
        return import_module("oncelog.spark.flows").stream(
            self, properties, spark=spark, until=until, run_id=run_id, **options
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
        """Another run of the same flow, beside the live one: over what its inputs got since a time and before another
        (from their start, up to now), into other topics, with state of its own. `into` says where all that it writes
        goes instead. Called again with the same name it goes on, and one that is finished is not repeated."""
        other = beside(self, name, into, since_ms=since_ms, until_ms=until_ms)
        other.run(properties, spark=spark, until="end", run_id=name, **options)

    def simulate(
        self,
        sent: Iterable[Sent],
        end: int | None = None,
        *,
        crashes: Crashes = False,
        seeds: Iterable[int] = SEEDS,
    ) -> Simulated:
        """Runs it in memory over these records, and with `end` until that time of events, in milliseconds.

        With `crashes` the holder of a cell is killed at each point where something was sent or appended. "everywhere"
        also lets it go on behind the one that follows, and makes histories by chance: a seed is the order in which
        cells take turns and inputs grow, and the faults. All of them must come to what the functions make of the input
        once; what does not is told, as short as it can be made."""
        return simulate(self, sent, end, crashes=crashes, seeds=seeds)
