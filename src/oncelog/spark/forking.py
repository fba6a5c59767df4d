"""The process from which a local session's Python workers are forked: it has imported before they are needed.

Spark starts a Python process for each kind of work: to look formats up, to plan a read, to plan a write, to run tasks,
to ask a streaming source, to commit. Each imported PySpark, Arrow, our client and the compiled loops for itself. Here
that is done once, while the JVM starts, and every such process begins as a copy.

`warm_python.py` starts this and writes the program that Spark takes for Python. That program passes its arguments, its
environment and its standard streams through a socket, and lives as long as the process that is forked for it.
"""

import gc
import importlib
import marshal
import os
import runpy
import select
import shutil
import signal
import socket
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from functools import lru_cache, partial
from importlib.machinery import PathFinder, all_suffixes
from pathlib import Path
from typing import Any, Final, NamedTuple
from zipfile import BadZipFile, ZipFile

from oncelog.spark.idle_workers import end_quietly

FORKED: Final = b"+"
REFUSED: Final = b"-"
TAKEN: Final = b"!"  # the caller has heard of its process, which begins now
SIZE_BYTES: Final = 4
STREAMS: Final = 3
MOST_REQUEST_BYTES: Final = 16 << 20
_LOOK_AGAIN_MS: Final = 2000
_MAY_SERVE: Final = "pyspark."

# Spark sets these for its workers, and PySpark reads them in a worker when it needs them.
_OF_SPARK: Final = ("SPARK_", "PYSPARK_", "_PYSPARK_", "PYTHON_", "ONCELOG_")
_OF_WORKERS: Final = {
    "JAVA_HOME",
    "ONCELOG_UNPACKED_PYSPARK",
    "OLDPWD",
    "PWD",
    "PYTHONPATH",
    "PYTHONUNBUFFERED",
    "SHLVL",
    "_",
}
# Read once, when Python or a library starts: a worker that is to have others is not forked from here.
AT_START: Final = {"OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0"}

_FOR_PLANNING: Final = (
    "pyspark.worker",
    "pyspark.sql.worker.lookup_data_sources",
    "pyspark.sql.worker.create_data_source",
    "pyspark.sql.worker.plan_data_source_read",
    "pyspark.sql.worker.write_into_data_source",
    "pyspark.sql.worker.python_streaming_sink_runner",
    "pyspark.sql.streaming.python_streaming_source_runner",
)
_FOR_TASKS: Final = (
    "pyspark_oncelog",
    "oncelog.spark.source.reader",
    "oncelog.spark.source.stream",
    "oncelog.spark.sink.batch",
    "oncelog.spark.sink.direct",
    "oncelog.spark.sink.driver",
    "oncelog.spark.sink.lane_producer",
    "oncelog.spark.sink.lane_writer",
    "oncelog.client.consumer.arrow",
    "oncelog.client.producer.buffers",
    "oncelog.client.producer.bulk",
    "oncelog.records.columns",
    "concurrent.futures.thread",
    "uvloop",
)
# The first requests of workers, in the versions that Kafka and we speak today; others are loaded when needed.
_REQUESTS: Final = (
    ("api_versions", 4),
    ("create_topics", 7),
    ("describe_configs", 4),
    ("fetch", 12),
    ("init_producer_id", 5),
    ("init_producer_id", 6),
    ("list_offsets", 10),
    ("metadata", 13),
)


class Request(NamedTuple):
    arguments: list[str]
    environment: dict[str, str]
    folder: str


def may_fork(request: Request, own: Mapping[str, str]) -> bool:
    """Whether a copy of this process is what the caller would have started: a module of PySpark, with an environment
    that differs from this process' own in nothing that counts before the module runs."""
    if len(request.arguments) < 2 or request.arguments[0] != "-m" or not request.arguments[1].startswith(_MAY_SERVE):
        return False
    return all(_is_alike(name, request.environment.get(name), own.get(name)) for name in {*request.environment, *own})


