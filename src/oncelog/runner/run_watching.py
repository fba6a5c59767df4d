"""A run whose cells are at work elsewhere, or come and go: it agrees on the run, and follows all journals."""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from oncelog.client.door import Tasks
from oncelog.flow.errors import FlowFailed
from oncelog.flow.formats import Tenancy
from oncelog.flow.program import Program
from oncelog.runner.agreeing import Agreed
from oncelog.runner.engine import Engine
from oncelog.runner.layout import Layout
from oncelog.runner.life import CLOCK
from oncelog.runner.progress import Progress
from oncelog.runner.share import JournalEnds, Share

Wake = Callable[[Callable[[], None]], object]


def failures(*found: FlowFailed | str | None) -> FlowFailed | None:
    """All of them as one: what several have met is said once."""
    lines = dict.fromkeys(line for each in found if each for line in str(each).split("\n"))
    return FlowFailed("\n".join(lines)) if lines else None


class WatchingEngine:
    """A `Running`, but for what it has at work."""

    def __init__(self, program: Program, properties: Mapping[str, Any], run_id: str | None, *, until_end: bool) -> None:
        self._program, self._properties, self._until_end = program, dict(properties), until_end
        self._started_ms = CLOCK.now().wall_ms
        share = Share({}, Tenancy(self._started_ms, 0), follows_all=True)
        self._watch = Engine(program, properties, run_id, until_end=until_end, share=share)
        self._tasks = Tasks()
        self._failures: list[str] = []
        self.done: asyncio.Event

    @property
    def layout(self) -> Layout:
        return self._watch.layout

    @property
    def agreed(self) -> Agreed:
        return self._watch.agreed

    @property
    def progress(self) -> Progress:
        return self._watch.progress

    @property
    def began(self) -> JournalEnds:
        return self._watch.began

    @property
    def failure(self) -> FlowFailed | None:
        return failures(self._watch.failure, *self._failures)

    async def begin_watching(self, wake: Wake) -> bool:
        """Whether there is anything to do: a run that is finished is over at once."""
        self.done = asyncio.Event()
        await self._watch.begin(wake)
        if self._watch.done.is_set():
            self.done.set()
        return not self.done.is_set()

    async def close_watch(self) -> None:
        with suppress(FlowFailed):  # which `failure` has
            await self._watch.close()

    async def finish(self, *, is_complete: bool) -> None:
        if self._until_end and is_complete and not self.agreed.is_finished:
            await self._watch.agreement.finish(self.agreed.run_id)
