"""The pipeline of an experiment, from outside: it is killed and started again, and what it must write is known."""

import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import numpy as np

from oncelog.chaos.audit import Numbers
from oncelog.chaos.guard import Guard, end
from oncelog.chaos.life import Life
from oncelog.chaos.order_variable import telling
from oncelog.chaos.outcome import Pipeline
from oncelog.chaos.process_tree import command_of, end_session, name_of, parent_of, session_of, ticks_of
from oncelog.chaos.sinks import FLOW, KAFKA
from oncelog.chaos.stopped import Stopped

MOST_RESTARTS: Final = 20  # of a driver that ended by itself
MOST_FALSE_STARTS: Final = 2  # before its first batch: it will not get any further
TASKS: Final = 2  # at once
_WORKER: Final = b"pyspark.worker"
_JARS, _PACKAGES = "spark.jars", "spark.jars.packages"
# A process that is killed again and again lives for seconds: the second compiler does not pay off.
_QUICK: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
_SETTINGS: Final[Mapping[str, str]] = {
    # Of local tasks, too, an attempt may fail: a worker is killed.
    "spark.master": f"local[{TASKS},8]",
    "spark.driver.memory": "1g",
    "spark.driver.extraJavaOptions": _QUICK,
    "spark.executor.extraJavaOptions": _QUICK,
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
}


def outputs_of(numbers: Numbers) -> Numbers:
    """The rows that `pipeline_job.py` makes of these, in its order."""
    rows = numbers % 3
    made: Numbers = np.repeat(2 * numbers, rows)
    firsts = np.repeat(np.cumsum(rows) - rows, rows)  # where the rows of each number begin
    return made + np.arange(len(made)) - firsts


def due_of(numbers: Numbers, messages: int) -> Numbers:
    """The rows due for these numbers, of which somebody else may have sent some."""
    return outputs_of(numbers[(numbers >= 0) & (numbers < messages)])


def settings_of(pipeline: Pipeline, of_cluster: Mapping[str, str]) -> dict[str, str]:
    """Spark's own sink is a package, which Spark fetches where nobody says where it lies."""
    of_flow = {"spark.master": f"local[{TASKS + 1},8]"} if pipeline.sink == FLOW else {}  # which leaves a slot free
    found = {**_SETTINGS, **of_flow, **of_cluster, **pipeline.conf}
    if pipeline.sink == KAFKA and not {_JARS, _PACKAGES} & found.keys():
        found[_PACKAGES] = f"org.apache.spark:spark-sql-kafka-0-10_2.13:{version('pyspark')}"
    return found


class PipelineEnded(Stopped):
    """The driver ended by itself again and again."""


@dataclass(frozen=True, slots=True)
class PipelineOrder:
    servers: str
    read: str
    write: str
    folder: str  # for its checkpoint, and whatever else it keeps
    sink: str
    partitions: int
    rows_a_batch: int
    settings: dict[str, str] = field(repr=False)  # of the session
    login: Mapping[str, str] = field(default_factory=dict, repr=False)  # properties by which one gets in


class PipelineLives(Life):
    """`pipeline_job.py`, life after life, on one checkpoint."""

    def __init__(self, guard: Guard, folder: Path, order: PipelineOrder) -> None:
        super().__init__("the pipeline", folder / "pipeline.log", guard.popen)
        self.restarts = 0  # because it ended by itself
        self._folder = folder
        self._order = order
        self._abandoned: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Self:
        self._folder.mkdir(parents=True, exist_ok=True)
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.kill()
        for process in self._abandoned:
            end_session(process)

    def start(self) -> None:
        module = "oncelog.chaos.flow_job" if self._order.sink == FLOW else "oncelog.chaos.pipeline_job"
        variables = telling(asdict(self._order))
        self.launch([sys.executable, "-m", module], variables=variables, cwd=self._folder)

    def kill(self) -> None:
        """kill -9, with the JVM and all that it has started: as when the machine goes."""
        if self.was_started:
            end_session(self.process)

    def abandon(self) -> list[int]:
        """Leave this life to itself while another one begins; its processes."""
        found = session_of(self.pid)
        self._abandoned.append(self.process)
        return found

    def kill_worker(self, number: int) -> bool:
        """One of the Python processes in which tasks run: of those that have worked most, as many as run at once.
        False where there is none just now."""
        workers = workers_of(self.pid)
        if not workers:
            return False
        busiest = sorted(workers, key=ticks_of, reverse=True)[:TASKS]
        end(busiest[number % len(busiest)])
        return True

    def keep_alive(self, most_restarts: int) -> None:
        """Start it again where it has ended by itself, as a supervisor would."""
        if self.is_running:
            return
        self.restarts += 1
        if self.restarts > most_restarts:
            ended = f"the pipeline ended by itself {self.restarts} times:\n{self.last_words()}"
            package = self._order.settings.get(_PACKAGES, "")
            hint = f"\nSpark was to fetch {package}; --spark-conf spark.jars=FILE,... names files that are here"
            raise PipelineEnded(ended + hint * bool(package))
        self.kill()  # what it has left behind
        self.start()


def workers_of(leader: int) -> list[int]:
    """The Python processes of this session in which tasks run."""
    return [pid for pid in session_of(leader) if _is_worker(pid)]


def _is_worker(pid: int) -> bool:
    """Workers are forked by a daemon, and are called the same. Those that plan queries have daemons of other names."""
    return _runs_tasks(pid) and _runs_tasks(parent_of(pid))


def _runs_tasks(pid: int) -> bool:
    """Its name where it was forked from a process that runs no tasks, else what it was started with."""
    return name_of(pid) == _WORKER or b"pyspark.daemon\0" + _WORKER in command_of(pid)