def _is_alike(name: str, wanted: str | None, have: str | None) -> bool:
    if name in AT_START:
        return wanted in (None, have)
    return wanted == have or name in _OF_WORKERS or name.startswith(_OF_SPARK)


def paths(own: list[str], own_said: str, wanted_said: str, folder: str) -> list[str]:
    """`sys.path` as it would be with another PYTHONPATH: the folder of `python -m`, what is said, Python's own. Spark
    says a JAR of its own, too, whose table of contents each worker would read anew, in 30 ms: it is left out."""
    said = {os.path.abspath(each) for each in own_said.split(os.pathsep) if each}
    rest = [each for each in own[1:] if os.path.abspath(each) not in said]
    return [folder, *(each for each in wanted_said.split(os.pathsep) if each and not _is_without_modules(each)), *rest]


@lru_cache(maxsize=64)
def _is_without_modules(path: str) -> bool:
    if not path.endswith(".jar"):
        return False
    try:
        with ZipFile(path) as archive:
            return not any(name.endswith(tuple(all_suffixes())) for name in archive.namelist())
    except (OSError, BadZipFile):
        return False


@lru_cache(maxsize=8)
def leads_alike(wanted: tuple[str, ...], own: tuple[str, ...], modules: frozenset[str]) -> bool:
    """Whether modules that were imported by one path would have been the same by another."""
    return all(_found(name, wanted) == _found(name, own) for name in modules)


def _found(name: str, path: Sequence[str]) -> str | None:
    found = PathFinder.find_spec(name, path)
    return None if found is None else found.origin


# --- serving ----------------------------------------------------------------------------------------------------------


class _Forked(Exception):
    """Raised in the new process, to leave all frames of this one."""

    def __init__(self, request: Request) -> None:
        self.request = request


class _Server:
    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener
        self._own = dict(os.environ)
        self._parent = os.getppid()
        self._poll = select.poll()
        self._poll.register(0, select.POLLIN)
        self._poll.register(listener, select.POLLIN)

    def serve(self, wait_ms: int) -> bool:
        """Serve what is waiting, or comes within this time. False when the driver has ended."""
        for descriptor, _ in self._poll.poll(wait_ms):
            if descriptor == 0:
                return False
            with suppress(OSError, EOFError, ValueError):
                caller, _ = self._listener.accept()
                with caller:
                    self._answer(caller)
        return os.getppid() == self._parent

    def _answer(self, caller: socket.socket) -> None:
        request, streams = _received(caller)
        try:
            if not (may_fork(request, self._own) and self._leads_alike(request)):
                caller.sendall(REFUSED)
                return
            gc.freeze()  # what is here stays: workers need not look for garbage in it, nor copy it by doing so
            pid = os.fork()
            if pid == 0:
                self._become(caller, streams)
                raise _Forked(request)
            caller.sendall(FORKED + pid.to_bytes(SIZE_BYTES, "big"))
        finally:
            for descriptor in streams:
                os.close(descriptor)

    def _leads_alike(self, request: Request) -> bool:
        own_said, wanted_said = (each.get("PYTHONPATH", "") for each in (self._own, request.environment))
        wanted = paths(sys.path, own_said, wanted_said, request.folder)
        return leads_alike(tuple(wanted), tuple(sys.path), frozenset(name.partition(".")[0] for name in sys.modules))

    def _become(self, caller: socket.socket, streams: list[int]) -> None:
        """Become the worker, in the new process."""
        try:
            for at, descriptor in enumerate(streams):
                os.dup2(descriptor, at)
            self._listener.close()
            os.dup(caller.fileno())  # open for as long as this process lives: its end tells the caller
            is_wanted = caller.recv(1) == TAKEN
        except OSError:
            is_wanted = False  # and it must not go on as a second server
        if not is_wanted:
            os._exit(1)  # the caller waited too long, and is starting a Python of its own


