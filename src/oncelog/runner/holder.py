"""A cell in this process: one life of its holder after another, until it is left or a person has to look at it."""

import asyncio
import logging
import random
from collections.abc import Callable, Collection
from typing import Final
from uuid import uuid4

from oncelog.client.door import Tasks
from oncelog.clock import monotonic_s
from oncelog.flow.cell import Cell
from oncelog.flow.cell_context import Encode
from oncelog.flow.description import Holder, Limits, Stage
from oncelog.flow.formats import Commit, Tenancy
from oncelog.flow.journal import Journal
from oncelog.flow.messages import Ended, LifeEnd
from oncelog.flow.part_running import PartWork
from oncelog.flow.parts import Part
from oncelog.flow.states import State
from oncelog.runner.cluster import Cluster
from oncelog.runner.life import CLOCK, Life

_log: Final = logging.getLogger("oncelog.flow")

PAUSE_S: Final = 0.05  # before another life; doubled while none comes to a commit
MOST_PAUSE_S: Final = 5.0
LASTING_PAUSE_S: Final = 0.8  # behind five lives without a commit
SAY_EVERY_S: Final = 60.0


class CellHolder:
    def __init__(
        self,
        cluster: Cluster,
        part: Part,
        stage: Stage,
        *,
        run: str,
        code: str,
        tenancy: Tenancy,
        yields_until_ms: int,
        limits: Limits,
        encode: Encode,
        ends: list[int | None],
        ended: Callable[["CellHolder"], None],
    ) -> None:
        self.stage = stage
        self.ends = ends
        self.end: Ended | None = None
        self.lives = 0
        self._cluster = cluster
        self._part = part
        self._run = run
        self._code = code
        self._tenancy = tenancy
        self._yields_until_ms = yields_until_ms
        self._limits = limits
        self._encode = encode
        self._told = ended
        self._life: Life | None = None
        self._cell: Cell | None = None
        self._began_at: list[int] = []
        self._high = [-1] * len(ends)
        self._heard: dict[str, tuple[int, int]] = {}
        self._pause_s = PAUSE_S
        self._said_s = -SAY_EVERY_S
        self._timer: asyncio.TimerHandle | None = None
        self._tasks = Tasks()
        self._leaves = False
        self._why = ""  # a person has to look at it when it has left
        self._is_paused = False
        self.is_cut = False  # where its inputs end is no end of its run: a cell that feeds it has stopped

    @property
    def is_over(self) -> bool:
        return self.end is not None

    @property
    def is_at_its_end(self) -> bool:
        """All is done that its run is to do."""
        is_left = self.end is not None and self.end.how is LifeEnd.LEFT
        return is_left and not self._leaves and not self.is_cut

    @property
    def is_stopped(self) -> bool:
        """A person has to look at it."""
        return self.end is not None and self.end.how is LifeEnd.STOPPED

    @property
    def commit(self) -> Commit | None:
        """The last one that is known to stand in the journal."""
        return None if self._cell is None else self._cell.journal.commit

    @property
    def positions(self) -> dict[tuple[str, int], int]:
        """The committed positions of its inputs."""
        inputs = () if self.commit is None else zip(self.stage.inputs, self.commit.inputs, strict=True)
        return {(mine.topic, self.stage.cell): each.next_offset for mine, each in inputs}

    @property
    def newest(self) -> Tenancy | None:
        """The newest tenancy of all that have taken it over, as far as is known here."""
        last = None if self._cell is None else self._cell.journal.take_over
        return None if last is None else last.tenancy

    @property
    def waits_ms(self) -> int:
        """The time that it may wait for holders with other code."""
        cell = self._cell
        is_waiting = cell is not None and cell.state in (State.AWAITING, State.YIELDING)
        return cell.others_until_ms - CLOCK.now().wall_ms if cell and is_waiting else 0

    @property
    def began_at(self) -> list[int]:
        """The offsets of its inputs at first; nothing before that was read from the journal."""
        if not self._began_at and self._life is not None:
            self._began_at = self._life.began_at
        return self._began_at

    @property
    def state_entries(self) -> int:
        return 0 if self._cell is None else self._cell.count_entries()

    def high_watermark(self, index: int) -> int:
        """The high watermark of an input, as far as it is known; else -1."""
        return self._high[index] if self._life is None else self._life.high_watermark(index)

    def begin(self, copy: Journal | None = None) -> None:
        self._timer = None
        self.lives += 1
        holder = Holder(uuid4().hex, self._tenancy, self._code, self._yields_until_ms, self._run)
        self._cell = Cell(
            self.stage,
            PartWork(self._part, self.stage.cell),
            holder,
            self._limits,
            CLOCK.now(),
            random=random.random,
            copy=copy,
            encode=self._encode,
        )
        self._life = Life(self._cluster, self._cell, self._part, self.ends, self._heard, self._ended)
        self._life.is_paused, self._life.is_cut = self._is_paused, self.is_cut
        self._life.begin()
        if self._leaves:
            self._life.leave()

    def tell_leaders(self) -> None:
        if self._life is not None:
            self._life.tell_leaders()

    def deleted(self, topics: Collection[str]) -> None:
        if self._life is not None:
            self._life.deleted(topics)

    def end_at(self, topic: str, offset: int, *, is_cut: bool) -> None:
        """Inputs that are this topic are read up to here. `is_cut`: more will come when a stopped cell goes on."""
        for index, each in enumerate(self.stage.inputs):
            if each.topic == topic and self.ends[index] is None:
                self.ends[index] = offset
                self.is_cut = self.is_cut or is_cut
                if self._life is not None:
                    self._life.is_cut = self.is_cut
                    self._life.end_at(index, offset)

    def journal_ends(self, end_offset: int) -> None:
        if self._life is not None:
            self._life.journal_ends(end_offset)

    def hear(self, topic: str, told: tuple[int, int]) -> None:
        """All cells that write this topic have said it, for the partition of this one: behind an offset comes nothing
        older than a time."""
        self._heard[topic] = told
        if self._life is not None:
            self._life.wake()

    def pause(self, *, is_paused: bool) -> None:
        """It stays at work with what it has in hand, commits it, and takes no more input until it goes on."""
        self._is_paused = is_paused
        if self._life is not None:
            self._life.pause(is_paused=is_paused)

    def leave(self, why: str = "") -> None:
        """Commit what is done, and say goodbye. `why`: it cannot go on, and a person has to look at it."""
        self._leaves, self._why = True, self._why or why
        if self._life is not None:
            self._life.leave()
        elif self.end is None and self._timer is not None:
            self._timer.cancel()
            self._finish(Ended(LifeEnd.LEFT, ""))  # nothing is in its hands

    async def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._life is not None:
            await self._life.close()
        await self._tasks.close()

    def _ended(self, life: Life, ended: Ended) -> None:
        cell = life.cell
        self._began_at = self._began_at or life.began_at
        self._high = [life.high_watermark(index) for index in range(len(self.ends))]
        self._life = None
        self._tasks.begin(life.close())
        if ended.how is not LifeEnd.AGAIN:
            self._finish(ended)
            return
        if cell.number > 0 and cell.journal.commit is not None and cell.journal.commit.nonce == cell.holder.nonce:
            self._pause_s = PAUSE_S
        self._say_why(ended.why)
        self._timer = asyncio.get_running_loop().call_later(self._pause_s, self.begin, cell.copy)
        self._pause_s = min(2 * self._pause_s, MOST_PAUSE_S)

    def _say_why(self, why: str) -> None:
        """A person hears of what lasts, and once a minute."""
        lasts = self._pause_s >= LASTING_PAUSE_S and monotonic_s() >= self._said_s + SAY_EVERY_S
        if lasts:
            self._said_s = monotonic_s()
        title = self.stage.title
        level = logging.WARNING if lasts else logging.INFO
        _log.log(level, "%s begins again: %s", title, why.removeprefix(f"{title}: "))

    def _finish(self, ended: Ended) -> None:
        self.end = Ended(LifeEnd.STOPPED, self._why) if self._why and ended.how is LifeEnd.LEFT else ended
        self._told(self)
