"""A standalone Spark cluster on this machine: a master, and workers that look like hosts of their own.

Local mode hides what happens on clusters: nothing speculates on one host, and a lost executor is a lost driver. Each
worker here has a loopback address of its own (127.0.0.2, 127.0.0.3, ...), which Spark takes for another host.
"""

import importlib.util
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from oncelog.chaos.life import Life
from oncelog.chaos.process_tree import command_of
from tests.lives.processes import children, kill, lives

MASTER = "org.apache.spark.deploy.master.Master"
WORKER = "org.apache.spark.deploy.worker.Worker"
EXECUTOR = b"CoarseGrainedExecutorBackend"
REGISTERED = r"Successfully registered with (master \S+)"
START_S = 240.0  # a JVM beside eight busy processes takes its time; one that ends is noticed at once


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
        self._cores = cores
        self._memory = memory
        self._variables = variables or {}
        self._master = Life("master", folder / "master.log")
        self._workers: list[Life] = []
        self._first_workers = workers

    # --- its life -----------------------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        self.folder.mkdir(parents=True, exist_ok=True)
        try:
            self._launch(self._master, "127.0.0.1", MASTER, "--host", "127.0.0.1")
            self.url = self._master.await_words(r"Starting Spark master at (spark://\S+)", START_S)
            for number in range(self._first_workers):
                self._workers.append(self._life_of(number))
                self._launch_worker(number)
            for worker in self._workers:
                worker.await_words(REGISTERED, START_S)
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    def stop(self) -> None:
        """Ends all that it started, the workers first: they end their executors."""
        pids = self.executor_pids()
        for life in (*self._workers, self._master):
            life.stop()
        for pid in pids:
            kill(pid)

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
        living = [worker.pid for worker in workers if worker.is_running]
        return [pid for worker in living for pid in children(worker) if EXECUTOR in command_of(pid)]

    def python_pids(self, executor_pid: int) -> list[int]:
        """The Python daemon of an executor and the workers that it forked."""
        daemons = children(executor_pid)
        return daemons + [pid for daemon in daemons for pid in children(daemon)]

    def kill_worker(self, number: int) -> None:
        """kill -9 of a host's JVMs, the executors' too; their Python workers are left behind, as on a real one."""
        executors = self.executor_pids(number)
        worker = self._workers[number]
        worker.kill()
        for pid in executors:
            kill(pid)

    def kill_executor(self, number: int) -> None:
        """kill -9 of the executors of one worker; the worker lives, and the master has it start another."""
        for pid in self.executor_pids(number):
            kill(pid)

    def start_worker(self, number: int) -> None:
        """A killed worker again, under the same address."""
        assert not self._workers[number].is_running, f"worker {number} is running"
        self._workers[number].log.unlink()
        self._begin_worker(number)

    def add_worker(self) -> int:
        """One more host; its number."""
        number = len(self._workers)
        self._workers.append(self._life_of(number))
        self._begin_worker(number)
        return number

    def log_text(self) -> str:
        return "\n".join(path.read_text(errors="replace") for path in sorted(self.folder.glob("*.log")))

    @contextmanager
    def stopped(self, pid: int) -> Iterator[None]:
        """A process that stands still, as one that is cut off does, and goes on afterwards."""
        os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            if lives(pid):
                os.kill(pid, signal.SIGCONT)

    # --- how --------------------------------------------------------------------------------------------------------

    def _life_of(self, number: int) -> Life:
        return Life(f"worker-{number}", self.folder / f"worker-{number}.log")

    def _begin_worker(self, number: int) -> None:
        self._launch_worker(number)
        self._workers[number].await_words(REGISTERED, START_S)

    def _launch_worker(self, number: int) -> None:
        worker = self._workers[number]
        host = self.host(number)
        size = ["--cores", str(self._cores), "--memory", self._memory, "--work-dir", str(self.folder / worker.name)]
        self._launch(worker, host, WORKER, "--host", host, *size, self.url)

    def _launch(self, life: Life, host: str, what: str, *arguments: str) -> None:
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
        life.launch(order, stdin=subprocess.DEVNULL, cwd=self.folder, env=os.environ | variables)
