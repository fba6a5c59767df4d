"""The pipeline of an experiment, from outside: it is killed and started again, and what it must write is known."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import numpy as np

from oncelog.chaos.audit import Numbers
from oncelog.chaos.guard import Guard, end, pids
from oncelog.chaos.outcome import Stopped

MOST_RESTARTS: Final = 20  # of a driver that ended by itself
_WORKER: Final = b"pyspark.daemon"


def outputs_of(numbers: Numbers) -> Numbers:
    """What `pipeline_job.py` makes of these, in its order."""
    rows = numbers % 3
    made: Numbers = np.repeat(2 * numbers, rows)
    firsts = np.repeat(np.cumsum(rows) - rows, rows)  # where the rows of each number begin
    return made + np.arange(len(made)) - firsts


class PipelineEnded(Stopped):
    """The driver ended by itself again and again."""


@dataclass(frozen=True, slots=True)
class PipelineOrder:
    servers: str
    read: str
    write: str
    checkpoint: str


class PipelineLives:
    """`pipeline_job.py`, life after life, on one checkpoint."""

    def __init__(self, guard: Guard, folder: Path, order: PipelineOrder) -> None:
        self._guard = guard
        self.restarts = 0  # because it ended by itself
        self._folder = folder
        self._log = folder / "pipeline.log"
        self._order = order
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self._folder.mkdir(parents=True, exist_ok=True)
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.kill()

    def start(self) -> None:
        command = [sys.executable, "-m", "oncelog.chaos.pipeline_job", json.dumps(asdict(self._order))]
        with open(self._log, "ab") as log:
            self._process = self._guard.popen(command, stdout=log, stderr=log, cwd=self._folder)

    def kill(self) -> None:
        """kill -9, with the JVM and all that it has started: as when the machine goes."""
        if self._process is None:
            return
        for pid in self._pids():
            end(pid)
        self._process.wait()

    def kill_worker(self, number: int) -> bool:
        """One of the Python processes in which tasks run; False where there is none just now."""
        workers = [pid for pid in self._pids() if _WORKER in _command(pid)]
        if not workers:
            return False
        end(workers[number % len(workers)])
        return True

    def keep_alive(self) -> None:
        """Start it again where it has ended by itself, as a supervisor would."""
        if self._process is None or self._process.poll() is None:
            return
        self.restarts += 1
        if self.restarts > MOST_RESTARTS:
            raise PipelineEnded(f"the pipeline ended by itself {self.restarts} times:\n{self.last_words()}")
        self.kill()  # what it has left behind
        self.start()

    def last_words(self) -> str:
        return self._log.read_text(errors="replace")[-3000:] if self._log.exists() else ""

    def _pids(self) -> Iterator[int]:
        """All of the driver's session, its JVM and Python's workers among them."""
        assert self._process is not None
        return (pid for pid in pids() if _session(pid) == self._process.pid)


def _session(pid: int) -> int:
    try:
        return os.getsid(pid)
    except ProcessLookupError:
        return -1


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""
