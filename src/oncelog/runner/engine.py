"""All cells of a flow on one loop: begun, ended where their input ends, left when somebody asks for it."""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from oncelog.client import KafkaException
from oncelog.client.door import Brokers, Tasks, ToCommit, commit_to_group, end_offsets
from oncelog.clock import monotonic_s
from oncelog.flow.description import Limits
from oncelog.flow.errors import FlowFailed, FlowRefused
from oncelog.flow.formats import Tenancy, Unreadable
from oncelog.flow.messages import LifeEnd
from oncelog.flow.program import Program
from oncelog.runner import topics
from oncelog.runner.agreeing import REGISTER_REMEDY, Agreed, Agreement, check_run_id
from oncelog.runner.batch_encoding import Encoding
from oncelog.runner.cluster import Cluster, check_properties
from oncelog.runner.elsewhere import CellElsewhere
from oncelog.runner.gone import GONE_S, missing
from oncelog.runner.holder import CellHolder
from oncelog.runner.layout import Layout, StageLayout, TopicIds
from oncelog.runner.life import CLOCK
from oncelog.runner.progress import Progress
from oncelog.runner.share import JournalEnds, Share
from oncelog.runner.told_once import ToldOnce
from oncelog.runner.unread import Known, Unread, unread

if TYPE_CHECKING:
    from oncelog.runner.storing.hours import Hours

_log: Final = logging.getLogger("oncelog.flow")

STOP_S: Final = 2.5  # for commits and goodbyes; what is not done by then, the next holder finds in the log
ENDS_S: Final = 2.9  # for all of it, with positions told to groups: brokers may be gone, or hang
LOOKS_EVERY_S: Final = 1.0
JOURNALS_EVERY_S: Final = 5.0
GROUPS_EVERY_S: Final = 5.0
TIME_EVERY_S: Final = 0.1
OUTRANKED: Final = "was taken over by a run that started later"
STOP_SEEN_S: Final = 0.2


