"""Whoever dies while a batch is sealed or its files are sent: each row stands once, be it never the same again."""

from pathlib import Path

import numpy as np
import pytest

from oncelog.spark.sealed import milestones as sealed_milestones
from oncelog.spark.sink import milestones
from tests.lives.processes import await_end
from tests.peers.server_process import ServerProcess
from tests.spark.conftest import IS_ALL
from tests.spark.kills.control import Controller
from tests.spark.kills.driver import Driver
from tests.spark.kills.pipeline import Pipeline
from tests.spark.kills.queries import SEALED

ROWS, BATCH = 15_000, 5000

pytestmark = pytest.mark.long  # drivers live and die for minutes
# A driver's life takes seconds, so the test command has one.
DRIVER_KILLS = (milestones.SENT, sealed_milestones.WRITING) if IS_ALL else (milestones.SENT,)


def test_workers_and_drivers_that_die_while_they_seal_or_send_repeat_nothing(
    tmp_path: Path, server: ServerProcess, driver: Driver, shared_controller: Controller
) -> None:
    pipeline = Pipeline(tmp_path, server, "sealed", rows=ROWS, rows_a_batch=BATCH, sink=SEALED, placed="by chance")
    # Spark starts these tasks again, in the same JVM.
    writing = shared_controller.at(sealed_milestones.WRITING, skip=5)
    sending = shared_controller.at(milestones.SENT, skip=5)
    request = driver.run(pipeline.query())
    writing.reached(request).kill()
    sending.reached(request).kill()
    # Their JVM dies, and with it all that the driver knew. The worker is an orphan, which goes on as long as it can.
    for step in DRIVER_KILLS:
        orphan = shared_controller.at(step, skip=10).reached(request)
        driver.kill()
        orphan.release()
        await_end(orphan.pid)
        driver.start()
        request = driver.run(pipeline.query())
    request.wait()
    found = np.sort(np.concatenate(pipeline.columns()))
    assert np.array_equal(found, np.arange(ROWS)), "each integer once"
