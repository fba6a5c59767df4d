"""The harness's side of a driver: it is started, told what to run, killed, and started again."""

import json
import os
import socket
import subprocess
import sys
import threading
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pyspark

from oncelog.chaos.life import Life
from oncelog.spark.class_archive import archive_of
from oncelog.spark.java import find_java, launching_home
from tests.lives.processes import await_end, children, kill, lives
from tests.peers.jars import spark_connector_jars
from tests.spark.kills.control import SITE
from tests.spark.kills.queries import Query
from tests.waiting import until

ROOT = Path(__file__).parents[3]
ANSWER_S = 240.0
END_S = 30.0
# A driver here lives for seconds: neither the second compiler nor the verifier of bytecode pays off.
QUICK_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"


@cache
def quick_java() -> str:
    """Spark's classes come from the archive of `oncelog warm`, where there is one."""
    found = find_java(os.environ)
    return str(launching_home(found, archive_of(found.home, Path(pyspark.__file__).parent)))


class DriverEnded(Exception):
    """The driver died before it answered: killed, in most tests."""


class QueryFailed(Exception):
    """The query stopped with this error."""


class Request:
    """What was asked of a driver. It is answered when the work is done, has failed, or nobody is there to do it."""

    def __init__(self, driver: "Driver") -> None:
        self._driver = driver
        self._answered = threading.Event()
        self._answer: dict[str, Any] | None = None

    def put(self, answer: dict[str, Any] | None) -> None:
        self._answer = answer
        self._answered.set()

    @property
    def is_answered(self) -> bool:
        return self._answered.is_set()

    def outcome(self) -> str:
        return self._driver.log_end() if self._answer is None else str(self._answer)

    def wait(self, timeout_s: float = ANSWER_S) -> dict[str, Any]:
        """The answer; QueryFailed with the error's text, DriverEnded where there is nobody to answer any more."""
        if not self._answered.wait(timeout_s):
            end = self._driver.log_end()
            raise AssertionError(f"no answer within {timeout_s:g} s; the log ends with:\n{end}")
        if self._answer is None:
            raise DriverEnded(self._driver.log_end())
        if self._answer["error"] is not None:
            raise QueryFailed(self._answer["error"])
        return self._answer

    def error(self, timeout_s: float = ANSWER_S) -> str:
        """The text with which the query stopped; that it stops is what is wanted."""
        try:
            answer = self.wait(timeout_s)
        except QueryFailed as failed:
            return str(failed)
        raise AssertionError(f"the query came to its end: {answer}")


class Driver:
    """`with Driver(folder) as driver:` a session in a process of its own, to which project and tests are importable."""

    def __init__(
        self,
        folder: Path,
        *,
        master: str = "local[2,4]",
        variables: dict[str, str] | None = None,
        conf: dict[str, str] | None = None,
        arrow_rows: int = 10_000,
    ) -> None:
        self.folder = folder
        self._master = master
        self._variables = variables or {}
        self._conf = conf or {}
        self._arrow_rows = arrow_rows
        self._requests: dict[int, Request] = {}
        self._count = 0
        self._lock = threading.Lock()
        self._life = Life("the driver", folder / "driver.log")
        self.starts = 0

    # --- its life -----------------------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.kill() if error is not None else self.stop()

    def start(self) -> None:
        assert not self._life.is_running, "it runs already"
        self.folder.mkdir(parents=True, exist_ok=True)
        self.starts += 1
        ours, theirs = socket.socketpair()
        order = [
            sys.executable,
            "-m",
            "tests.spark.kills.driver_main",
            str(theirs.fileno()),
            json.dumps(self._all_conf()),
        ]
        self._life.launch(
            order, stdin=subprocess.DEVNULL, cwd=self.folder, env=self._environment(), pass_fds=[theirs.fileno()]
        )
        theirs.close()
        self._channel = ours
        self._requests = {}  # each life has its own: the last one's are still being given up
        ready = self._requests[0] = Request(self)
        threading.Thread(target=self._listen, args=(ours,), name="driver", daemon=True).start()
        try:
            ready.wait()
        except BaseException:
            self.kill()
            raise

    def stop(self) -> None:
        """In an orderly way."""
        if not self.is_running:
            return
        over = self._requests[0] = Request(self)
        try:
            self._channel.sendall(b'{"do": "end"}\n')
            over.wait(END_S)
        except (OSError, DriverEnded):
            pass  # it was killed; what is left of it goes below
        self.kill()

    def kill(self) -> None:
        """kill -9, the JVM first: nothing of the driver is left that could still commit."""
        jvm = self.jvm_pid if self.is_running else None
        if jvm is not None:
            kill(jvm)
        self._life.kill()
        if jvm is not None:
            await_end(jvm)

    @property
    def is_running(self) -> bool:
        return self._life.is_running

    @property
    def jvm_pid(self) -> int | None:
        return next((child for child in children(self._life.pid) if lives(child)), None)

    # --- what it does -------------------------------------------------------------------------------------------------

    def run(self, query: Query) -> Request:
        """Begins it and returns: `.wait()` for its end, `.error()` for its failure."""
        return self.ask("run", query=query.to_json())

    def ask(self, do: str, **values: Any) -> Request:
        request = Request(self)
        with self._lock:
            self._count += 1
            self._requests[self._count] = request
            line = json.dumps({"id": self._count, "do": do, "with": values})
            try:
                self._channel.sendall(line.encode() + b"\n")
            except OSError:
                request.put(None)
        return request

    def await_log(self, text: str) -> None:
        """Until the driver has said so, in this life or an earlier one."""
        until(lambda: text in self._life.log_text(), f"the driver to say {text!r}")

    def log_end(self) -> str:
        return self._life.last_words()

    # --- how ----------------------------------------------------------------------------------------------------------

    def _listen(self, channel: socket.socket) -> None:
        requests = self._requests
        try:
            with channel, channel.makefile("rb") as lines:
                for line in lines:
                    answer = json.loads(line)
                    requests.pop(answer["id"]).put(answer)
        except OSError:
            pass
        for request in list(requests.values()):
            request.put(None)
        requests.clear()

    def _environment(self) -> dict[str, str]:
        paths = [str(SITE), str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")]
        return {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(path for path in paths if path),
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
            "JAVA_HOME": quick_java(),
            **self._variables,
        }

    def _all_conf(self) -> dict[str, str]:
        passed = {f"spark.executorEnv.{name}": value for name, value in self._variables.items()}
        environment = self._environment()
        return {
            "spark.master": self._master,
            "spark.jars": ",".join(str(path) for path in sorted(spark_connector_jars().glob("*.jar"))),
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.memory": "1g",
            "spark.driver.extraJavaOptions": QUICK_JVM,
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.session.timeZone": "UTC",
            "spark.sql.execution.arrow.maxRecordsPerBatch": str(self._arrow_rows),
            "spark.log.level": "WARN",
            "spark.local.dir": str(self.folder / "local"),
            "spark.sql.warehouse.dir": str(self.folder / "warehouse"),
            "spark.sql.streaming.noDataMicroBatches.enabled": "false",
            "spark.executorEnv.PYTHONPATH": environment["PYTHONPATH"],
            "spark.executorEnv.PYSPARK_PYTHON": sys.executable,
            **passed,
            **self._conf,
        }
