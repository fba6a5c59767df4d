"""Spark's reports of streaming queries, passed on: to the screen, and at a query's end to the source's group.

PySpark's own listener copies every number of a batch's report by a call of its own into the JVM: 50 ms of this process
a batch and more, measured. The same report as JSON is one call, so this listener speaks Spark's Java interface itself.
"""

# The last report may come while the process ends, and then this cannot be imported; committing a position needs it.
import concurrent.futures.thread  # noqa: F401
import json
import logging
from collections.abc import Callable, Mapping
from typing import Any, Final

from py4j.protocol import Py4JError
from pyspark.sql.streaming.listener import StreamingQueryListener

from oncelog.spark.progress import batch_of
from oncelog.spark.screen import Screen

_log: Final = logging.getLogger("oncelog.spark")
_INTERFACE: Final = "org.apache.spark.sql.streaming.PythonStreamingQueryListener"


class Report:
    """News of queries, by their run: a progress as Spark's JSON, or an end with its error."""

    def __init__(self, screen: Screen, at_end: Callable[[Mapping[str, Any]], None]) -> None:
        self._screen = screen
        self._at_end = at_end
        self._last: dict[str, Mapping[str, Any]] = {}

    def progress(self, said: Mapping[str, Any]) -> None:
        run = str(said["runId"])
        self._last[run] = said
        self._screen.batch(run, batch_of(said))

    def ended(self, run: str, error: str | None) -> None:
        self._screen.ended(run, error)
        last = self._last.pop(run, None)
        if last is not None:
            try:
                self._at_end(last)
            except Exception as failed:
                _log.warning("the group's position at the end of a query was not committed: %s", failed)


class Listener(StreamingQueryListener):
    """A listener as PySpark has it; the way over Spark Connect, where reports arrive as JSON anyway."""

    def __init__(self, report: Report) -> None:
        self._report = report

    def onQueryStarted(self, event: Any) -> None:
        return

    def onQueryProgress(self, event: Any) -> None:
        _guarded(lambda: self._report.progress(event.progress))

    def onQueryIdle(self, event: Any) -> None:
        return

    def onQueryTerminated(self, event: Any) -> None:
        _guarded(lambda: self._report.ended(str(event.runId), event.exception))


class JvmListener(Listener):
    """A listener for a session with the JVM beside it: what Spark adds is the Java object that PySpark asks its
    listeners for."""

    def __init__(self, report: Report) -> None:
        super().__init__(report)
        self._wrapped: Any = None

    @property
    def _jlistener(self) -> Any:
        if self._wrapped is None:
            from pyspark import SparkContext

            self._wrapped = SparkContext._jvm.PythonStreamingQueryListenerWrapper(_JavaListener(self._report))
        return self._wrapped


class _JavaListener:
    """Its methods are called by the JVM, from the thread that tells all listeners."""

    def __init__(self, report: Report) -> None:
        self._report = report

    def onQueryStarted(self, event: Any) -> None:
        return

    def onQueryProgress(self, event: Any) -> None:
        _guarded(lambda: self._report.progress(json.loads(event.progress().json())))

    def onQueryIdle(self, event: Any) -> None:
        return

    def onQueryTerminated(self, event: Any) -> None:
        def pass_on() -> None:
            error = event.exception()
            self._report.ended(event.runId().toString(), error.get() if error.isDefined() else None)

        _guarded(pass_on)

    class Java:
        implements: Final = [_INTERFACE]


def _guarded(pass_on: Callable[[], None]) -> None:
    """An error in here must not come out in Spark's log as one of the query's."""
    try:
        pass_on()
    except (Py4JError, OSError):
        _log.debug("Spark ended while it reported a query", exc_info=True)
    except Exception:
        _log.warning("a report of a query could not be read", exc_info=True)
