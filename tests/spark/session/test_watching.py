"""How reports reach the screen, and the group at the end of a query."""

import logging
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest
from py4j.protocol import Py4JNetworkError

from oncelog.spark.listener import Report
from oncelog.spark.progress import Batch, Stage
from oncelog.spark.watching import StagesTold, Watch, stages_of
from tests.logged import messages
from tests.peers.oncelog_process import SOURCES

RUN = "e58905f8-db93-4666-a942-78702f2c6555"
END_SECONDS = 10


class Recorded:
    """A screen that keeps what it was told."""

    ask_again_ms = 1

    def __init__(self) -> None:
        self.told: list[Any] = []
        self.closed = Event()

    def working(self, stages: Sequence[Stage]) -> None:
        self.told.append([stage.number for stage in stages])

    def batch(self, run: str, batch: Batch) -> None:
        self.told.append((run, batch.last))

    def ended(self, run: str, error: str | None) -> None:
        self.told.append((run, error))

    def close(self) -> None:
        self.closed.set()


def said(batch: int) -> dict[str, Any]:
    return {"id": "0e11f10d", "runId": RUN, "batchId": batch, "numInputRows": 1, "durationMs": {}, "sources": []}


def test_what_the_last_batch_has_read_is_handed_over_at_the_querys_end() -> None:
    handed_over: list[Mapping[str, Any]] = []
    screen = Recorded()
    report = Report(screen, handed_over.append)
    report.progress(said(1))
    report.progress(said(2))
    assert handed_over == []
    report.ended(RUN, None)
    assert [progress["batchId"] for progress in handed_over] == [2]
    assert screen.told == [(RUN, 1), (RUN, 2), (RUN, None)]


def test_a_query_that_ended_before_its_first_batch_hands_over_nothing() -> None:
    handed_over: list[Mapping[str, Any]] = []
    Report(Recorded(), handed_over.append).ended(RUN, "broken")
    assert handed_over == []


def test_a_group_that_cannot_be_told_is_a_warning_and_no_error(caplog: pytest.LogCaptureFixture) -> None:
    def refuse(progress: Mapping[str, Any]) -> None:
        raise OSError("no broker")

    report = Report(Recorded(), refuse)
    report.progress(said(1))
    with caplog.at_level(logging.WARNING):
        report.ended(RUN, None)
    assert messages(caplog, "oncelog.spark") == [
        "the group's position at the end of a query was not committed: no broker"
    ]


def test_the_screen_is_told_of_stages_until_there_will_be_none_and_then_closed() -> None:
    looks: list[list[Stage] | None] = [[Stage(number=1, tasks=2, done=0)], [], None]
    screen = Recorded()
    Watch(lambda: looks.pop(0), screen)
    assert screen.closed.wait(END_SECONDS)
    assert screen.told == [[1], []]


def test_a_watch_that_is_ended_closes_the_screen_and_its_thread_is_gone() -> None:
    screen = Recorded()
    watch = Watch(list, screen)
    watch.end()
    assert screen.closed.is_set()
    assert watch.is_over


class Tracker:
    def __init__(self, error: Exception | None = None) -> None:
        self._error = error

    def getActiveStageIds(self) -> list[int]:
        if self._error is not None:
            raise self._error
        return list(range(100))

    def getStageInfo(self, number: int) -> Any:
        if number == 1:
            return None  # Spark has forgotten it already
        return SimpleNamespace(numTasks=9, numCompletedTasks=number, numActiveTasks=2, numFailedTasks=0)


def context(**changed: Any) -> Any:
    return SimpleNamespace(**{"_jsc": object(), "statusTracker": Tracker, **changed})


def test_stages_are_what_sparks_tracker_knows_of_them_and_not_too_many() -> None:
    stages = stages_of(context())()
    assert stages is not None
    assert stages[0] == Stage(number=0, tasks=9, done=0, active=2, failed=0)
    assert [stage.number for stage in stages] == [0, *range(2, 20)]


def test_a_context_that_was_stopped_has_nothing_more_to_tell() -> None:
    assert stages_of(context(_jsc=None))() is None


def test_a_context_that_is_stopped_while_it_is_asked_has_nothing_more_to_tell() -> None:
    broken = Tracker(Py4JNetworkError("gone"))
    assert stages_of(context(statusTracker=lambda: broken))() is None


def told(number: int, done: bool = False) -> Any:
    return SimpleNamespace(stage_id=number, num_tasks=4, num_completed_tasks=1, done=done)


def test_over_connect_the_stages_of_all_operations_are_shown_together() -> None:
    screen = Recorded()
    tell = StagesTold(screen)
    tell([told(1), told(2, done=True)], 2, "a", False)
    tell([told(3)], 1, "b", False)
    tell([told(1)], 0, "a", True)
    tell([told(3)], 0, "b", True)
    assert screen.told == [[1], [1, 3], [3], []]


def test_over_connect_operations_without_stages_draw_nothing() -> None:
    screen = Recorded()
    tell = StagesTold(screen)
    tell(None, 0, "a", False)
    tell([], 0, "a", True)
    assert screen.told == []


def test_what_cannot_be_imported_at_the_end_of_a_process_is_there_before() -> None:
    """The last report of a query may come then, and its position is committed by what needs this."""
    order = "import sys, oncelog.spark.listener; sys.exit('concurrent.futures.thread' not in sys.modules)"
    assert subprocess.run([sys.executable, "-c", order], env={**os.environ, "PYTHONPATH": str(SOURCES)}).returncode == 0
