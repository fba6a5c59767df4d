"""The driver of a flow on Spark: a chain of jobs for each share of the cells. Each job is one task, which holds the
share for a while. Where a slot is spare, the next one begins before the end of the one before it, and waits for its
goodbye.
"""

import asyncio
import json
import logging
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Final
from uuid import uuid4

from oncelog.client import KafkaException
from oncelog.clock import monotonic_s, wall_s
from oncelog.flow.errors import FlowRefused
from oncelog.flow.formats import Unreadable
from oncelog.flow.program import Program
from oncelog.runner.engine import OUTRANKED
from oncelog.runner.layout import Layout
from oncelog.runner.run_watching import Wake, WatchingEngine
from oncelog.spark.flows.tenant import Outcome, Tenant
from oncelog.spark.jobs import context_of, is_gone, lines, words_of

_log: Final = logging.getLogger("oncelog.flow")

TENURE_S: Final = 300.0
EARLY_S: Final = 3.0  # a tenant begins before the end of the one before it
PATIENCE_S: Final = 5.0  # with that one's goodbye
STOP_S: Final = 4.0  # for tasks to leave; then their jobs are cancelled
PAUSE_S: Final = 0.2  # before a job that failed is begun again; doubled while none lasts
MOST_PAUSE_S: Final = 5.0
LASTS_S: Final = 10.0
MOST_FAILURES: Final = 20  # in a row
MOST_OF_A_LACK: Final = (
    3  # the same where a task cannot import something: another try brings that on another host alone
)
FAILED: Final = "a task failed: "
LACKS: Final = tuple(FAILED + each for each in ("ImportError", "ModuleNotFoundError"))
POOL: Final = "oncelog"

Cells = Mapping[str, Sequence[int]]


def shared_out(layout: Layout, tasks: int) -> list[dict[str, list[int]]]:
    """The cells in this many parts, each stage spread over all of them."""
    every = [(stage.name, cell) for stage in layout.stages for cell in range(stage.cells)]
    shares: list[dict[str, list[int]]] = [{} for _ in range(max(1, min(tasks, len(every))))]
    for number, (stage, cell) in enumerate(every):
        shares[number % len(shares)].setdefault(stage, []).append(cell)
    return shares


class Job:
    """One tenant of a share."""

    def __init__(self, work: "asyncio.Future[Outcome]", tenant: Tenant, group: str) -> None:
        self.work = work
        self.tenant = tenant
        self.group = group  # its own, by which it is cancelled
        self.began_s = monotonic_s()

    @property
    def left_s(self) -> float:
        return self.tenant.until_s - wall_s()


