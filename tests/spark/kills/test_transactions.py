"""`transactional.batches` while each process dies at each step: a reader of committed records never sees part of a
batch, and in the end every row once. And a query that reads committed records, killed with its server."""

from collections import Counter
from collections.abc import Collection
from pathlib import Path

import pytest
from confluent_kafka import Producer

from oncelog.spark.sink import milestones
from tests.cluster.transacting import PATIENCE_S, again, transact
from tests.peers.committed import all_committed
from tests.peers.server_process import ServerProcess
from tests.spark.kills.cells import DRIVER_STEPS, kill_drivers, kill_servers, kill_workers
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


A_TRANSACTION = 100


class OfCommitted(Pipeline):
    """Of each number that it reads there is an aborted one before it."""

    def __init__(self, folder: Path, server: ServerProcess, rows: int) -> None:
        reading = {"kafka.isolation.level": "read_committed"}
        super().__init__(folder, server, "committed", rows=rows, rows_a_batch=2 * A_BATCH, reading=reading)

    def more(self, rows: int, only: Collection[int] | None = None) -> None:
        producer = Producer({"bootstrap.servers": self.address, "transactional.id": self.read})
        again(lambda: producer.init_transactions(PATIENCE_S))
        first = sum(self._counts)
        for start in range(first, first + rows, A_TRANSACTION):
            for is_kept in (False, True):
                numbers = range(start, start + A_TRANSACTION)
                transact(producer, [(self.read, each % 2, b"%d" % each) for each in numbers], is_kept=is_kept)
        self._counts[0] += rows

    def check(self) -> None:
        seen = Counter(int(each.value() or b"") for each in all_committed(self.address, self.write, 3))
        assert seen == Counter(range(sum(self._counts)))


@pytest.mark.thorough
def test_a_query_of_committed_records_repeats_nothing_though_its_server_and_its_driver_are_killed(
    tmp_path: Path, mortal: ServerProcess, driver: Driver, shared_controller: Controller
) -> None:
    pipeline = OfCommitted(tmp_path, mortal, 3 * A_BATCH)
    steps = (milestones.SENT, milestones.BEFORE_SAVE)
    assert [each.step for each in kill_servers(pipeline, driver, shared_controller, mortal, steps)] == list(steps)
    pipeline.check()
    pipeline.more(4 * A_BATCH)
    steps = (milestones.SENT, milestones.SAVED)
    assert [each.step for each in kill_drivers(pipeline, driver, shared_controller, steps)] == list(steps)
    pipeline.check()
