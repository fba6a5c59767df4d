"""A standalone Spark cluster of an experiment's own: executors are JVMs then, and one of them can die alone.

Local mode has no executors: tasks run in the driver's JVM, with Python workers beside it. The master and the worker
here are PySpark's own; all of it listens on loopback alone, on free ports. The worker starts executors for whichever
driver registers with the master, and another one where one has died.
"""

from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from oncelog.chaos.guard import Guard, end
from oncelog.chaos.life import HOST, Life, free_ports, listens
from oncelog.chaos.process_tree import below, command_of, end_session, session_of
from oncelog.spark.java import find_java, launching_home

CORES: Final = 2
EXECUTOR_MB: Final = 512
_EXECUTOR: Final = b"CoarseGrainedExecutorBackend"
_DEPLOY: Final = "org.apache.spark.deploy"


class SparkCluster:
    """`with SparkCluster(guard, folder, executors=2, environ=os.environ) as cluster:` a session's master is `url`."""

    def __init__(self, guard: Guard, folder: Path, *, executors: int, environ: Mapping[str, str]) -> None:
        (self.port,) = free_ports(1)
        self.url = f"spark://{HOST}:{self.port}"
        self._folder = folder
        self._executors = executors
        self._environ = environ
        self._master = Life("Spark's master", folder / "master.log", guard.popen)
        self._worker = Life("Spark's worker", folder / "worker.log", guard.popen)

    @property
    def settings(self) -> dict[str, str]:
        """The settings of a session on it."""
        return {
            "spark.master": self.url,
            "spark.ui.enabled": "false",
            "spark.driver.host": HOST,
            "spark.driver.bindAddress": HOST,
            "spark.cores.max": str(CORES),
            "spark.executor.cores": str(CORES // self._executors),
            "spark.executor.memory": f"{EXECUTOR_MB}m",
            "spark.locality.wait": "0s",
            "spark.task.maxFailures": "8",
        }

    def __enter__(self) -> Self:
        (self._folder / "java").mkdir(parents=True)
        home = launching_home(find_java(self._environ), self._folder / "java")
        try:
            self._launch(self._master, "master", home, "--port", str(self.port))
            self._master.await_ready(lambda: listens(self.port))
            size = ["--cores", str(CORES), "--memory", f"{self._executors * EXECUTOR_MB}m"]
            work = ["--work-dir", str(self._folder / "work"), self.url]
            self._launch(self._worker, "worker", home, "--port", "0", *size, *work)
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._end()

    @property
    def leader(self) -> int:
        """The leader of the session in which executors and their workers are."""
        return self._worker.pid

    def executors(self) -> list[int]:
        """The JVMs that run tasks; none until a driver has asked for some."""
        return sorted(pid for pid in session_of(self.leader) if _EXECUTOR in command_of(pid))

    def kill_executor(self, number: int) -> bool:
        """kill -9, with its Python workers. One that has none has not had a task yet; False where there is no other."""
        everyone = session_of(self.leader)
        workers = {executor: list(below(executor, everyone)) for executor in self.executors()}
        busy = [executor for executor, its in workers.items() if its]
        if not busy:
            return False
        executor = busy[number % len(busy)]
        for pid in (executor, *workers[executor]):
            end(pid)
        return True

    def _launch(self, life: Life, name: str, home: Path, *arguments: str) -> None:
        found = find_spec("pyspark")
        assert found is not None and found.origin is not None, "a cluster without PySpark"
        spark_home = Path(found.origin).parent
        variables = {
            "SPARK_HOME": str(spark_home),
            "JAVA_HOME": str(home),
            "SPARK_LOCAL_IP": HOST,
            "SPARK_LOCAL_DIRS": str(self._folder / "local"),
            "SPARK_DAEMON_MEMORY": "128m",
            "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
            # However many executors die, the application stays.
            "SPARK_MASTER_OPTS": "-Dspark.master.rest.enabled=false -Dspark.deploy.maxExecutorRetries=-1",
        }
        order = [str(spark_home / "bin" / "spark-class"), f"{_DEPLOY}.{name}.{name.capitalize()}"]
        order += ["--host", HOST, "--webui-port", "0", *arguments]
        life.launch(order, variables=variables, cwd=self._folder)

    def _end(self) -> None:
        """The worker first, with its executors, and their Python workers."""
        for life in (self._worker, self._master):
            if life.was_started:
                end_session(life.process)