def _received(caller: socket.socket) -> tuple[Request, list[int]]:
    head, streams, _, _ = socket.recv_fds(caller, SIZE_BYTES, STREAMS)
    try:
        size = int.from_bytes(head, "big")
        if len(head) < SIZE_BYTES or len(streams) != STREAMS or size > MOST_REQUEST_BYTES:
            raise ValueError("not a request")
        data = bytearray()
        while len(data) < size:
            part = caller.recv(size - len(data))
            if not part:
                raise EOFError
            data += part
        return Request(*marshal.loads(data)), streams
    except BaseException:
        for descriptor in streams:
            os.close(descriptor)
        raise


def preparations() -> Iterator[Callable[[], object]]:
    """Preparations in pieces: a caller that asks meanwhile waits for no more than one."""
    for name in (*_FOR_PLANNING, *_FOR_TASKS):
        yield partial(importlib.import_module, name)
    yield from (partial(_load_request, *each) for each in _REQUESTS)
    yield _make_array
    yield load_kept_loops


def _load_request(name: str, version: int) -> None:
    from oncelog.wire.requests import request_schema

    request_schema(name, version)


def _make_array() -> None:
    """Arrow imports pandas for the first one, where that is installed."""
    import pyarrow as pa

    pa.array([0])


def load_kept_loops() -> None:
    """Load the loops that have been compiled before. To compile takes long, and a caller would wait for it."""
    import numpy as np

    from oncelog import machine_code
    from oncelog.records.column_types import BytesColumn
    from oncelog.records.decode_columns import decode
    from oncelog.records.encode_columns import encode

    with nullcontext() if machine_code.is_there() else _without_compiling():
        cells = BytesColumn(np.array([0, 1], np.int32), np.zeros(1, np.uint8), None)
        (batch,) = encode(value=cells, timestamp_ms=0)
        decode(bytes(batch.data))


class _NotCompiled(Exception):
    """Numba's cache does not have it: not at all, of another source, for another processor, or without its data."""


@contextmanager
def _without_compiling() -> Iterator[None]:
    """Run to the end, or up to the first loop that would have to be compiled."""
    from numba.core.event import Listener, install_listener

    class NoCompiling(Listener):
        def on_start(self, event: object) -> None:
            raise _NotCompiled

        def on_end(self, event: object) -> None: ...

    with suppress(_NotCompiled), install_listener("numba:compile", NoCompiling()):
        yield


def main(listening: int) -> None:
    """`listening` is the descriptor of a socket that is bound already, so nobody comes too early."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the driver's, whose end is seen here
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for those that were forked
    gc.disable()  # what is imported stays: to look for garbage in it takes a fifth of the time
    with socket.socket(fileno=listening) as listener:
        server = _Server(listener)
        for prepare in preparations():
            with suppress(ImportError, OSError):
                prepare()
            if not server.serve(0):
                return
        gc.enable()
        while server.serve(_LOOK_AGAIN_MS):
            pass


def mind_forks() -> None:
    """Set up the first steps of each new process, also of those that a daemon forks."""
    os.register_at_fork(after_in_child=_reseed)
    os.register_at_fork(after_in_child=end_quietly)


def _reseed() -> None:
    """Python does the same for its own random numbers: all workers would draw the same ones."""
    numpy: Any = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed()


def run_as(request: Request) -> None:
    """Do in the new process what `python -m MODULE ...` does."""
    gc.enable()
    _, module, *rest = request.arguments
    own_said = os.environ.get("PYTHONPATH", "")
    os.environ.clear()
    os.environ.update(request.environment)
    with suppress(OSError):
        os.chdir(request.folder)
    sys.path[:] = paths(sys.path, own_said, os.environ.get("PYTHONPATH", ""), request.folder)
    sys.argv[:] = [module, *rest]
    with suppress(OSError):
        Path("/proc/self/comm").write_text(rest[0] if rest else module)  # what `ps` and `top` show
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    sys.modules.pop(module, None)
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    mind_forks()
    try:
        main(int(sys.argv[1]))
    except _Forked as forked:
        asked = forked.request
    else:
        shutil.rmtree(sys.argv[2], ignore_errors=True)  # a driver that was killed has left it
        os._exit(0)
    run_as(asked)