class Engine:
    """Made in any thread; all else happens on the loop that `begin` runs on."""

    def __init__(
        self,
        program: Program,
        properties: Mapping[str, Any],
        run_id: str | None,
        *,
        until_end: bool,
        share: Share | None = None,
    ) -> None:
        check_properties(properties)
        check_run_id(program.name, run_id)
        self._share = share
        self.layout = Layout(program)
        if until_end:
            self.layout.check_ends()
        self._properties = dict(properties)
        self._run_id = run_id
        self._until_end = until_end
        self._holders: dict[str, list[CellHolder]] = {}
        self._elsewhere: dict[str, list[CellElsewhere]] = {}
        self._tasks = Tasks()
        self._failures: list[str] = []
        self._is_stopping = False
        self._ends_by_s: float | None = None  # by the loop's clock
        self.outranked_by: Tenancy | None = None
        self._committed: dict[str, dict[tuple[str, int], int]] = {}  # to groups, by stage
        self._hours: dict[str, Hours] = {}  # of files, by stage
        self._told_ms: dict[str, int] = {}  # the time, by topic
        self._told = ToldOnce(self.layout)
        self._unread: list[Unread] = []
        self._topics = [*self.layout.partitions, *(stage.journal for stage in self.layout.stages)]
        self._gone_since_s: dict[str, float] = {}
        self._register_id: UUID | None = None
        self.agreed: Agreed
        self.progress = Progress(program.name)
        self.done: asyncio.Event

    async def begin(self, wake: Callable[[Callable[[], None]], object]) -> None:
        """Begin. Afterwards all is as it should be and cells are at work; or FlowRefused is raised."""
        self.done = asyncio.Event()
        self._cluster = Cluster(self._properties, wake, self._learned)
        try:
            self._open_places()
            await self._cluster.start()
            self.agreement = Agreement(self._cluster, self.layout)
            kept = await self.agreement.kept()
            is_part = self._share is not None and any(self._share.cells.values())
            found = await topics.ready(self._cluster, self.layout, kept, self._used, is_part=is_part)
            self.agreed = await self.agreement.begin(self._run_id, found.ids, until_end=self._until_end)
            self.agreement.check_resets(found.ids)
            self._register_id = self.brokers.metadata.topics[self.layout.register].topic_id
        except BaseException:
            await self._cluster.close()
            raise
        self.progress.began(self.agreed.flow_id, self.agreed.run_id)
        if self.agreed.is_finished:
            _log.info("flow %s: run %s is finished already", self.layout.flow, self.agreed.run_id)
            self.done.set()
            return
        begun = found.ids.since(self.agreed.starts)
        ids = {each.name: begun.after(self.agreement.starts(each.name)) for each in self.layout.stages}
        limits = Limits(forget_after_ms=found.forget_after_ms, commit_bytes=found.commit_bytes)
        every = {layout.name: range(layout.cells) for layout in self.layout.stages}
        share = self._share or Share(every, Tenancy(CLOCK.now().wall_ms, 0))
        writing = self._cluster.writing
        encoding = Encoding(writing.compression_type, writing.compression_level)
        for layout in self.layout.stages:
            self._holders[layout.name] = [
                CellHolder(
                    self._cluster,
                    layout.part,
                    layout.stage(self.layout.flow, cell, ids[layout.name], until_end=self._until_end),
                    run=self.agreed.run_id,
                    code=self.layout.code,
                    tenancy=share.tenancy,
                    yields_until_ms=share.yields_until_ms,
                    limits=limits,
                    encode=encoding,
                    ends=self._ends_of(layout, cell),
                    ended=self._ended,
                )
                for cell in share.cells.get(layout.name, ())
            ]
        await self._follow_others(share, ids)
        self._obey()
        for holder in self._every:
            holder.begin()
        self._tasks.begin(self._look_now_and_then())
        self._tasks.begin(self._look_at_topics_now_and_then())
        self._tasks.begin(self._tell_groups_now_and_then())
        self._tasks.begin(self._tell_time_now_and_then())
        self._tasks.begin(self._look_at_the_register(share.start))
        self._tasks.begin(self._look_at_journals_now_and_then())

    async def _follow_others(self, share: Share, ids: Mapping[str, TopicIds]) -> None:
        """The cells of stages whose time or end is asked for, where others hold them."""
        for layout in self.layout.stages:
            feeds = not self.layout.between.isdisjoint(each.name for each in layout.part.sinks)
            if not (feeds or share.follows_all or layout.part.files is not None):
                continue
            cells = [cell for cell in range(layout.cells) if cell not in share.cells.get(layout.name, ())]
            journals = [(layout.journal, cell) for cell in cells]
            found = await self._cluster.patiently(partial(end_offsets, self.brokers, journals))
            self._elsewhere[layout.name] = [
                CellElsewhere(
                    self._cluster,
                    layout.stage(self.layout.flow, cell, ids[layout.name]),
                    self.agreed.run_id,
                    found[layout.journal, cell],
                    began=share.began.get(layout.name, {}).get(cell),
                    is_stopped=(layout.name, cell) in share.stopped,
                )
                for cell in cells
            ]

    def _open_places(self) -> None:
        files = {each.name: each.part.files.url for each in self.layout.stages if each.part.files is not None}
        if files:
            from oncelog.runner.storing.hours import Hours
            from oncelog.runner.storing.place import Unreachable

            try:
                self._cluster.open_places(files.values())
            except Unreachable as why:
                raise FlowRefused(f"flow {self.layout.flow}: {why}") from why
            self._hours = {name: Hours(self._cluster.places[url]) for name, url in files.items()}

    async def _close_hours(self) -> None:
        """Close the hours of files, by what all cells have committed, here and elsewhere."""
        for stage, hours in self._hours.items():
            layout = next(each for each in self.layout.stages if each.name == stage)
            if stage not in self._holders:
                continue
            marks = [-1 if each.commit is None else each.commit.watermark_ms for each in self._cells([layout])]
            if len(marks) == layout.cells and hours.is_due(min(marks)):
                title = f"flow {self.layout.flow}, stage {stage}"
                try:
                    closed = await asyncio.to_thread(hours.close, min(marks))
                except OSError as failure:
                    _log.warning("%s: _SUCCESS cannot be written now: %s", title, failure)
                    continue
                _log.info("%s: complete are %d hours more, %s", title, len(closed), ", ".join(closed[-3:]))

    def _ends_of(self, layout: StageLayout, cell: int) -> list[int | None]:
        known = self.agreed.ends or {}
        return [known[name][cell] if name in known else None for name in layout.inputs]

    @property
    def _used(self) -> set[str]:
        """Topics of users' that cells here read or write."""
        cells = {} if self._share is None else self._share.cells
        at_work = [stage for stage in self.layout.stages if cells.get(stage.name) or not any(cells.values())]
        return {name for stage in at_work for name in (*stage.inputs, *(sink.name for sink in stage.part.sinks))}

    @property
    def _follows_all(self) -> bool:
        return self._share is not None and self._share.follows_all

    @property
    def _shown(self) -> dict[str, list[CellHolder | CellElsewhere]]:
        """The holders whose progress it reports."""
        return {
            stage: [*holders, *(self._elsewhere.get(stage, ()) if self._follows_all else ())]
            for stage, holders in self._holders.items()
        }

    @property
    def _every(self) -> list[CellHolder]:
        return [holder for holders in self._holders.values() for holder in holders]

    # --- its end

    def stop(self) -> None:
        """Commit what is done, and say goodbye; what cannot be within `STOP_S` is left as it is."""
        if self._is_stopping or self.done.is_set():
            return
        self._is_stopping = True
        loop = asyncio.get_running_loop()
        self._ends_by_s = loop.time() + ENDS_S
        for holder in self._every:
            holder.leave()
        loop.call_later(STOP_S, self.done.set)

    async def close(self) -> None:
        """Close it when it is done. Raises FlowFailed where cells stopped of their own accord."""
        try:
            if self._until_end and self._share is None and self.is_complete and not self.agreed.is_finished:
                await self.agreement.finish(self.agreed.run_id)
            self._show_progress()
            await self._tasks.close()
            with suppress(TimeoutError):  # dashboards may lag, and the next run tells them
                async with asyncio.timeout_at(self._ends_by_s or asyncio.get_running_loop().time() + ENDS_S):
                    await self._tell_groups()
            await self._close_hours()
        finally:
            await self._tasks.close()
            for each in (each for every in self._elsewhere.values() for each in every):
                each.close()
            await asyncio.gather(*(holder.close() for holder in self._every))
            await self._cluster.close()
        if self.failure is not None:
            raise self.failure

    @property
    def brokers(self) -> Brokers:
        return self._cluster.brokers

    @property
    def are_all_at_their_end(self) -> bool:
        """Whether all of a run that comes to an end is done: by the cells of all stages, wherever they are held."""
        return self.agreed.is_finished or all(each.is_at_its_end for each in self._cells(self.layout.stages))

    @property
    def cut_by(self) -> str:
        """The reason for which cells here are at the end of what there is and not of their run; or empty."""
        found = [each.why for every in self._elsewhere.values() for each in every if each.why]
        return [*found, "a cell that feeds its own has stopped"][0] if any(each.is_cut for each in self._every) else ""

    @property
    def goes_on(self) -> bool:
        """Whether what a cell here took for its end is none any more: what had stopped before it is at work again."""
        return any(
            each.is_cut and all(other.is_at_its_end or not other.is_over for other in self._before(each))
            for each in self._every
        )

    def _before(self, holder: CellHolder) -> list[CellHolder | CellElsewhere]:
        return [each for mine in holder.stage.inputs for each in self._feeding(mine.topic)]

    @property
    def began(self) -> JournalEnds:
        """The ends of the journals that others write, when this began."""
        return {stage: {each.stage.cell: each.began for each in every} for stage, every in self._elsewhere.items()}

    @property
    def failure(self) -> FlowFailed | None:
        """The cells that have stopped so far without being asked to, and why."""
        return FlowFailed("\n".join(self._failures)) if self._failures else None

    @property
    def stopped(self) -> list[tuple[str, int, str]]:
        """Cells that a person has to look at, and why."""
        ended = [(holder.stage, holder.end) for holder in self._every]
        return [(stage.name, stage.cell, end.why) for stage, end in ended if end and end.how is LifeEnd.STOPPED]

    @property
    def is_complete(self) -> bool:
        every = self._every
        return not self._is_stopping and all(each.end is not None and each.end.how is LifeEnd.LEFT for each in every)

    def _ended(self, holder: CellHolder) -> None:
        ended = holder.end
        assert ended is not None
        if ended.how is LifeEnd.STOPPED:
            self._fail(ended.why)
        elif ended.how is LifeEnd.OUTRANKED:
            self._outranked(holder)
        if self._until_end:
            self._find_ends()
        if all(each.end is not None for each in self._every):
            self.done.set()

    def _fail(self, why: str) -> None:
        """Told once, though it may be true of several cells."""
        if why not in self._failures:
            _log.error("%s", why)
            self._failures.append(why)

    def _outranked(self, holder: CellHolder) -> None:
        """The newest start has the flow; all else ends, so that its cells have one home."""
        if self.outranked_by is None:
            self.outranked_by = holder.newest
            ahead_ms = 0 if holder.newest is None else holder.newest.started_ms - CLOCK.now().wall_ms
            clocks = f" (in {ahead_ms / 1000:.0f} s by this clock: one of the two is wrong)" if ahead_ms > 0 else ""
            self._failures.append(f"{holder.stage.title} {OUTRANKED}{clocks}: a flow runs in one process at a time")
            self.stop()

    def _find_ends(self) -> None:
        """Topics that a flow feeds itself end where the last commits of their feeders say, once these are all over."""
        for topic in self.layout.between:
            feeding = self._feeding(topic)
            if all(each.is_over for each in feeding):
                self._tell_time(topic)
                ends, is_cut = self._written(topic), not all(each.is_at_its_end for each in feeding)
                for each in self._reading(topic):
                    if isinstance(each, CellHolder):
                        each.end_at(topic, ends[each.stage.cell], is_cut=is_cut)

    def _cells(self, stages: Iterable[StageLayout]) -> list[CellHolder | CellElsewhere]:
        names = [stage.name for stage in stages]
        return [each for name in names for each in (*self._holders[name], *self._elsewhere.get(name, ()))]

    def _feeding(self, topic: str) -> list[CellHolder | CellElsewhere]:
        return self._cells(self.layout.feeding(topic))

    def _reading(self, topic: str) -> list[CellHolder | CellElsewhere]:
        return self._cells(stage for stage in self.layout.stages if topic in stage.inputs)

    def _written(self, topic: str) -> list[int]:
        """The end of what is written in each partition, by the last commits of the cells that write it."""
        ends = [0] * self.layout.partitions[topic]
        for holder in self._feeding(topic):
            for each in holder.commit.outputs if holder.commit is not None else ():
                if each.topic == topic:
                    ends[each.partition] = max(ends[each.partition], each.next_offset)
        return ends

    def _tell_time(self, topic: str) -> None:
        """Tell the readers of a topic the time behind which none of its writers sends anything older any more."""
        marks = [-1 if holder.commit is None else holder.commit.watermark_ms for holder in self._feeding(topic)]
        mark_ms = min(marks, default=-1)
        if mark_ms > self._told_ms.get(topic, -1):
            self._told_ms[topic] = mark_ms
            ends = self._written(topic)
            for each in self._reading(topic):
                if isinstance(each, CellHolder):
                    each.hear(topic, (ends[each.stage.cell], mark_ms))

    # --- now and then

    def _learned(self) -> None:
        for holder in self._every:
            holder.tell_leaders()

    async def _look_at_the_register(self, start: str) -> None:
        """Whether all that this start began is to stop, and whether the flow is paused."""
        while True:
            await asyncio.sleep(STOP_SEEN_S if start else LOOKS_EVERY_S)
            try:
                known = await self.agreement.look()
            except KafkaException as failure:
                _log.warning("flow %s: its register cannot be read now: %s", self.layout.flow, failure.error.str())
                continue
            except (FlowRefused, Unreadable) as gone:
                self._fail(f"flow {self.layout.flow}: {gone}. {REGISTER_REMEDY}")
                break
            if start and known.is_stopped(start):
                break
            self._obey()
        self.stop()

    async def _look_at_journals_now_and_then(self) -> None:
        """Whether cells that have nothing to send were taken over."""
        while True:
            await asyncio.sleep(JOURNALS_EVERY_S)
            held = {each.stage.journal: each for each in self._every if not each.is_over}
            try:
                ends = await end_offsets(self.brokers, held)
            except KafkaException:
                continue  # what cannot be reached now is asked again
            for place, end in ends.items():
                held[place].journal_ends(end)

    def _obey(self) -> None:
        is_paused = self.agreement.is_paused
        if is_paused is not self.progress.is_paused:
            _log.info("flow %s %s", self.layout.flow, "is paused" if is_paused else "goes on")
            self.progress.is_paused = is_paused
            for holder in self._every:
                holder.pause(is_paused=is_paused)

    async def _look_now_and_then(self) -> None:
        while True:
            await asyncio.sleep(LOOKS_EVERY_S)
            if self._until_end and self._elsewhere:
                self._find_ends()
            self._told.waits(self._every)
            self._show_progress()
            await self._close_hours()

    def _show_progress(self) -> None:
        found: Counter[tuple[str, int]] = Counter()
        for each in self._unread:
            found.update({(each.of.stage, index): records for index, records in each.by_partition.items()})
        self.progress.look(self._shown, found)

    async def _look_at_topics_now_and_then(self) -> None:
        """Look for deleted topics and, except in a run up to an end, for new partitions."""
        while True:
            await asyncio.sleep(LOOKS_EVERY_S)
            self._cluster.look()  # cells that have nothing to do learn of others' topics here
            try:
                await self._look_for_deleted()
                if not self._until_end:
                    await self._look_for_unread()
            except KafkaException as failure:
                _log.warning("flow %s: its topics cannot be asked now: %s", self.layout.flow, failure.error.str())

    async def _look_for_deleted(self) -> None:
        gone = missing(self._topics, self.brokers.metadata)
        self._gone_since_s = {name: self._gone_since_s.get(name, monotonic_s()) for name in gone}
        if gone:
            await self.brokers.refresh(gone)
            for_long = {name for name, since_s in self._gone_since_s.items() if monotonic_s() - since_s >= GONE_S}
            for holder in self._every:
                holder.deleted(for_long)
        register = self.brokers.metadata.topics.get(self.layout.register)
        if register is not None and register.topic_id not in (None, self._register_id):
            what = f"topic {register.name}, which holds the flow's register, was deleted and made again"
            self._fail(f"flow {self.layout.flow}: {what}. {REGISTER_REMEDY}")
            self.stop()

    async def _look_for_unread(self) -> None:
        inputs = [
            Known(stage.name, name, stage.cells, name in self.layout.between)
            for stage in self.layout.stages
            for name in stage.inputs
        ]
        self._told.more_partitions(self.brokers.metadata)
        self._unread = await unread(self.brokers, inputs)
        for each in self._unread:
            holders, why = self._holders[each.of.stage], each.words(self.layout.flow)
            if each.records and (holders or self._follows_all):
                self._fail(why)
                for holder in holders:
                    holder.leave(why)

    async def _tell_time_now_and_then(self) -> None:
        told = {sink.name for stage in self.layout.stages if stage.tells_time for sink in stage.part.sinks}
        while behind := told & self.layout.between:
            await asyncio.sleep(TIME_EVERY_S)
            for topic in behind:
                self._tell_time(topic)

    async def _tell_groups_now_and_then(self) -> None:
        while True:
            await asyncio.sleep(GROUPS_EVERY_S)
            await self._tell_groups()

    async def _tell_groups(self) -> None:
        """Positions also go to a group for each stage, where dashboards look for lag. Nothing reads them here."""
        for stage, holders in self._holders.items():
            positions = {place: offset for holder in holders for place, offset in holder.positions.items()}
            for each in self._unread if positions else ():
                if each.of.stage == stage:
                    positions |= {(each.of.topic, index): start for index, start in each.starts.items()}
            if not positions or self._committed.get(stage) == positions:
                continue
            group = f"{self.layout.flow}.{stage}"
            offsets = {place: ToCommit(offset) for place, offset in positions.items()}
            try:
                codes = await commit_to_group(self._cluster.brokers, group, offsets)
            except KafkaException as failure:
                _log.info("group %s does not show how far the flow is: %s", group, failure.error.str())
                continue
            if not any(codes.values()):
                self._committed[stage] = positions
