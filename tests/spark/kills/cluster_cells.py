"""The cells of the kill matrix that local mode hides: executors that die alone, and two attempts of a task at once."""

import os
import signal
from collections.abc import Sequence

from oncelog.chaos.process_tree import parent_of
from oncelog.spark.sink import milestones
from tests.lives.processes import await_end, kill
from tests.spark.cluster import StandaloneCluster
from tests.spark.kills.cells import DRIVER_STEPS, TASK_STEPS, Cell
from tests.spark.kills.control import Controller, Stop, Visit
from tests.spark.kills.driver import QUICK_JVM, Driver, Request
from tests.spark.kills.pipeline import Pipeline

# Rows that pass a gate of the tests leave their process, instead of waiting for 64 KB of them.
UNBUFFERED = {"spark.buffer.size": "1024"}
CALM = {
    "spark.executor.memory": "512m",
    "spark.executor.cores": "1",
    "spark.executor.extraJavaOptions": QUICK_JVM,
    "spark.locality.wait": "0s",
    "spark.task.maxFailures": "8",
    **UNBUFFERED,
}
# A second attempt begins as soon as the other lane of a batch is done. An executor whose host stands still is given up
# within seconds, by its heartbeats alone: `spark.network.timeout` would hurry every question between processes, too.
CONF = {
    **CALM,
    "spark.speculation": "true",
    "spark.speculation.interval": "50ms",
    "spark.speculation.multiplier": "1.05",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.minTaskRuntime": "100ms",
    "spark.executor.heartbeatInterval": "500ms",
    "spark.network.timeoutInterval": "500ms",
    "spark.storage.blockManagerHeartbeatTimeoutMs": "10s",
}


def kill_executors(
    pipeline: Pipeline, driver: Driver, controller: Controller, cluster: StandaloneCluster
) -> list[Cell]:
    """The executor of lane 0 dies at each step of its task. Its Python worker lives on and goes on with the task while
    the next attempt stands at the same step, or goes on from the claim; at the driver's steps all executors die."""
    cells = []
    stop = controller.at(TASK_STEPS[0], lane=0)
    request = driver.run(pipeline.query())
    for following in (*TASK_STEPS[1:], None):
        orphan = stop.reached(request)
        cells.append(Cell.of("executor", orphan))
        # Whoever comes after a claim finds it when it reads the state, and claims nothing itself.
        again = other_attempt(
            controller, orphan, milestones.RESUMED if orphan.step == milestones.CLAIMED else orphan.step
        )
        orphan.orphan()
        successor = again.reached(request)
        orphan.release()
        await_end(orphan.pid)
        stop = controller.at(DRIVER_STEPS[0]) if following is None else _later(controller, following, orphan)
        successor.release()
    for following in (*DRIVER_STEPS[1:], None):
        visit = stop.reached(request)
        cells.append(Cell.of("executor", visit))
        for pid in cluster.executor_pids():
            kill(pid)
            await_end(pid)
        if following is not None:
            stop = controller.at(following)
        visit.release()
    request.wait()
    return cells


def kill_one_of_two(pipeline: Pipeline, driver: Driver, controller: Controller) -> list[Cell]:
    """Two attempts of lane 0 stand at each step of a task at once, on two hosts; one of them dies there, the first and
    the second in turn."""
    cells = []
    stop = controller.at(milestones.STATE_READ, lane=0)
    request = driver.run(pipeline.query())
    for number, following in enumerate((*TASK_STEPS[1:], None)):
        first = stop.reached(request)
        second = other_attempt(controller, first).reached(request)
        assert first.jvm != second.jvm, "two attempts of a task ran in one executor"
        if number == 0:
            first, second = _both_claim(controller, request, first, second)
        cells.append(Cell.of("one of two attempts", first))
        if following is not None:
            stop = _later(controller, following, first)
        dies, lives = (first, second) if number % 2 == 0 else (second, first)
        dies.kill()
        lives.release()
    request.wait()
    return cells


def kill_one_of_two_at(steps: Sequence[str], pipeline: Pipeline, driver: Driver, controller: Controller) -> list[int]:
    """The same at these steps, one after the other, of whatever writes: the batches in which that was."""
    batches = []
    stop = controller.at(steps[0], lane=0)
    request = driver.run(pipeline.query())
    for number, following in enumerate((*steps[1:], None)):
        first = stop.reached(request)
        second = other_attempt(controller, first).reached(request)
        assert first.jvm != second.jvm, "two attempts of a task ran in one executor"
        batches.append(int(first.facts["batch"]))
        if following is not None:
            stop = controller.at(following, lane=0)
        dies, lives = (first, second) if number % 2 == 0 else (second, first)
        dies.kill()
        lives.release()
    request.wait()
    return batches


