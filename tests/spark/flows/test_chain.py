"""A share's jobs, one behind the other, where Spark is not needed: each ends when a test says so."""

import asyncio
import logging
import sys
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from oncelog.clock import wall_s
from oncelog.flow.errors import FlowFailed, FlowRefused
from oncelog.flow.formats import Unreadable
from oncelog.flow.program import Program
from oncelog.spark.flows import driving
from oncelog.spark.flows.driving import Cells, Job, SparkEngine
from oncelog.spark.flows.tenant import Outcome
from tests.runner.flows import Billing

HANGS_S = 20.0
DONE = Outcome(True)
OVER = Outcome(False)


@dataclass
class Context:
    """Of Spark: cancelled jobs fail."""

    works: dict[str, "asyncio.Future[Outcome]"] = field(default_factory=dict)
    cancelled: list[str] = field(default_factory=list)

    def cancelJobGroup(self, group: str) -> None:
        self.cancelled.append(group)
        if not self.works[group].done():
            self.works[group].set_result(Outcome(False, failure="a task failed: it was cancelled"))


class Chained(SparkEngine):
    """Its jobs are futures, named by the order in which they begin; the first one's time is over."""

    def __init__(self, program: Program, context: Context, *, left_s: float) -> None:
        super().__init__(program, {}, None, until_end=False, spark=None, tasks=1, tenure_s=60)
        self.context, self.left_s = context, left_s
        self.done = asyncio.Event()
        self.begun = asyncio.Semaphore(0)

    def begin_job(self, number: int, cells: Cells, tenure_s: float, yields_until_s: float = 0.0) -> Job:
        group = f"job {len(self.context.works)}"
        work = self.context.works[group] = asyncio.get_running_loop().create_future()
        until_s = wall_s() + (tenure_s if self.context.works.keys() - {"job 0"} else self.left_s)
        tenant: Any = type("Tenant", (), {"until_s": until_s})()
        self._groups.add(group)
        self.begun.release()
        return Job(work, tenant, group)

    def has_register(self, agreement: Any) -> None:
        self._watch.agreement = agreement


@pytest.fixture
def context(monkeypatch: pytest.MonkeyPatch) -> Context:
    found = Context()
    monkeypatch.setattr(driving, "context_of", lambda spark: found)
    monkeypatch.setattr(driving, "PAUSE_S", 0.0)
    return found


async def chained(context: Context, *, left_s: float) -> tuple[Chained, "asyncio.Task[None]"]:
    engine = Chained(Billing("b", "nowhere:1").flow().program, context, left_s=left_s)
    chain = asyncio.ensure_future(engine.chain(0, engine.shares[0]))
    for _ in range(2):
        await engine.begun.acquire()
    return engine, chain


async def test_a_task_that_hangs_is_cancelled_when_its_successor_is_over(
    context: Context, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "oncelog.flow")
    engine, chain = await chained(context, left_s=-driving.PATIENCE_S)
    context.works["job 1"].set_result(OVER)
    await engine.begun.acquire()
    assert context.cancelled == ["job 0"]
    assert "it hangs, and its job is cancelled" in caplog.text
    context.works["job 2"].set_result(DONE)
    await chain
    assert not engine.spare.locked()


