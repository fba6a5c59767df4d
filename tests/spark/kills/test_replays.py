"""A replay whose rows are not those that were written stops, says where, and writes nothing more."""

from pathlib import Path

import pytest

from oncelog.spark.sink import steps
from tests.peers.server_process import ServerProcess
from tests.spark.kills.cells import at_step
from tests.spark.kills.control import Controller
from tests.spark.kills.driver import Driver
from tests.spark.kills.pipeline import Pipeline
from tests.spark.kills.queries import DIFFERS

BATCH = 600  # two lanes: batch 1 of lane 0 is the even integers from 600 to 1198
FIRST_DIFFERENT = next(x for x in range(BATCH, 2 * BATCH, 2) if x % DIFFERS == 7)


def _killed_in_batch_1(pipeline: Pipeline, driver: Driver, controller: Controller, step: str) -> list[int]:
    """Where the output ends when the driver's commit of batch 1 has died there."""
    stop = controller.at(step, batch=1)
    request = driver.run(pipeline.query())
    stop.reached(request).kill()
    request.error()
    return pipeline.written()


@pytest.mark.parametrize("step", [steps.BEFORE_SAVE, steps.SAVED])
def test_a_replay_with_other_rows_is_refused_by_batch_lane_and_first_difference(
    tmp_path: Path, server: ServerProcess, driver: Driver, shared_controller: Controller, step: str
) -> None:
    pipeline = Pipeline(tmp_path, server, "other", rows=2400, rows_a_batch=BATCH, middle="differs between runs")
    written = _killed_in_batch_1(pipeline, driver, shared_controller, step)
    for _ in range(2):  # it stays refused
        said = driver.run(pipeline.query()).error()
        assert "batch 1 of sink" in said, said
        assert "lane 0" in said or "lane 1" in said, said
        assert "sealed" in said, said
        assert pipeline.written() == written
    assert str(-FIRST_DIFFERENT * 10) in said or str(-_next_odd() * 10) in said, said


def _next_odd() -> int:
    return next(x for x in range(BATCH + 1, 2 * BATCH, 2) if x % DIFFERS == 7)


@pytest.mark.long
@pytest.mark.parametrize("step", [steps.BEFORE_SAVE, steps.SAVED])
@pytest.mark.parametrize("middle", ["fewer in later runs", "one lane in later runs"])
def test_a_replay_with_fewer_rows_or_lanes_is_refused(
    tmp_path: Path, server: ServerProcess, driver: Driver, shared_controller: Controller, step: str, middle: str
) -> None:
    pipeline = Pipeline(tmp_path, server, "fewer", rows=2400, rows_a_batch=BATCH, middle=middle)
    written = _killed_in_batch_1(pipeline, driver, shared_controller, step)
    said = driver.run(pipeline.query()).error()
    assert "batch 1 of sink" in said, said
    assert "sealed" in said, said
    assert pipeline.written() == written


@pytest.mark.long
def test_a_task_tried_again_with_other_rows_is_refused(
    tmp_path: Path, server: ServerProcess, driver: Driver, shared_controller: Controller
) -> None:
    pipeline = Pipeline(tmp_path, server, "attempts", rows=2400, rows_a_batch=BATCH, middle="differs between attempts")
    stop = at_step(shared_controller, steps.ACKNOWLEDGED)
    request = driver.run(pipeline.query())
    visit = stop.reached(request)
    written = pipeline.written()
    visit.kill()
    said = request.error()
    assert "batch 0 of sink" in said and "lane 0" in said, said
    assert "sealed" in said, said
    even = [number % 2 for number in _numbers_beyond(pipeline, written)]
    assert even == [1] * len(even), "lane 0, which reads the even ones, wrote on"


def _numbers_beyond(pipeline: Pipeline, ends: list[int]) -> list[int]:
    columns = pipeline.columns()
    return [int(number) for column, end in zip(columns, ends, strict=True) for number in column[end:]]
