"""`transactional.batches` while each process dies at each step: a reader of committed records never sees part of a
batch, and in the end every row once."""

from collections import Counter
from pathlib import Path

import pytest

from oncelog.spark.sink import milestones
from tests.peers.committed import all_committed
from tests.peers.server_process import ServerProcess
from tests.spark.kills.cells import DRIVER_STEPS, kill_drivers, kill_workers
from tests.spark.kills.control import Controller
from tests.spark.kills.driver import Driver
from tests.spark.kills.pipeline import Pipeline
from tests.waiting import until

TASK_STEPS = (
    milestones.STATE_READ,
    milestones.CLAIMED,
    milestones.FIRST_SEND,
    milestones.SENT,
    milestones.INPUT_ENDED,
    milestones.ACKNOWLEDGED,
    milestones.RETURNING,
)
EVERY_STEP = (*TASK_STEPS, *DRIVER_STEPS)
DRIVER_KILLS = (milestones.SENT, milestones.RETURNING, milestones.BEFORE_SAVE, milestones.SAVED)
A_BATCH = 600
both = pytest.mark.parametrize("server", ["oncelog", "kafka"], indirect=True)
pytestmark = pytest.mark.timeout(2400)  # five drivers, each of which takes minutes beside forty other processes


class Transactional(Pipeline):
    def __init__(self, folder: Path, server: ServerProcess, name: str, batches: int) -> None:
        self.batches = batches
        writing = {"transactional.batches": "true", "kafka.transaction.timeout.ms": "600000"}
        rows = batches * A_BATCH
        super().__init__(folder, server, name, rows=rows, rows_a_batch=A_BATCH, middle="to one task", writing=writing)

    def seen(self) -> Counter[int]:
        """How often each value, by who reads what is committed."""
        return Counter(int(each.value() or b"") for each in all_committed(self.address, self.write, 3))

    def look(self) -> None:
        """The last markers of a transaction may be on their way."""
        until(self._is_whole, "whole batches")

    def _is_whole(self) -> bool:
        seen = self.seen()
        assert not seen or max(seen.values()) == 1, seen.most_common(3)
        return set(Counter(value // A_BATCH for value in seen).values()) <= {A_BATCH}

    def check(self) -> None:
        assert self.seen() == Counter(range(self.batches * A_BATCH))


@both
@pytest.mark.thorough
def test_a_worker_killed_at_each_step_shows_no_part_of_a_batch(
    tmp_path: Path, server: ServerProcess, driver: Driver, shared_controller: Controller
) -> None:
    pipeline = Transactional(tmp_path, server, "workers", len(EVERY_STEP) + 2)
    cells = kill_workers(pipeline, driver, shared_controller, EVERY_STEP, pipeline.look)
    assert [cell.step for cell in cells] == list(EVERY_STEP)
    pipeline.check()


@both
@pytest.mark.long  # drivers live and die for minutes
def test_a_driver_killed_at_each_step_shows_no_part_of_a_batch(
    tmp_path: Path, server: ServerProcess, driver: Driver, shared_controller: Controller
) -> None:
    pipeline = Transactional(tmp_path, server, "drivers", len(DRIVER_KILLS) + 2)
    cells = kill_drivers(pipeline, driver, shared_controller, DRIVER_KILLS, pipeline.look)
    assert [cell.step for cell in cells] == list(DRIVER_KILLS)
    pipeline.check()


@both
@pytest.mark.long
def test_an_executor_killed_in_a_batch_shows_no_part_of_it(
    tmp_path: Path, server: ServerProcess, calm_driver: Driver, shared_controller: Controller
) -> None:
    pipeline = Transactional(tmp_path, server, "executors", 6)
    steps = (milestones.CLAIMED, milestones.SENT, milestones.RETURNING)
    stop = shared_controller.at(steps[0])
    request = calm_driver.run(pipeline.query())
    for following in (*steps[1:], None):
        visit = stop.reached(request)
        pipeline.look()
        if following is not None:
            stop = shared_controller.at(following, batch=visit.facts["batch"] + 1)
        visit.kill_jvm()
    request.wait()
    pipeline.check()
