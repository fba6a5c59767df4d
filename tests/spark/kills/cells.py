"""The kill matrix: which process dies at which step. One run of a query goes through many cells, batch after batch.

Every function answers with what was killed where; that each step was reached is what the waiting for it asserts.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from oncelog.spark.sink import milestones
from tests.lives.processes import await_end
from tests.peers.server_process import ServerProcess
from tests.spark.kills.control import Controller, Stop, Visit
from tests.spark.kills.driver import Driver, DriverEnded, QueryFailed, Request
from tests.spark.kills.pipeline import Pipeline

# `python -m tests.spark.kills matrix` runs everything, on both servers; the test command what fits into two minutes.
# A lane claims once, in the first batch of all; so this step comes first.
TASK_STEPS = (
    milestones.CLAIMED,
    milestones.STATE_READ,
    milestones.RESUMED,
    milestones.FIRST_SEND,
    milestones.SENT,
    milestones.INPUT_ENDED,
    milestones.ACKNOWLEDGED,
    milestones.RETURNING,
)
# Rows come to the sink in portions of this size, so that it has a middle.
ARROW_ROWS = 100
DRIVER_STEPS = (milestones.COMMITTING, milestones.BEFORE_SAVE, milestones.SAVED, milestones.COMMITTED)

EVERY_STEP = (*TASK_STEPS, *DRIVER_STEPS)


@dataclass(frozen=True, slots=True)
class Cell:
    process: str
    step: str
    batch: int

    @classmethod
    def of(cls, process: str, visit: Visit) -> "Cell":
        return cls(process, visit.step, int(visit.facts["batch"]))


def kill_workers(
    pipeline: Pipeline,
    driver: Driver,
    controller: Controller,
    each: Sequence[str] = EVERY_STEP,
    look: Callable[[], object] = lambda: None,
) -> list[Cell]:
    """The Python worker of lane 0 dies at each step of a task, and Spark starts the task again, in the same JVM. At the
    driver's steps it has nothing to do any more. `look` is called while it stands there."""
    cells = []
    stop = at_step(controller, each[0])
    request = driver.run(pipeline.query())
    for following in (*each[1:], None):
        visit = stop.reached(request)
        look()
        cells.append(Cell.of("worker", visit))
        if following is not None:
            stop = at_step(controller, following)
        if visit.step in TASK_STEPS:
            visit.kill()
        else:
            controller.seen(milestones.RETURNING, lane=0, batch=visit.facts["batch"])[-1].kill()
            visit.release()
    request.wait()
    return cells


def kill_savers(pipeline: Pipeline, driver: Driver, controller: Controller) -> list[Cell]:
    """The driver's Python process dies at each step of its commit: the query fails, and is started again."""
    cells = []
    for step in DRIVER_STEPS:
        stop = controller.at(step)
        request = driver.run(pipeline.query())
        visit = stop.reached(request)
        cells.append(Cell.of("driver's Python", visit))
        visit.kill()
        request.error()
    driver.run(pipeline.query()).wait()
    return cells


def kill_servers(
    pipeline: Pipeline,
    driver: Driver,
    controller: Controller,
    server: ServerProcess,
    each: Sequence[str] = EVERY_STEP,
) -> list[Cell]:
    """The server dies while lane 0, or the driver, stands at each step; the query goes on by itself when it is back."""
    cells = []
    stop = at_step(controller, each[0])
    request = driver.run(pipeline.query())
    for following in (*each[1:], None):
        visit = stop.reached(request)
        cells.append(Cell.of("server", visit))
        server.kill()
        server.start()
        if following is not None:
            stop = at_step(controller, following)
        visit.release()
    request.wait()
    return cells


def kill_drivers(
    pipeline: Pipeline,
    driver: Driver,
    controller: Controller,
    each: Iterable[str],
    look: Callable[[], object] = lambda: None,
) -> list[Cell]:
    """The driver's JVM dies at each step. In local mode it runs the tasks too; what stood in the middle of one is left
    an orphan, and goes on sending while the next driver stands in the same batch."""
    cells = []
    orphan: Visit | None = None
    for step in each:
        stop = at_step(controller, step)
        request = _run(driver, pipeline)
        visit = stop.reached(request)
        cells.append(Cell.of("driver", visit))
        look()
        _let_go(orphan)
        orphan = visit if step in TASK_STEPS else None
        if orphan is not None:
            visit.orphan()
        else:
            visit.kill_jvm()
        _is_dead(driver, request)
    _run(driver, pipeline).wait()
    _let_go(orphan)
    return cells


def kill_between_batches(
    pipeline: Pipeline, driver: Driver, controller: Controller, victims: dict[str, Callable[[], None]]
) -> list[str]:
    """Each process dies while the query has nothing to do; then there is more to do."""
    killed = []
    for process, die in victims.items():
        driver.ask("start", name="idle", query=pipeline.query().to_json()).wait()
        driver.ask("process", names=["idle"]).wait()
        die()
        killed.append(process)
        pipeline.more(300)
        if not driver.is_running:
            driver.start()
            driver.ask("start", name="idle", query=pipeline.query().to_json()).wait()
        driver.ask("process", names=["idle"]).wait()
        driver.ask("stop", name="idle").wait()
    return killed


def _run(driver: Driver, pipeline: Pipeline) -> Request:
    if not driver.is_running:
        driver.start()
    return driver.run(pipeline.query())


def _let_go(orphan: Visit | None) -> None:
    if orphan is not None:
        orphan.release()
        await_end(orphan.pid)


def _is_dead(driver: Driver, request: Request) -> None:
    """A driver without a JVM says so or says nothing; either way it is over."""
    try:
        request.wait()
    except (DriverEnded, QueryFailed):
        driver.kill()
        return
    raise AssertionError("a driver without a JVM came to the query's end")


def at_step(controller: Controller, step: str) -> Stop:
    """Lane 0 in its first attempt where a task has this step, else the driver. In the middle of sending: behind the
    second Arrow batch, with more to come."""
    if step == milestones.SENT:
        return controller.at(step, lane=0, attempt=0, when=lambda facts: bool(facts["rows"] > ARROW_ROWS))
    if step in TASK_STEPS:
        return controller.at(step, lane=0, attempt=0)
    return controller.at(step)
