"""Python workers that Spark lets go end without a word.

After a minute without work Spark closes a worker's connection. Workers that plan reads and writes take that for a
broken order, try to tell the JVM, and leave a traceback with a BrokenPipeError on stderr: four for each query, measured
on PySpark 4.2. Nobody can act on that, nor on any other pipe that the JVM has closed: its other end knows why.
"""

import sys
import traceback
from collections.abc import Callable
from typing import Any, Final

from oncelog.spark.worker import keep_imports

_DAEMON: Final = "pyspark.daemon"


def end_quietly() -> None:
    """Let idle workers end without a traceback, in a worker also the one that runs. Anywhere else this does nothing."""
    daemon: Any = sys.modules.get("__main__")
    specification = getattr(daemon, "__spec__", None)
    if specification is None or specification.name != _DAEMON:
        return
    work = getattr(daemon, "worker", None)
    if work is not None and not isinstance(work, KeepingImports):
        daemon.worker = KeepingImports(work)
        daemon.traceback = _Tracebacks


class _Tracebacks:
    """The daemon's `traceback`, which prints its workers' last words."""

    format_exc = staticmethod(traceback.format_exc)

    @staticmethod
    def print_exc() -> None:
        if not isinstance(sys.exception(), BrokenPipeError | ConnectionResetError):
            traceback.print_exc()


class KeepingImports:
    def __init__(self, work: Callable[..., int]) -> None:
        self._work = work

    def __call__(self, *arguments: Any) -> int:
        try:
            return self._work(*arguments)
        finally:
            keep_imports()
