"""A flow in several processes, which share its cells as members of a group: each cell is a partition of its journal.

The group says who is to hold what; that nobody else does is the journals' matter, as everywhere. At each rebalance a
member commits what it has in hand, says goodbye, and begins with what it is given then.
"""

import asyncio
import logging
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

from oncelog.client import KafkaError, KafkaException
from oncelog.client.door import CONSUMER, Group, consumer_settings, for_role
from oncelog.flow.errors import FlowFailed, FlowRefused
from oncelog.flow.formats import Tenancy, Unreadable
from oncelog.flow.program import Program
from oncelog.runner.engine import OUTRANKED, Engine
from oncelog.runner.life import CLOCK
from oncelog.runner.run_watching import Wake, WatchingEngine, failures
from oncelog.runner.share import Share
from oncelog.slots import AnyPlace

_log: Final = logging.getLogger("oncelog.flow")

PROTOCOL_TYPE: Final = "oncelog.flow"  # so that no consumer joins by mistake
# Ranges: the cells of one number of all stages come to one member, whose outputs then have a short way.
STRATEGY: Final = "range"
POLL_EVERY_S: Final = 1.0
LEAVES_S: Final = 3.0
AGAIN_S: Final = 1.0  # where clocks differ, a cell may have been held by a process whose clock is ahead


class SharingEngine(WatchingEngine):
    """The listener of its group, too."""

    def __init__(self, program: Program, properties: Mapping[str, Any], run_id: str | None, *, until_end: bool) -> None:
        super().__init__(program, properties, run_id, until_end=until_end)
        self._stages = {stage.journal: stage.name for stage in self.layout.stages}
        self._wake: Wake
        self._group: Group | None = None
        self._held: frozenset[AnyPlace] = frozenset()
        self._engine: Engine | None = None
        self._changing = asyncio.Lock()  # what it holds: one change ends before the next

    # --- its life

    async def begin(self, wake: Wake) -> None:
        self._wake = wake
        if not await self.begin_watching(wake):
            return
        given = {
            **self._properties,
            "group.id": self.layout.register,
            "group.protocol": "classic",  # whatever its consumers speak: the members of this group share out
            "group.protocol.type": PROTOCOL_TYPE,
            "partition.assignment.strategy": STRATEGY,
        }
        self._group = Group(consumer_settings(for_role(given, CONSUMER)), self._watch.brokers, self)
        self._group.subscribe(self._stages)
        self._tasks.begin(self._poll())

    async def _poll(self) -> None:
        assert self._group is not None
        while True:
            self._group.polled()
            if self._until_end and self._watch.are_all_at_their_end:
                break
            await asyncio.sleep(POLL_EVERY_S)
        self.done.set()

    def stop(self) -> None:
        self.done.set()

    async def close(self) -> None:
        try:
            await self._tasks.close()
            if self._group is not None:
                with suppress(TimeoutError):  # a broker that hangs gives its cells to others when the session is over
                    async with asyncio.timeout(LEAVES_S):
                        await self._group.leave()
            await self._let_go()
            await self.finish(is_complete=self._watch.are_all_at_their_end)
        finally:
            await self.close_watch()
        if self.failure is not None:
            raise self.failure

    @property
    def failure(self) -> FlowFailed | None:
        """The failures so far, also of cells that it still holds beside others."""
        of_cells = None if self._engine is None else self._engine.failure
        return failures(super().failure, None if OUTRANKED in str(of_cells) else of_cells)

    # --- what the group says

    async def revoked(self, partitions: frozenset[AnyPlace], *, is_lost: bool) -> None:
        async with self._changing:
            self._held -= partitions
            await self._let_go()

    async def assigned(self, added: frozenset[AnyPlace]) -> None:
        async with self._changing:
            await self._let_go()
            self._held |= added
            if self._held:
                await self._hold()

    def failed(self, error: KafkaError) -> None:
        """A callback that failed, too: who holds nothing and stays a member keeps cells from the others."""
        if error.fatal() or error.code() == KafkaError._APPLICATION:
            self._failures.append(f"flow {self.layout.flow}: its group cannot go on: {error.str()}")
            self.done.set()
        else:
            _log.warning("flow %s: %s", self.layout.flow, error.str())

    async def _hold(self, above_ms: int = 0) -> None:
        """`above_ms`: the start of a process that held some of them, whose clock may be ahead."""
        cells: dict[str, list[int]] = {}
        for journal, cell in sorted(self._held):
            cells.setdefault(self._stages[journal], []).append(cell)
        # A later assignment has a later time.
        tenancy = Tenancy(max(CLOCK.now().wall_ms, above_ms + 1), 0)
        share = Share(cells, tenancy, began=self.began)
        engine = Engine(self._program, self._properties, self.agreed.run_id, until_end=self._until_end, share=share)
        await engine.begin(self._wake)
        self._engine = engine
        self._tasks.begin(self._look_at(engine))

    async def _look_at(self, engine: Engine) -> None:
        """It ends by itself where its cells are at their end, or cannot go on."""
        await engine.done.wait()
        if self._engine is not engine:
            return
        failure = engine.failure
        if failure is None:
            while self._engine is engine and not engine.goes_on:
                await asyncio.sleep(POLL_EVERY_S)
            async with self._changing:
                await self._take_again(engine)
            return
        if OUTRANKED in str(failure):
            await asyncio.sleep(AGAIN_S)
            async with self._changing:
                await self._take_again(engine)
            return
        self._failures.append(str(failure))
        self.done.set()

    async def _take_again(self, engine: Engine) -> None:
        """Take again the cells that were taken from it, or that go on, unless the group has given it others since."""
        if self._engine is not engine:
            return
        before = engine.outranked_by
        try:
            await self._let_go()
            await self._hold(0 if before is None else before.started_ms)
        except Exception as failure:  # a member that holds nothing keeps its cells from the others
            if not isinstance(failure, FlowRefused | KafkaException | Unreadable):
                _log.exception("flow %s: its cells cannot be taken again", self.layout.flow)
            self._failures.append(str(failure) or repr(failure))
            self.done.set()

    async def _let_go(self) -> None:
        engine, self._engine = self._engine, None
        if engine is None:
            return
        engine.stop()
        await engine.done.wait()
        try:
            await engine.close()
        except FlowFailed as failed:
            if OUTRANKED not in str(failed):
                self._failures.append(str(failed))
