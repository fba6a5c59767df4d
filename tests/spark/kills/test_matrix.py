"""The kill matrix of docs/spark-kills.md, its cells that local mode shows: each process, at each step."""

from pathlib import Path

import pytest

from oncelog.spark.sink import milestones
from tests.peers.server_process import ServerProcess
from tests.spark.conftest import IS_ALL
from tests.spark.kills.cells import (
    DRIVER_STEPS,
    EVERY_STEP,
    kill_between_batches,
    kill_drivers,
    kill_savers,
    kill_servers,
    kill_workers,
)
from tests.spark.kills.control import Controller
from tests.spark.kills.driver import Driver
from tests.spark.kills.pipeline import Pipeline

pytestmark = pytest.mark.long  # drivers live and die for minutes

ROWS = 6000
# A driver's life takes seconds, so the test command has one of each kind: in the middle of sending, and on both sides
# of the save. The others are killed by `python -m tests.spark.kills matrix`.
DRIVER_KILLS = EVERY_STEP if IS_ALL else (milestones.SENT, milestones.BEFORE_SAVE, milestones.SAVED)


def test_a_tasks_worker_killed_at_each_step_repeats_nothing(
    tmp_path: Path, server: ServerProcess, driver: Driver, shared_controller: Controller
) -> None:
    pipeline = Pipeline(tmp_path, server, "workers", rows=ROWS, rows_a_batch=600, middle="many")
    cells = kill_workers(pipeline, driver, shared_controller)
    assert [cell.step for cell in cells] == list(EVERY_STEP)
    assert pipeline.audit().is_right, pipeline.audit()


def test_a_drivers_commit_killed_at_each_step_repeats_nothing(
    tmp_path: Path, server: ServerProcess, driver: Driver, shared_controller: Controller
) -> None:
    pipeline = Pipeline(tmp_path, server, "savers", rows=ROWS, rows_a_batch=2000)
    cells = kill_savers(pipeline, driver, shared_controller)
    assert [cell.step for cell in cells] == list(DRIVER_STEPS)
    assert pipeline.audit().is_right, pipeline.audit()


def test_a_server_killed_at_each_step_repeats_nothing(
    tmp_path: Path, mortal: ServerProcess, driver: Driver, shared_controller: Controller
) -> None:
    pipeline = Pipeline(tmp_path, mortal, "servers", rows=ROWS, rows_a_batch=450, middle="many")
    cells = kill_servers(pipeline, driver, shared_controller, mortal)
    assert [cell.step for cell in cells] == list(EVERY_STEP)
    assert pipeline.audit().is_right, pipeline.audit()


def test_a_driver_killed_at_each_step_repeats_nothing(
    tmp_path: Path, server: ServerProcess, driver: Driver, shared_controller: Controller
) -> None:
    pipeline = Pipeline(tmp_path, server, "drivers", rows=ROWS, rows_a_batch=1000)
    cells = kill_drivers(pipeline, driver, shared_controller, DRIVER_KILLS)
    assert [cell.step for cell in cells] == list(DRIVER_KILLS)
    assert pipeline.audit().is_right, pipeline.audit()


def test_processes_killed_between_batches_repeat_nothing(
    tmp_path: Path, mortal: ServerProcess, driver: Driver, shared_controller: Controller
) -> None:
    def restart_server() -> None:
        mortal.kill()
        mortal.start()

    pipeline = Pipeline(tmp_path, mortal, "idle", rows=300, rows_a_batch=200)
    victims = {
        "worker": lambda: shared_controller.seen(milestones.RETURNING)[-1].kill(),
        "server": restart_server,
        "driver": driver.kill,
    }
    killed = kill_between_batches(pipeline, driver, shared_controller, victims)
    assert killed == ["worker", "server", "driver"]
    assert pipeline.audit().is_right, pipeline.audit()
