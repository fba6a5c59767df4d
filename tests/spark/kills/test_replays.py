"""A replay whose rows are not those that were written stops, says where, and writes nothing more."""

import re
from pathlib import Path

import numpy as np
import pytest

from oncelog.spark.sink import milestones
from tests.peers.server_process import ServerProcess
from tests.spark.kills.cells import at_step
from tests.spark.kills.control import Controller
from tests.spark.kills.driver import Driver
from tests.spark.kills.pipeline import Pipeline

pytestmark = pytest.mark.long  # drivers live and die for minutes

BATCH = 600
WHERE = re.compile(r"(\S+-out)-(\d+), sequence \d+ of producer \d+ \(generation \d+\), offset (\d+)")


def _pipeline(folder: Path, server: ServerProcess, middle: str) -> Pipeline:
    return Pipeline(folder, server, "other", rows=2400, rows_a_batch=BATCH, middle=middle, placed="without key")


def _killed_in_batch_1(pipeline: Pipeline, driver: Driver, controller: Controller, step: str) -> list[int]:
    """Where the output ends when the driver's commit of batch 1 has died there."""
    stop = controller.at(step, batch=1)
    request = driver.run(pipeline.query())
    stop.reached(request).kill()
    request.error()
    return pipeline.written()


@pytest.mark.parametrize("step", [milestones.BEFORE_SAVE, milestones.SAVED])
def test_a_replay_with_other_rows_is_refused_by_batch_lane_and_first_difference(
    tmp_path: Path, server: ServerProcess, driver: Driver, shared_controller: Controller, step: str
) -> None:
    pipeline = _pipeline(tmp_path, server, "differs between runs")
    written = _killed_in_batch_1(pipeline, driver, shared_controller, step)
    for _ in range(2):  # it stays refused
        said = driver.run(pipeline.query()).error()
        _is_told(said)
        assert "lane 0" in said or "lane 1" in said, said
        assert pipeline.written() == written
    _names_the_first_difference(said, pipeline)


def _is_told(said: str) -> None:
    assert "batch 1 of sink" in said, said
    assert "sealed" in said, said


def _names_the_first_difference(said: str, pipeline: Pipeline) -> None:
    """The place that it names holds the first row of batch 1 that is another one each time: a negative number."""
    found = WHERE.search(said)
    assert found is not None, said
    topic, partition, offset = found.groups()
    assert topic == pipeline.write
    column = pipeline.columns()[int(partition)]
    sources = np.where(column < 0, -column // 10, column)
    of_lane = (sources % 2 == sources[int(offset)] % 2) & (sources >= BATCH)
    assert int(offset) == np.flatnonzero(of_lane & (column < 0))[0], said


@pytest.mark.parametrize("step", [milestones.BEFORE_SAVE, milestones.SAVED])
def test_a_replay_with_fewer_rows_is_refused(
    tmp_path: Path, server: ServerProcess, driver: Driver, shared_controller: Controller, step: str
) -> None:
    pipeline = _pipeline(tmp_path, server, "fewer in later runs")
    written = _killed_in_batch_1(pipeline, driver, shared_controller, step)
    _is_told(driver.run(pipeline.query()).error())
    assert pipeline.written() == written


@pytest.mark.parametrize(
    ("step", "words"),
    [
        (milestones.BEFORE_SAVE, "runs in 1 tasks and ran in at least 2 before"),
        (milestones.SAVED, "lane 0: the replay is not what was written: 600 rows where 300 were written"),
    ],
)
def test_a_replay_in_fewer_tasks_is_refused_by_both_numbers(
    tmp_path: Path, server: ServerProcess, driver: Driver, shared_controller: Controller, step: str, words: str
) -> None:
    """Only the driver sees how many tasks there are. Where the batch was not saved, the one task has by then written
    what it took over from the other; it is said, and Spark does not go on. Where it was saved, the one task compares
    before that, and finds that its rows are too many."""
    pipeline = _pipeline(tmp_path, server, "one lane in later runs")
    written = _killed_in_batch_1(pipeline, driver, shared_controller, step)
    said = driver.run(pipeline.query()).error()
    _is_told(said)
    assert words in said, said
    if step == milestones.SAVED:
        assert pipeline.written() == written
    after = pipeline.written()
    _is_told(driver.run(pipeline.query()).error())
    assert pipeline.written() == after


def test_a_task_tried_again_with_other_rows_is_refused(
    tmp_path: Path, server: ServerProcess, driver: Driver, shared_controller: Controller
) -> None:
    pipeline = _pipeline(tmp_path, server, "differs between attempts")
    stop = at_step(shared_controller, milestones.ACKNOWLEDGED)
    request = driver.run(pipeline.query())
    visit = stop.reached(request)
    ends = pipeline.written()
    visit.kill()
    said = request.error()
    assert "batch 0 of sink" in said and "lane 0" in said, said
    assert "sealed" in said, said
    beyond = [number for column, end in zip(pipeline.columns(), ends, strict=True) for number in column[end:].tolist()]
    sources = [-number // 10 if number < 0 else number for number in beyond]
    assert all(source % 2 for source in sources), "lane 0, which reads the even ones, wrote on"
