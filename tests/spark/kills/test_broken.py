"""The run can fail: sinks that leave out what ours does lose rows or write them twice, and the audit says so."""

from pathlib import Path

import pytest

from oncelog.spark.sink import milestones
from tests.lives.processes import await_end
from tests.peers.server_process import ServerProcess
from tests.spark.kills.broken import NOTES, CompletedByTask, WithoutState
from tests.spark.kills.cells import at_step
from tests.spark.kills.control import Controller
from tests.spark.kills.driver import Driver
from tests.spark.kills.pipeline import Pipeline

pytestmark = pytest.mark.thorough

LANE_ROWS = 600
BATCH = 2 * LANE_ROWS


def _orphaned_half_way(pipeline: Pipeline, driver: Driver, controller: Controller) -> None:
    """The JVM is killed while it waits for more rows to hand on, so that the sink's input ends as if it were over; the
    orphaned worker writes what it has and comes to its end. Then the query is started again and runs to its end."""
    gate = controller.at("gate", batch=1, lane=0, number=4)
    middle = controller.at(milestones.SENT, batch=1, lane=0, when=lambda facts: bool(facts["rows"] >= 200))
    request = driver.run(pipeline.query())
    waiting, orphan = gate.reached(request), middle.reached(request)
    task = orphan.facts["task"]
    ended = controller.at(milestones.INPUT_ENDED, task=task)
    orphan.orphan()
    waiting.kill()
    driver.kill()
    orphan.release()
    early = ended.reached()
    assert 200 <= early.facts["rows"] < LANE_ROWS, early.facts
    early.release()
    await_end(orphan.pid)
    assert controller.seen(milestones.RETURNING, task=task), "the orphan did not come to its end"
    driver.start()
    driver.run(pipeline.query()).wait()


def test_an_orphan_whose_input_ends_early_is_not_taken_for_done(
    tmp_path: Path, server: ServerProcess, driver: Driver, shared_controller: Controller
) -> None:
    pipeline = Pipeline(tmp_path, server, "orphan", rows=3 * BATCH, rows_a_batch=BATCH, middle="gated")
    _orphaned_half_way(pipeline, driver, shared_controller)
    assert pipeline.audit().is_right, pipeline.audit()


def test_with_completion_recorded_by_the_task_rows_go_missing(
    tmp_path: Path, oncelog_server: ServerProcess, driver: Driver, shared_controller: Controller
) -> None:
    pipeline = Pipeline(
        tmp_path, oncelog_server, "done-by-task", rows=3 * BATCH, rows_a_batch=BATCH, middle="gated",
        sink=CompletedByTask.name(), writing={NOTES: str(tmp_path)},
    )  # fmt: skip
    _orphaned_half_way(pipeline, driver, shared_controller)
    found = pipeline.audit()
    assert found.missing > 0, found
    assert (found.duplicates, found.foreign) == (0, 0), found


def test_with_the_saved_state_switched_off_rows_stand_twice(
    tmp_path: Path, oncelog_server: ServerProcess, driver: Driver, shared_controller: Controller
) -> None:
    pipeline = Pipeline(
        tmp_path, oncelog_server, "no-state", rows=3 * BATCH, rows_a_batch=BATCH, sink=WithoutState.name()
    )
    stop = at_step(shared_controller, milestones.ACKNOWLEDGED)
    request = driver.run(pipeline.query())
    stop.reached(request).kill()
    request.wait()
    found = pipeline.audit()
    assert (found.missing, found.duplicates) == (0, LANE_ROWS), found