def _both_claim(controller: Controller, request: Request, first: Visit, second: Visit) -> tuple[Visit, Visit]:
    """Both have read that nobody has claimed the lane, so both do."""
    claims = [controller.at(TASK_STEPS[0], task=visit.facts["task"]) for visit in (first, second)]
    first.release()
    second.release()
    return claims[0].reached(request), claims[1].reached(request)


def late_attempts(pipeline: Pipeline, driver: Driver, controller: Controller) -> list[Cell]:
    """The first attempt of lane 0 stands in the middle of sending while the second one wins; it goes on, and ends, only
    when the driver stands at each step of its commit."""
    cells = []
    stop = controller.at(milestones.SENT, lane=0)
    request = driver.run(pipeline.query())
    for number, step in enumerate(DRIVER_STEPS):
        first = stop.reached(request)
        at_driver = controller.at(step, batch=first.facts["batch"])
        with Deaf(first):
            visit = at_driver.reached(request)
            first.release()
            await_end(first.pid)
        cells.append(Cell("one of two attempts", step, int(first.facts["batch"])))
        if number + 1 < len(DRIVER_STEPS):
            stop = _later(controller, milestones.SENT, first)
        visit.release()
    request.wait()
    return cells


def other_attempt(controller: Controller, visit: Visit, step: str | None = None) -> Stop:
    """Where the same lane of the same batch comes to the same step, or to this one, in another attempt."""
    facts = visit.facts
    return controller.at(
        step or visit.step,
        when=lambda other: (
            (other["batch"], other["lane"]) == (facts["batch"], facts["lane"]) and other["task"] != facts["task"]
        ),
    )


def _later(controller: Controller, step: str, visit: Visit) -> Stop:
    """The same lane at this step, in a batch after the one that goes on now."""
    batch = visit.facts["batch"]
    return controller.at(step, lane=visit.facts["lane"], when=lambda other: bool(other["batch"] > batch))


def in_lockstep(pipeline: Pipeline, driver: Driver, controller: Controller) -> int:
    """Two attempts of lane 0 take turns in one batch, an Arrow batch at a time; how many turns there were."""
    stop = controller.at(milestones.FIRST_SEND, lane=0)
    request = driver.run(pipeline.query())
    first = stop.reached(request)
    turns = [first, other_attempt(controller, first).reached(request)]
    count = 0
    while turns:
        visit = turns.pop(0)
        following = _next_of(controller, visit)
        visit.release()
        reached = following.reached(request)
        if reached.step == milestones.SENT:
            turns.append(reached)
        else:
            reached.release()
        count += 1
    request.wait()
    return count


def _next_of(controller: Controller, visit: Visit) -> Stop:
    """Where this very attempt comes to its next step of sending, or to its end."""
    task = visit.facts["task"]
    return controller.at_any((milestones.SENT, milestones.ACKNOWLEDGED), task=task)


class CutOff:
    """While this lasts a host is cut off: its JVMs stand still, but the Python worker at this step does not have to."""

    def __init__(self, cluster: StandaloneCluster, visit: Visit) -> None:
        worker = parent_of(visit.jvm)
        assert worker in (cluster.worker_pid(0), cluster.worker_pid(1)), (
            "the executor has another parent than its worker"
        )
        self._pids = (worker, visit.jvm)

    def __enter__(self) -> None:
        for pid in self._pids:
            os.kill(pid, signal.SIGSTOP)

    def __exit__(self, *_: object) -> None:
        for pid in self._pids:
            os.kill(pid, signal.SIGCONT)


class Deaf:
    """While this lasts Spark's orders to kill a task's Python worker stay unread: its daemon stands still."""

    def __init__(self, visit: Visit) -> None:
        self._daemon = parent_of(visit.pid)
        assert self._daemon not in (0, 1, visit.jvm), "the worker has no daemon"

    def __enter__(self) -> None:
        os.kill(self._daemon, signal.SIGSTOP)

    def __exit__(self, *_: object) -> None:
        os.kill(self._daemon, signal.SIGCONT)
