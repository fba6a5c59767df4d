"""The work of a Spark task for a flow: it holds a share of the cells for a while, as any process may.

It reads, sends and commits by itself, so where the driver is gone it goes on until its time is over. Nothing depends
on how it ends: Spark kills Python workers without a word, and what was not committed is done again.
"""

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from oncelog.clock import wall_s
from oncelog.flow.errors import FlowFailed
from oncelog.flow.formats import Tenancy
from oncelog.flow.program import Program
from oncelog.runner.batch_encoding import wait_for_loops
from oncelog.runner.engine import Engine
from oncelog.runner.run import Run
from oncelog.runner.share import JournalEnds, Share

MOST_TRIES: Final = 1_000  # of one task, by Spark
LOOKS_EVERY_S: Final = 0.5
STOPS_TOGETHER_S: Final = 1.0  # cells that one thing has stopped


class Outcome(NamedTuple):
    is_complete: bool  # all its cells are at their end
    stopped: Sequence[tuple[str, int, str]] = ()  # stage, cell, why
    failure: str = ""
    cut_by: str = ""  # why that is no end of the run: a cell before them has stopped


@dataclass(frozen=True)
class Tenant:
    program: Program
    properties: Mapping[str, Any] = field(repr=False)  # a password may be among them
    run_id: str
    until_end: bool
    cells: Mapping[str, Sequence[int]]
    started_ms: int  # the driver
    attempt: int  # of the driver's, to have these cells at work
    until_s: float  # wall clock: then it leaves
    yields_until_s: float
    start: str
    stopped: Sequence[tuple[str, int]] = ()  # of all cells
    tenure_s: float = 0.0  # for as long, where it had to wait for its slot until much of its time was over
    began: JournalEnds = field(default_factory=dict)

    def __call__(self, _: int) -> str:
        outcome, _stages = self.hold(tells_at_once=True)
        return json.dumps(outcome)

    def hold(self, *, tells_at_once: bool = False) -> tuple[Outcome, dict[str, Any]]:
        """The outcome, and how far each stage got meanwhile. `tells_at_once`: it leaves when one of its cells
        cannot go on, so that the driver hears of it, and has the others held by the next one."""
        until_s = self._leaves_s()
        if self.yields_until_s:
            wait_for_loops()  # while the one before it is at work
        tenancy = Tenancy(self.started_ms, self.attempt * MOST_TRIES + _tries())
        yields_until_ms = int(self.yields_until_s * 1000)
        share = Share(self.cells, tenancy, yields_until_ms, stopped=self.stopped, start=self.start, began=self.began)
        engine = Engine(self.program, self.properties, self.run_id, until_end=self.until_end, share=share)
        run = Run(engine)
        with suppress(FlowFailed):  # which is looked at below
            while not run.await_termination(min(LOOKS_EVERY_S, _left_s(until_s))) and _left_s(until_s):
                if tells_at_once and engine.stopped:
                    run.await_termination(min(STOPS_TOGETHER_S, _left_s(until_s)))
                    break
        run.stop()
        failed = run.exception()
        newest, last_of_mine = engine.outranked_by, Tenancy(self.started_ms, (self.attempt + 1) * MOST_TRIES - 1)
        if newest is not None and newest.started_ms == self.started_ms and newest > last_of_mine:
            failed = None  # the driver has begun another one meanwhile, which goes on
        elif failed is not None and not engine.stopped and (newest is None or newest < last_of_mine):
            # Spark tries again, unless another try of this one is at work already: a success would have it killed.
            raise failed
        last = run.last_progress or {"stages": {}}
        return Outcome(engine.is_complete, engine.stopped, str(failed or ""), engine.cut_by), last["stages"]

    def _leaves_s(self) -> float:
        """The time at which it leaves. On a full cluster tasks wait: one that left as soon as it came would do nothing,
        nor would the next ones."""
        now_s = wall_s()
        return self.until_s if self.until_s - now_s >= self.tenure_s / 2 else now_s + self.tenure_s


def _left_s(until_s: float) -> float:
    return max(0.0, until_s - wall_s())


def _tries() -> int:
    """The number of this try. Of one task Spark may have several, of which the newest is to go on."""
    from pyspark import TaskContext

    context = TaskContext.get()
    return 0 if context is None else min(context.attemptNumber(), MOST_TRIES - 1)
