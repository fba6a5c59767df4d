"""The bench's side of a contestant: starts its driver, tells it jobs, counts the processor time of all it started."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from bench.process import ROOT
from oncelog.chaos.process_tree import end_session, session_of, ticks_of
from tests.peers.jars import spark_connector_jars

SPARK = "spark"
EMPTY = "empty"
OURS = "oncelog"
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
STOP_S = 20


def session_cpu_seconds(leader: int) -> float:
    """Of all processes of a session, and of those that they have waited for."""
    return sum(ticks_of(pid, with_children=True) for pid in session_of(leader)) / _TICKS_PER_S


class JobFailed(RuntimeError):
    pass


class Contestant:
    """`local[2]`, 2 GB, nothing but the loopback address."""

    def __init__(
        self,
        kind: str,
        folder: Path,
        *,
        conf: Mapping[str, str] | None = None,
        variables: Mapping[str, str] | None = None,
        memory: str = "2g",
    ) -> None:
        self.kind = kind
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._conf = {
            "spark.driver.memory": memory,
            "spark.driver.host": "127.0.0.1",
            "spark.ui.enabled": "false",
            "spark.sql.session.timeZone": "UTC",
            "spark.local.dir": str(folder / "local"),
            "spark.sql.warehouse.dir": str(folder / "warehouse"),
            "spark.sql.streaming.numRecentProgressUpdates": "2000",
            **(conf or {}),
        }
        if kind == SPARK:
            jars = sorted(spark_connector_jars().glob("*.jar"))
            self._conf["spark.jars"] = ",".join(str(path) for path in jars)
        self._variables = dict(variables or {})
        self._process: subprocess.Popen[str] | None = None
        self.session_s = 0.0

    def __enter__(self) -> Self:
        path = os.pathsep.join([str(ROOT), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
        started = time.perf_counter()
        with open(self.folder / "driver.log", "ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "bench.spark_driver"],
                cwd=self.folder,
                env={**os.environ, "PYTHONPATH": path, **self._variables},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            )
        self._tell({"conf": self._conf, "ours": self.kind != SPARK})  # the empty one lives in a session as ours does
        self._answer()
        self.session_s = time.perf_counter() - started
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        process = self._process
        if process is None:
            return
        assert process.stdin is not None
        process.stdin.close()
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            end_session(process)

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def do(self, job: str, **arguments: Any) -> dict[str, Any]:
        """The job's answer, with the processor seconds of this contestant's processes."""
        before = session_cpu_seconds(self.pid)
        self._tell({"job": job, **arguments})
        answer = self._answer()
        if "failed" in answer:
            raise JobFailed(f"{self.kind}: {job}: {answer['failed']}")
        answer["cpu_s"] = session_cpu_seconds(self.pid) - before
        return answer

    def _tell(self, order: dict[str, Any]) -> None:
        assert self._process is not None and self._process.stdin is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()

    def _answer(self) -> dict[str, Any]:
        assert self._process is not None and self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise JobFailed(f"{self.kind} ended:\n{(self.folder / 'driver.log').read_text()[-4000:]}")
        found: dict[str, Any] = json.loads(line)
        return found
