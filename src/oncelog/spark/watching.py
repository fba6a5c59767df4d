"""Reports of what a session does: stages by asking now and then, queries by a listener.

Nothing in here keeps a process alive: every thread is a daemon.
"""

import atexit
import os
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from threading import Event, Thread
from typing import Any, Final

from py4j.protocol import Py4JError

from oncelog.spark.listener import JvmListener, Listener, Report
from oncelog.spark.progress import Stage
from oncelog.spark.screen import Screen, Silent, screen_for
from oncelog.waiting import until_ended

# More stages side by side than anybody could read, and each is a call into the JVM.
MOST_STAGES: Final = 20
_END_SECONDS: Final = 2.0

# The session that is watched, so that it is not watched twice: a process has one at a time.
_watched: list[Any] = []


def watch(spark: Any, is_shown: bool) -> None:
    if spark in _watched:
        return
    _watched[:] = [spark]
    screen = screen_for(sys.stderr) if is_shown else Silent()
    if is_connect(spark):
        _watch_client(spark, screen)
        return
    spark.streams.addListener(JvmListener(Report(screen, commit_end)))
    if is_shown:
        atexit.register(Watch(stages_of(spark.sparkContext), screen).end)


def is_connect(spark: Any) -> bool:
    return ".connect." in type(spark).__module__


def commit_end(progress: Mapping[str, Any]) -> None:
    """The source commits what its last batch has read: Spark never tells it of that batch's end."""
    from pyspark.sql.streaming.listener import StreamingQueryProgress

    from oncelog.spark.source import group

    group.commit_end(StreamingQueryProgress.fromJson(dict(progress)))


class Watch:
    """`look` answers the stages that run, or None when there will be no more of them."""

    def __init__(self, look: Callable[[], Sequence[Stage] | None], screen: Screen) -> None:
        self._look = look
        self._screen = screen
        self._over = Event()
        self._thread = Thread(target=self._run, name="oncelog-progress", daemon=True)
        self._thread.start()

    @property
    def is_over(self) -> bool:
        return not self._thread.is_alive()

    def end(self) -> None:
        self._over.set()
        self._thread.join(_END_SECONDS)

    def _run(self) -> None:
        try:
            while not self._over.wait(self._screen.ask_again_ms / 1000):
                stages = self._look()
                if stages is None:
                    return
                self._screen.working(stages)
        finally:
            self._screen.close()


def stages_of(context: Any) -> Callable[[], Sequence[Stage] | None]:
    """A function for the stages that a SparkContext runs now; None once it was stopped."""

    def look() -> Sequence[Stage] | None:
        if context._jsc is None:
            return None
        try:
            tracker = context.statusTracker()
            found = [(number, tracker.getStageInfo(number)) for number in tracker.getActiveStageIds()[:MOST_STAGES]]
        except (Py4JError, OSError, AttributeError):  # stopped while it was being asked
            return None
        return [
            Stage(
                number=number,
                tasks=info.numTasks,
                done=info.numCompletedTasks,
                active=info.numActiveTasks,
                failed=info.numFailedTasks,
            )
            for number, info in found
            if info is not None
        ]

    return look


# --- Spark Connect ----------------------------------------------------------------------------------------------------


def _watch_client(spark: Any, screen: Screen) -> None:
    """The server reports stages while it works for this client."""
    # Brokers that a server elsewhere reaches need not be reachable from here.
    at_end = commit_end if "SPARK_LOCAL_REMOTE" in os.environ else _nothing
    spark.registerProgressHandler(StagesTold(screen))
    # PySpark's thread for reports would keep the process alive; it is a daemon where its maker is one. How it ends when
    # the process does is nobody's concern.
    warnings.filterwarnings("ignore", message="StreamingQueryListenerBus Handler thread received exception")
    adding = Thread(target=spark.streams.addListener, args=(Listener(Report(screen, at_end)),), daemon=True)
    adding.start()
    until_ended(adding)


def _nothing(progress: Mapping[str, Any]) -> None:
    return


class StagesTold:
    """The stages of each operation, as the server reports them; they are shown together."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._by_operation: dict[str | None, list[Stage]] = {}

    def __call__(self, stages: Any, inflight_tasks: int, operation_id: str | None, done: bool) -> None:
        running = [
            Stage(number=stage.stage_id, tasks=stage.num_tasks, done=stage.num_completed_tasks)
            for stage in (() if done else stages or ())
            if not stage.done
        ]
        if running:
            self._by_operation[operation_id] = running
        elif self._by_operation.pop(operation_id, None) is None:
            return
        self._screen.working([stage for each in self._by_operation.values() for stage in each])
