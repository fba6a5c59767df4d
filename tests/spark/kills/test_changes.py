"""What changes while a query runs or between two runs, with kills besides: lanes, partitions, cores, drivers."""

import itertools
from pathlib import Path

import pytest

from oncelog.spark.sink import milestones
from tests.lives.processes import await_end
from tests.peers.server_process import ServerProcess
from tests.raw import RawConnection
from tests.spark.kills.cells import at_step
from tests.spark.kills.control import Controller
from tests.spark.kills.driver import Driver, DriverEnded, QueryFailed
from tests.spark.kills.pipeline import Pipeline

ROWS = 2400


@pytest.mark.thorough
def test_lanes_that_come_and_go_repeat_nothing(
    tmp_path: Path, server: ServerProcess, driver: Driver, shared_controller: Controller
) -> None:
    """The source makes a task for each partition with something new, so lane 0 is now this partition and now that."""
    pipeline = Pipeline(tmp_path, server, "lanes", rows=0, partitions=3, placed="without key")
    for only in ([0], [1, 2], [0, 1, 2], [2], [0, 2]):
        pipeline.more(300, only)
        worker = at_step(shared_controller, milestones.SENT)
        saver = shared_controller.at(milestones.BEFORE_SAVE)
        request = driver.run(pipeline.query())
        worker.reached(request).kill()
        saver.reached(request).kill()
        request.error()
        driver.run(pipeline.query()).wait()
    found = pipeline.audit()
    assert (found.rows, found.missing, found.duplicates, found.foreign) == (300 * 9, 0, 0, 0), found


@pytest.mark.long
def test_a_topic_that_gains_partitions_in_the_middle_of_a_batch_repeats_nothing(
    tmp_path: Path, server: ServerProcess, driver: Driver, shared_controller: Controller
) -> None:
    pipeline = Pipeline(tmp_path, server, "gains", rows=ROWS, rows_a_batch=600, placed="without key")
    worker = shared_controller.at(milestones.SENT, batch=1, lane=0, attempt=0)
    saver = shared_controller.at(milestones.BEFORE_SAVE, batch=2)
    request = driver.run(pipeline.query())
    visit = worker.reached(request)
    _grow(server, pipeline.write, 5)
    visit.kill()
    saver.reached(request).kill()
    request.error()
    _grow(server, pipeline.write, 7)
    driver.run(pipeline.query()).wait()
    assert pipeline.audit().is_right, pipeline.audit()
    assert all(pipeline.written()), f"not all of the new partitions are written to: {pipeline.written()}"


def _grow(server: ServerProcess, topic: str, count: int) -> None:
    with RawConnection(server.port) as raw:
        wanted = [{"name": topic, "count": count, "assignments": None}]
        answer = raw.call("create_partitions", 1, topics=wanted, timeout=10_000, validate_only=False)
        assert answer.results[0].error_code.value == 0, answer
        raw.await_leaders(topic, range(count))


@pytest.mark.long
def test_a_restart_with_other_cores_repeats_nothing(
    tmp_path: Path, server: ServerProcess, shared_controller: Controller
) -> None:
    options = {"minPartitions": "5"}
    pipeline = Pipeline(tmp_path, server, "cores", rows=ROWS, rows_a_batch=800, reading=options)
    cores = itertools.cycle((3, 1))
    for step in (milestones.SENT, milestones.BEFORE_SAVE, None):
        master = f"local[{next(cores)}]"
        with Driver(tmp_path / "driver", master=master, variables=shared_controller.variables) as driver:
            if step is None:
                driver.run(pipeline.query()).wait()
                break
            stop = shared_controller.at(step)
            request = driver.run(pipeline.query())
            stop.reached(request).kill_jvm()
            driver.kill()
    found = pipeline.audit()
    assert (found.rows, found.missing, found.duplicates, found.foreign) == (ROWS, 0, 0, 0), found


@pytest.mark.long
def test_two_drivers_on_one_checkpoint_write_every_row_once(
    tmp_path: Path, server: ServerProcess, driver: Driver, shared_controller: Controller
) -> None:
    """Once both stand before the save of the same batch; and once the second one runs from beginning to end while the
    first one stands in the middle of a batch. Spark lets only one of them commit a batch, and stops the other."""
    pipeline = Pipeline(tmp_path, server, "two", rows=ROWS, rows_a_batch=800, middle="many")
    middle = at_step(shared_controller, milestones.SENT)
    first = driver.run(pipeline.query())
    standing = middle.reached(first)
    saves = [shared_controller.at(milestones.BEFORE_SAVE, batch=0) for _ in range(2)]
    with Driver(tmp_path / "second", variables=shared_controller.variables) as other:
        second = other.run(pipeline.query())
        ahead = saves[0].reached(second)
        standing.release()
        behind = saves[1].reached(first)
        behind.release()
        ahead.release()
        ended = [_ended(request) for request in (first, second)]
        assert ended.count(None) <= 1, "two drivers came to the end of one checkpoint"
        driver.run(pipeline.query()).wait()
        pipeline.more(ROWS)
        middle = at_step(shared_controller, milestones.SENT)
        first = driver.run(pipeline.query())
        standing = middle.reached(first)
        other.run(pipeline.query()).wait()
        standing.release()
        assert _ended(first) is not None, "the first driver went on from a checkpoint that another one had finished"
    driver.run(pipeline.query()).wait()
    assert pipeline.audit().is_right, pipeline.audit()


def _ended(request: object) -> str | None:
    try:
        request.wait()  # type: ignore[attr-defined]
    except (QueryFailed, DriverEnded) as failed:
        return str(failed)
    return None


@pytest.mark.thorough
def test_producers_that_the_broker_has_forgotten_repeat_nothing(
    tmp_path: Path, forgetful: ServerProcess, driver: Driver, shared_controller: Controller
) -> None:
    """Batch 1 is written and not saved when the query stops, for longer than the broker remembers who wrote it."""
    pipeline = Pipeline(tmp_path, forgetful, "forgotten", rows=ROWS, rows_a_batch=600, middle="many")
    stop = shared_controller.at(milestones.BEFORE_SAVE, batch=1)
    request = driver.run(pipeline.query())
    stop.reached(request).kill()
    request.error()
    pipeline.await_forgotten()
    stop = at_step(shared_controller, milestones.SENT)
    request = driver.run(pipeline.query())
    stop.reached(request).kill()
    request.wait()
    assert pipeline.audit().is_right, pipeline.audit()


@pytest.mark.long
def test_a_worker_that_slept_until_its_producer_was_forgotten_repeats_nothing(
    tmp_path: Path, forgetful: ServerProcess, driver: Driver, shared_controller: Controller
) -> None:
    """Its JVM and daemon are gone. It has half of its rows under way and the rest before it, others have written all
    of them meanwhile, and the broker would take the rest of it for the first records of a new producer."""
    pipeline = Pipeline(tmp_path, forgetful, "slept", rows=ROWS, rows_a_batch=600)
    with Driver(tmp_path / "first", variables=shared_controller.variables, arrow_rows=100) as first:
        stop = at_step(shared_controller, milestones.SENT)
        request = first.run(pipeline.query())
        sleeper = stop.reached(request)
        sleeper.orphan()
        first.kill()
    driver.run(pipeline.query()).wait()
    pipeline.await_forgotten()
    before = pipeline.written()
    sleeper.release()
    await_end(sleeper.pid)
    assert pipeline.written() == before
    assert pipeline.audit().is_right, pipeline.audit()