async def test_a_run_of_which_a_task_was_cut_is_not_finished(context: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    """What had stopped may go well when Spark tries its task again."""
    engine = Chained(Billing("b", "nowhere:1").flow().program, context, left_s=HANGS_S)
    chain = asyncio.ensure_future(engine.chain(0, engine.shares[0]))
    await engine.begun.acquire()
    context.works["job 0"].set_result(Outcome(True, cut_by="a cell has stopped"))
    await chain
    finished = []

    async def finish(*, is_complete: bool) -> None:
        finished.append(is_complete)

    async def close_watch() -> None:
        pass  # it was never begun

    monkeypatch.setattr(engine, "finish", finish)
    monkeypatch.setattr(engine, "close_watch", close_watch)
    with pytest.raises(FlowFailed, match="its run is not at its end: a cell has stopped"):
        await engine.close()
    assert finished == [False]


async def waiting_for_the_spare_slot(context: Context) -> tuple[Chained, "asyncio.Task[None]"]:
    """Another share has it."""
    engine = Chained(Billing("b", "nowhere:1").flow().program, context, left_s=driving.EARLY_S / 2)
    await engine.spare.acquire()
    chain = asyncio.ensure_future(engine.chain(0, engine.shares[0]))
    await engine.begun.acquire()
    for _ in range(10):  # as many turns as it could need to begin another task
        await asyncio.sleep(0)
    return engine, chain


async def test_a_share_waits_for_the_spare_slot_while_another_one_has_it(context: Context) -> None:
    engine, chain = await waiting_for_the_spare_slot(context)
    assert list(context.works) == ["job 0"]
    engine.spare.release()
    await engine.begun.acquire()
    assert not context.works["job 0"].done()
    context.works["job 0"].set_result(OVER)
    context.works["job 1"].set_result(DONE)
    await chain
    assert not engine.spare.locked()


async def test_a_share_whose_task_ends_meanwhile_leaves_the_spare_slot_to_others(context: Context) -> None:
    engine, chain = await waiting_for_the_spare_slot(context)
    context.works["job 0"].set_result(DONE)
    await chain
    assert engine.spare.locked()
    engine.spare.release()
    await asyncio.sleep(0)
    assert not engine.spare.locked()


async def test_a_task_whose_successor_fails_early_keeps_its_time(context: Context) -> None:
    engine, chain = await chained(context, left_s=driving.EARLY_S / 2)
    context.works["job 1"].set_result(Outcome(False, failure="a task failed: no memory"))
    for _ in range(10):
        await asyncio.sleep(0)
    assert not context.cancelled
    context.works["job 0"].set_result(OVER)
    await engine.begun.acquire()
    context.works["job 2"].set_result(DONE)
    await chain
    assert not context.cancelled


@pytest.mark.parametrize(
    "refusal", [None, FlowRefused("the register is gone"), Unreadable("something else stands there")]
)
async def test_a_stop_that_the_register_does_not_take_cancels_the_jobs(
    context: Context, monkeypatch: pytest.MonkeyPatch, refusal: Exception | None
) -> None:
    """Brokers hang, or are gone."""
    monkeypatch.setattr(driving, "STOP_S", 0.01)
    engine = Chained(Billing("b", "nowhere:1").flow().program, context, left_s=60)
    job = engine.begin_job(0, engine.shares[0], 60)

    async def said(start: str) -> None:
        if refusal is not None:
            raise refusal
        await asyncio.Event().wait()

    engine.has_register(SimpleNamespace(stop=said))
    engine.stop()
    await asyncio.wait_for(engine.done.wait(), HANGS_S)
    assert context.cancelled == [job.group]


async def test_a_python_of_tasks_that_lacks_a_module_is_soon_given_up_with_what_to_do(context: Context) -> None:
    engine = Chained(Billing("b", "nowhere:1").flow().program, context, left_s=60)

    async def said(start: str) -> None: ...

    engine.has_register(SimpleNamespace(stop=said))
    chain = asyncio.ensure_future(engine.chain(0, engine.shares[0]))
    for number in range(driving.MOST_OF_A_LACK):
        await engine.begun.acquire()
        failure = "a task failed: ImportError: oncelog.flow needs msgspec, which is not installed"
        context.works[f"job {number}"].set_result(Outcome(False, failure=failure))
    await asyncio.wait_for(chain, HANGS_S)
    await asyncio.wait_for(engine.done.wait(), HANGS_S)
    assert len(context.works) == driving.MOST_OF_A_LACK
    assert "needs msgspec, which is not installed. Tasks run a Python that" in str(engine.failure)
    assert f"PYSPARK_PYTHON={sys.executable}" in str(engine.failure)


async def test_a_stop_comes_to_its_end_where_sparks_jvm_has_ended(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where all processes of a group are told to end."""

    def refused(group: str) -> None:
        raise ConnectionRefusedError(111, "Connection refused")

    monkeypatch.setattr(driving, "STOP_S", 0.01)
    monkeypatch.setattr(context, "cancelJobGroup", refused)
    engine = Chained(Billing("b", "nowhere:1").flow().program, context, left_s=60)
    engine.begin_job(0, engine.shares[0], 60)

    async def hangs(start: str) -> None:
        await asyncio.Event().wait()

    engine.has_register(SimpleNamespace(stop=hangs))
    engine.stop()
    await asyncio.wait_for(engine.done.wait(), HANGS_S)
