"""A worker that Spark lets go says nothing. PySpark's daemon and its workers are real here; the test is their JVM."""

import os
import select
import socket
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.spark.session.running import environment

LOOK_UP = "pyspark.sql.worker.lookup_data_sources"
SECRET = "between us"
END_OF_STREAM = -4
ANSWER_SECONDS = 60


class Daemon:
    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        assert process.stdout is not None
        self.port = struct.unpack("!i", process.stdout.read(4))[0]

    def end(self) -> str:
        """It ends with its input, when the last worker has; what they all wrote to stderr."""
        _, stderr = self._process.communicate(timeout=ANSWER_SECONDS)
        return stderr.decode()


@contextmanager
def daemon(python: str = sys.executable, work: str = LOOK_UP, **variables: str) -> Iterator[Daemon]:
    env = environment(PYTHON_WORKER_FACTORY_SECRET=SECRET, SPARK_REUSE_WORKER="1", **variables)
    env["PYTHON_DAEMON_KILL_WORKER_ON_FLUSH_FAILURE"] = "1"  # as Spark sets it
    order = [python, "-m", "pyspark.daemon", work]
    pipe = subprocess.PIPE
    process = subprocess.Popen(order, env=env, stdin=pipe, stdout=pipe, stderr=pipe)
    try:
        yield Daemon(process)
    finally:
        process.kill()
        process.wait()


def number(value: int) -> bytes:
    return struct.pack("!i", value)


def text(value: str) -> bytes:
    return number(len(value)) + value.encode()


def read(connection: socket.socket, size: int) -> bytes:
    found = b""
    while len(found) < size:
        chunk = connection.recv(size - len(found))
        assert chunk, "the worker hung up"
        found += chunk
    return found


def read_number(connection: socket.socket) -> int:
    value: int = struct.unpack("!i", read(connection, 4))[0]
    return value


def ask_for_formats(connection: socket.socket) -> list[str]:
    """Which formats the packages of this environment bring, as Spark asks when it meets one that it does not know."""
    version = "{}.{}".format(*sys.version_info)
    no_files, no_broadcasts, no_settings = text("") + number(0), b"\0" + number(0), number(0)
    connection.sendall(text(version) + no_files + no_broadcasts + no_settings + number(END_OF_STREAM))
    found = []
    for _ in range(read_number(connection)):
        found.append(read(connection, read_number(connection)).decode())
        read(connection, read_number(connection))
    for _ in range(read_number(connection)):  # what it has counted
        read(connection, read_number(connection))
    assert read_number(connection) == END_OF_STREAM
    return found


def work_and_let_go(running: Daemon, ask: Callable[[socket.socket], list[str]] = ask_for_formats) -> list[str]:
    with socket.create_connection(("127.0.0.1", running.port), timeout=ANSWER_SECONDS) as connection:
        worker_pid = read_number(connection)
        watched = os.pidfd_open(worker_pid)
        connection.sendall(text(SECRET))
        assert read(connection, read_number(connection)) == b"ok"
        found = ask(connection)
        # What is on its way to somebody who has hung up is refused at once.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    try:
        ending = select.poll()  # select() knows no descriptor above 1,023
        ending.register(watched, select.POLLIN)
        assert ending.poll(ANSWER_SECONDS * 1000), "the worker lives on"
    finally:
        os.close(watched)
    return found


def test_a_worker_that_spark_lets_go_ends_without_a_word() -> None:
    with daemon() as running:
        assert "oncelog" in work_and_let_go(running)
        assert running.end() == ""


def test_without_us_it_leaves_a_traceback(tmp_path: Path) -> None:
    """So the test above can fail."""
    (tmp_path / "pyspark_oncelog.py").touch()
    with daemon(PYTHONPATH=str(tmp_path)) as running:
        assert "oncelog" not in work_and_let_go(running)
        assert "BrokenPipeError" in running.end() or "ConnectionResetError" in running.end()


FIRST_WORK = """
import oncelog.spark

def main(infile, outfile):
    raise {error}("the JVM has closed it")
"""


def in_its_first_work(error: str, folder: Path) -> str:
    """What a worker leaves that has met us only after its daemon had given it something to do."""
    (folder / "pyspark_breaks.py").write_text(FIRST_WORK.format(error=error))
    with daemon(work="pyspark_breaks", PYTHONPATH=str(folder)) as running:
        work_and_let_go(running, lambda connection: [])
        return running.end()


def test_a_worker_whose_first_work_is_cut_short_ends_without_a_word(tmp_path: Path) -> None:
    assert in_its_first_work("BrokenPipeError", tmp_path) == ""


def test_a_worker_that_fails_says_why(tmp_path: Path) -> None:
    assert "ValueError: the JVM has closed it" in in_its_first_work("ValueError", tmp_path)