class SparkEngine(WatchingEngine):
    def __init__(
        self,
        program: Program,
        properties: Mapping[str, Any],
        run_id: str | None,
        *,
        until_end: bool,
        spark: Any,
        tasks: int,
        tenure_s: float,
    ) -> None:
        super().__init__(program, properties, run_id, until_end=until_end)
        self._spark, self._tenure_s = spark, tenure_s
        self.shares = shared_out(self.layout, tasks)
        self._start = uuid4().hex
        self._attempt = 0
        self.spare = asyncio.Semaphore(1)
        self._threads = ThreadPoolExecutor(len(self.shares) + 2, "oncelog-flow-job")  # each waits for a job
        self._groups: set[str] = set()
        self._stopped: set[tuple[str, int]] = set()
        self._complete = 0
        self._cut_by = ""  # why there is more to do, though its tasks have ended well
        self._at_work = len(self.shares)
        self._is_stopping = False

    # --- its life

    async def begin(self, wake: Wake) -> None:
        if await self.begin_watching(wake):
            for number, cells in enumerate(self.shares):
                self._tasks.begin(self.chain(number, cells))

    def stop(self) -> None:
        if not self._is_stopping and not self.done.is_set():
            self._is_stopping = True
            self._tasks.begin(self._stop())

    async def _stop(self) -> None:
        with suppress(TimeoutError, KafkaException, FlowRefused, Unreadable):  # brokers may be gone, or hang
            async with asyncio.timeout(STOP_S):
                await self._watch.agreement.stop(self._start)
                await self.done.wait()
        if not self.done.is_set():
            try:
                self._cancel(*self._groups)
            finally:
                self.done.set()

    def _cancel(self, *groups: str) -> None:
        context = context_of(self._spark)
        try:
            for group in groups if context is not None else ():
                context.cancelJobGroup(group)
        except Exception as error:
            if not is_gone(error):  # and its jobs with it
                raise

    async def close(self) -> None:
        if self._cut_by and self.failure is None:
            self._failures.append(f"flow {self.layout.flow}: its run is not at its end: {self._cut_by}")
        try:
            await self.finish(is_complete=self._complete == len(self.shares) and self.failure is None)
        finally:
            await self._tasks.close()
            self._threads.shutdown(wait=False)
            await self.close_watch()
        if self.failure is not None:
            raise self.failure

    # --- a share

    async def chain(self, number: int, cells: Cells) -> None:
        pause_s, failures = PAUSE_S, 0
        # The first tenures end one after the other, so that one spare slot serves them all.
        tenure_s = self._tenure_s * (number + 1) / len(self.shares)
        job = self.begin_job(number, cells, tenure_s)
        while True:
            following = await self._following(job, number, cells)
            if following is not None:
                await self._outlive(job, following)
            outcome = await job.work
            self._groups.discard(job.group)
            if following is not None:
                self.spare.release()
            for stage, cell, why in outcome.stopped:
                if why not in self._failures:
                    _log.error("%s", why)
                    self._failures.append(why)
                self._stopped.add((stage, cell))
                cells = {name: [each for each in own if (name, each) != (stage, cell)] for name, own in cells.items()}
            if self._is_over(outcome, cells):
                self._complete += outcome.is_complete and not outcome.cut_by
                self._cut_by = self._cut_by or outcome.cut_by
                if following is not None:
                    await following.work
                break
            if outcome.failure and not outcome.stopped:
                has_lasted = monotonic_s() - job.began_s >= LASTS_S
                pause_s, failures = (PAUSE_S, 1) if has_lasted else (min(2 * pause_s, MOST_PAUSE_S), failures + 1)
                if OUTRANKED in outcome.failure or failures >= _most_failures(outcome.failure):
                    self._failures.append(_with_remedy(outcome.failure))
                    self.stop()
                    break
                _log.warning("flow %s: %s; it is begun again", self.layout.flow, outcome.failure)
                await asyncio.sleep(pause_s)
            job = following or self.begin_job(number, cells, self._tenure_s)
        self._at_work -= 1
        if not self._at_work:
            self.done.set()

    def _is_over(self, outcome: Outcome, cells: Cells) -> bool:
        return self._is_stopping or outcome.is_complete or not any(cells.values())

    async def _following(self, job: Job, number: int, cells: Cells) -> Job | None:
        """The next tenant, where this one is about to leave. Where another share has the spare slot, it begins as soon
        as that has no need of it any more, if this one is still there then."""
        await asyncio.wait({job.work}, timeout=max(0.0, job.left_s - EARLY_S))
        spare: asyncio.Future[Any] = asyncio.ensure_future(self.spare.acquire())
        ends: set[asyncio.Future[Any]] = {job.work, spare}
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        finally:
            has_spare = not spare.cancel()
        if job.work.done() or self._is_stopping or not has_spare:
            if has_spare:
                self.spare.release()
            return None
        return self.begin_job(number, cells, self._tenure_s + EARLY_S, yields_until_s=job.tenant.until_s + PATIENCE_S)

    async def _outlive(self, job: Job, following: Job) -> None:
        """A task whose worker hangs does not keep the share from those behind the next one."""
        await asyncio.wait({job.work, following.work}, return_when=asyncio.FIRST_COMPLETED)
        await asyncio.wait({job.work}, timeout=max(0.0, job.left_s + PATIENCE_S))
        if not job.work.done():
            _log.warning(
                "flow %s: a task is %.0f s behind its time, and the one that took its cells has had its own: it hangs, "
                "and its job is cancelled",
                self.layout.flow,
                -job.left_s,
            )
            self._cancel(job.group)

    def begin_job(self, number: int, cells: Cells, tenure_s: float, yields_until_s: float = 0.0) -> Job:
        self._attempt += 1
        tenant = Tenant(
            self._program,
            self._properties,
            self.agreed.run_id,
            self._until_end,
            cells,
            self._started_ms,
            self._attempt,
            wall_s() + tenure_s,
            yields_until_s,
            self._start,
            tuple(self._stopped),
            tenure_s,
            self.began,
        )
        described = ", ".join(f"{stage} {' '.join(map(str, own))}" for stage, own in cells.items() if own)
        group = f"oncelog-{self._start}-{number}-{self._attempt}"
        self._groups.add(group)
        words = f"flow {self.layout.flow}: {described}"
        work = asyncio.get_running_loop().run_in_executor(self._threads, self._run, tenant, group, words)
        return Job(work, tenant, group)

    def _run(self, tenant: Tenant, group: str, described: str) -> Outcome:
        """Run the task in a thread of its own, until it has ended."""
        try:
            context = context_of(self._spark)
            if context is not None:
                context.setJobGroup(group, described)
                context.setLocalProperty("spark.scheduler.pool", POOL)
            (line,) = lines(self._spark, 1, tenant)
        except Exception as error:
            if is_gone(error):
                return Outcome(False, failure=f"Spark's JVM has ended: {error}")
            return Outcome(False, failure=FAILED + words_of(str(error)))
        is_complete, stopped, failure, cut_by = json.loads(line)
        return Outcome(is_complete, [(stage, cell, why) for stage, cell, why in stopped], failure, cut_by)


def _most_failures(failure: str) -> int:
    return MOST_OF_A_LACK if failure.startswith(LACKS) else MOST_FAILURES


def _with_remedy(failure: str) -> str:
    if not failure.startswith(LACKS):
        return failure
    return (
        f"{failure}. Tasks run a Python that has not all that this program needs: make the session with "
        f"`oncelog.spark.session()`, or set PYSPARK_PYTHON={sys.executable} before it is made; on other machines, the "
        "Python that is there"
    )


def slots_for(spark: Any, flow: str) -> int:
    """The tasks that a flow may have at a time: one slot stays free for others, and for tenants that begin early."""
    context = context_of(spark)
    slots = 2 if context is None else int(context.defaultParallelism)
    if slots < 2:
        raise FlowRefused(
            f"flow {flow}: the session has one slot, and a flow leaves one free for other jobs. Start it with two or "
            "more (`local[2]`, `spark.cores.max`), or run the flow without Spark"
        )
    return slots - 1
