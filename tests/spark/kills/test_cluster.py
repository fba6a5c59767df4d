"""What local mode hides: two attempts of a task at once, executors that die or are only taken for dead, stages that are
run again. A real cluster of two hosts, whose speculation is quick."""

from pathlib import Path

import numpy as np
import pytest

from oncelog.spark.sealed.milestones import WRITING
from oncelog.spark.sink import milestones
from tests.lives.processes import await_end, kill
from tests.peers.server_process import ServerProcess
from tests.spark.cluster import StandaloneCluster
from tests.spark.kills.audit import Audit
from tests.spark.kills.cells import DRIVER_STEPS, EVERY_STEP, TASK_STEPS, kill_between_batches
from tests.spark.kills.cluster_cells import (
    CutOff,
    in_lockstep,
    kill_executors,
    kill_one_of_two,
    kill_one_of_two_at,
    late_attempts,
    other_attempt,
)
from tests.spark.kills.control import Controller
from tests.spark.kills.driver import Driver
from tests.spark.kills.pipeline import Pipeline
from tests.spark.kills.queries import SEALED

pytestmark = pytest.mark.long  # drivers live and die for minutes

ROWS = 6000


def _is_right(pipeline: Pipeline) -> None:
    found: Audit = pipeline.audit()
    assert found.is_right, found


def test_one_of_two_attempts_killed_at_each_step_repeats_nothing(
    tmp_path: Path, server: ServerProcess, cluster_driver: Driver, shared_controller: Controller
) -> None:
    pipeline = Pipeline(tmp_path, server, "attempts", rows=ROWS, rows_a_batch=600)
    cells = kill_one_of_two(pipeline, cluster_driver, shared_controller)
    assert [cell.step for cell in cells] == list(TASK_STEPS)
    _is_right(pipeline)


def test_two_attempts_that_send_in_turn_repeat_nothing(
    tmp_path: Path, server: ServerProcess, cluster_driver: Driver, shared_controller: Controller
) -> None:
    pipeline = Pipeline(tmp_path, server, "lockstep", rows=2400, rows_a_batch=1200)
    assert in_lockstep(pipeline, cluster_driver, shared_controller) > 4
    _is_right(pipeline)


def test_one_of_two_attempts_that_seal_or_send_killed_repeats_nothing(
    tmp_path: Path, server: ServerProcess, cluster_driver: Driver, shared_controller: Controller
) -> None:
    """Of rows that are others each time."""
    pipeline = Pipeline(tmp_path, server, "sealed", rows=10_000, rows_a_batch=5000, sink=SEALED, placed="by chance")
    found = kill_one_of_two_at(
        (WRITING, milestones.SENT, WRITING, milestones.SENT), pipeline, cluster_driver, shared_controller
    )
    assert found == [0, 0, 1, 1]
    assert np.array_equal(np.sort(np.concatenate(pipeline.columns())), np.arange(10_000)), "each integer once"


def test_an_attempt_that_goes_on_while_the_driver_commits_repeats_nothing(
    tmp_path: Path, server: ServerProcess, cluster_driver: Driver, shared_controller: Controller
) -> None:
    pipeline = Pipeline(tmp_path, server, "late", rows=ROWS, rows_a_batch=600)
    cells = late_attempts(pipeline, cluster_driver, shared_controller)
    assert [cell.step for cell in cells] == list(DRIVER_STEPS)
    _is_right(pipeline)


def test_an_executor_killed_at_each_step_repeats_nothing(
    tmp_path: Path,
    server: ServerProcess,
    cluster: StandaloneCluster,
    cluster_driver: Driver,
    shared_controller: Controller,
) -> None:

    def cluster_executors_die() -> None:
        cluster.kill_executor(0)
        cluster.kill_executor(1)

    pipeline = Pipeline(tmp_path, server, "executors", rows=2 * ROWS, rows_a_batch=600)
    cells = kill_executors(pipeline, cluster_driver, shared_controller, cluster)
    assert [cell.step for cell in cells] == list(EVERY_STEP)
    killed = kill_between_batches(pipeline, cluster_driver, shared_controller, {"executor": cluster_executors_die})
    assert killed == ["executor"]
    _is_right(pipeline)


def test_a_lost_executor_whose_task_goes_on_sending_repeats_nothing(
    tmp_path: Path,
    server: ServerProcess,
    cluster: StandaloneCluster,
    cluster_driver: Driver,
    shared_controller: Controller,
) -> None:
    """Its host stands still until the driver has given it up and has gone on to the next batch; then it goes on."""
    pipeline = Pipeline(tmp_path, server, "lost", rows=2400, rows_a_batch=600)
    stop = shared_controller.at(milestones.SENT, lane=0, batch=1)
    request = cluster_driver.run(pipeline.query())
    visit = stop.reached(request)
    following = shared_controller.at(milestones.SENT, batch=2)
    with CutOff(cluster, visit):
        cluster_driver.await_log("Lost executor")
        ahead = following.reached(request)
    visit.release()
    await_end(visit.pid)
    ahead.release()
    request.wait()
    _is_right(pipeline)


def test_a_stage_that_is_run_again_repeats_nothing(
    tmp_path: Path,
    server: ServerProcess,
    calm_driver: Driver,
    shared_controller: Controller,
) -> None:
    """The sink's tasks read a shuffle, of which half is lost with an executor: the stage begins anew, while a task of
    its first attempt still writes."""
    pipeline = Pipeline(tmp_path, server, "stage", rows=2400, rows_a_batch=600, middle="shuffled", placed="by lane")
    stop = shared_controller.at(milestones.SENT, lane=0, batch=1)
    neighbour = shared_controller.at(milestones.BEGUN, lane=1, batch=1)
    request = calm_driver.run(pipeline.query())
    first, other = stop.reached(request), neighbour.reached(request)
    assert first.jvm != other.jvm
    again = shared_controller.at(
        milestones.ACKNOWLEDGED, lane=0, batch=1, attempt=0, when=lambda facts: facts["task"] != first.facts["task"]
    )
    kill(other.jvm)
    await_end(other.jvm)
    other.kill()
    second = again.reached(request)
    first.release()
    second.release()
    request.wait()
    _is_right(pipeline)


def test_sparks_own_sink_writes_rows_twice_where_two_attempts_run(
    tmp_path: Path, server: ServerProcess, cluster_driver: Driver, shared_controller: Controller
) -> None:
    """The harness finds what it is for: the same kind of run with Spark's own sink, which is at-least-once."""
    pipeline = Pipeline(
        tmp_path, server, "own", rows=2400, rows_a_batch=1200, middle="gated", source="kafka", sink="kafka"
    )
    stop = shared_controller.at("gate", lane=0, number=4)
    request = cluster_driver.run(pipeline.query())
    first = stop.reached(request)
    other_attempt(shared_controller, first).reached(request).release()
    request.wait()
    first.release()
    found = pipeline.audit()
    assert (found.missing, found.foreign) == (0, 0)
    assert found.duplicates > 0
