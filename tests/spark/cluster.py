"""A standalone Spark cluster on this machine: a master, and workers that look like hosts of their own.

Local mode hides what happens on clusters: nothing speculates on one host, and a lost executor is a lost driver. Each
worker here has a loopback address of its own (127.0.0.2, 127.0.0.3, ...), which Spark takes for another host.
"""

import importlib.util
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.waiting import until

START_SECONDS = 60
STOP_SECONDS = 20
MASTER = "org.apache.spark.deploy.master.Master"
WORKER = "org.apache.spark.deploy.worker.Worker"
EXECUTOR = "CoarseGrainedExecutorBackend"


def spark_home() -> Path:
    found = importlib.util.find_spec("pyspark")
    assert found is not None and found.origin is not None, "pyspark is not installed"
    return Path(found.origin).parent


class StandaloneCluster:
    """`with StandaloneCluster(tmp_path) as cluster:` a master whose `url` a session takes as its master.

    Executors are started by the first session that asks for them: `executor_pids()` is empty until then.
    """

    def __init__(
        self,
        folder: Path,
        workers: int = 2,
        cores: int = 1,
        memory: str = "1g",
        variables: dict[str, str] | None = None,
    ) -> None:
        self.folder = folder
        self.url = ""
        self._count = workers
        self._cores = cores
        self._memory = memory
        self._variables = variables or {}
        self._master: subprocess.Popen[bytes] | None = None
        self._workers: list[subprocess.Popen[bytes]] = []

    # --- its life -----------------------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        self.folder.mkdir(parents=True, exist_ok=True)
        try:
            self._master = self._launch("master", "127.0.0.1", MASTER, "--host", "127.0.0.1")
            self.url = self._said("master", r"Starting Spark master at (spark://\S+)")
            for number in range(self._count):
                self._workers.append(self._launch_worker(number))
            for number in range(self._count):
                self._said(self._worker_name(number), r"Successfully registered with (master \S+)")
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    def stop(self) -> None:
        """Ends all that it started, the workers first: they end their executors."""
        pids = self.executor_pids()
        processes = [process for process in (*self._workers, self._master) if process is not None]
        for process in processes:
            process.terminate()
        for process in processes:
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        for pid in pids:
            _kill(pid)
        self._workers, self._master = [], None

    # --- what tests do to it ------------------------------------------------------------------------------------------

    @staticmethod
    def host(number: int) -> str:
        """The address of worker `number`, counted from 0."""
        return f"127.0.0.{number + 2}"

    def worker_pid(self, number: int) -> int:
        return self._workers[number].pid

    def executor_pids(self, number: int | None = None) -> list[int]:
        """The JVMs that run tasks, of one worker or of all that live."""
        workers = self._workers if number is None else [self._workers[number]]
        living = [worker.pid for worker in workers if worker.poll() is None]
        return [pid for worker in living for pid in _children(worker) if EXECUTOR in _command(pid)]

    def python_pids(self, executor_pid: int) -> list[int]:
        """The Python daemon of an executor and the workers that it forked."""
        daemons = _children(executor_pid)
        return daemons + [pid for daemon in daemons for pid in _children(daemon)]

    def kill_worker(self, number: int) -> None:
        """kill -9 of a host's JVMs, the executors' too; their Python workers are left behind, as on a real one."""
        executors = self.executor_pids(number)
        worker = self._workers[number]
        worker.kill()
        worker.wait()
        for pid in executors:
            _kill(pid)

    def kill_executor(self, number: int) -> None:
        """kill -9 of the executors of one worker; the worker lives, and the master has it start another."""
        for pid in self.executor_pids(number):
            _kill(pid)

    def start_worker(self, number: int) -> None:
        """A killed worker again, under the same address."""
        assert self._workers[number].poll() is not None, f"worker {number} is running"
        self._log(self._worker_name(number)).unlink()
        self._workers[number] = self._launch_worker(number)
        self._said(self._worker_name(number), r"Successfully registered with (master \S+)")

    def log_text(self) -> str:
        return "\n".join(path.read_text(errors="replace") for path in sorted(self.folder.glob("*.log")))

    @contextmanager
    def stopped(self, pid: int) -> Iterator[None]:
        """A process that stands still, as one that is cut off does, and goes on afterwards."""
        os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            _signal(pid, signal.SIGCONT)

    # --- how --------------------------------------------------------------------------------------------------------

    @staticmethod
    def _worker_name(number: int) -> str:
        return f"worker-{number}"

    def _log(self, name: str) -> Path:
        return self.folder / f"{name}.log"

    def _launch_worker(self, number: int) -> subprocess.Popen[bytes]:
        name = self._worker_name(number)
        host = self.host(number)
        size = ["--cores", str(self._cores), "--memory", self._memory, "--work-dir", str(self.folder / name)]
        return self._launch(name, host, WORKER, "--host", host, *size, self.url)

    def _launch(self, name: str, host: str, what: str, *arguments: str) -> subprocess.Popen[bytes]:
        home = spark_home()
        variables: dict[str, Any] = {
            "SPARK_HOME": str(home),
            "SPARK_LOCAL_IP": host,
            "SPARK_DAEMON_MEMORY": "128m",
            "SPARK_LOCAL_DIRS": str(self.folder / "local"),
            "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
            "SPARK_MASTER_OPTS": "-Dspark.master.rest.enabled=false",
            **self._variables,
        }
        order = [str(home / "bin/spark-class"), what, "--port", "0", "--webui-port", "0", *arguments]
        with open(self._log(name), "wb") as log:
            return subprocess.Popen(
                order, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.folder, env=os.environ | variables
            )

    def _said(self, name: str, pattern: str) -> str:
        """What a process wrote into its log once it was ready; the log itself where it ended instead."""

        def found() -> re.Match[str] | None:
            text = self._log(name).read_text(errors="replace")
            index = 0 if name == "master" else int(name.rpartition("-")[2])
            process = self._master if name == "master" else self._workers[index]
            assert process is not None and process.poll() is None, f"{name} ended:\n{text[-3000:]}"
            return re.search(pattern, text)

        match = until(found, f"{name} to be ready", give_up_seconds=START_SECONDS)
        assert match is not None
        return match[1]


def _children(pid: int) -> list[int]:
    try:
        tasks = list(Path(f"/proc/{pid}/task").iterdir())
        return [int(child) for task in tasks for child in (task / "children").read_text().split()]
    except OSError:
        return []


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def _kill(pid: int) -> None:
    _signal(pid, signal.SIGKILL)


def _signal(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass
