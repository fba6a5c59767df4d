"""The agreement of a process that starts a flow with all others, in the flow's register."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final
from uuid import uuid4

from oncelog.arguments import check_text
from oncelog.client.door import RegisterKind, TopicKeeper, end_offsets, topic_keeper
from oncelog.flow.errors import FlowRefused
from oncelog.flow.parts import EARLIEST, LATEST
from oncelog.flow.register import (
    Cells,
    Finished,
    FlowEntry,
    FlowParts,
    FlowRegister,
    Order,
    Run,
    Start,
    Stopped,
    encoded,
)
from oncelog.runner.cluster import Cluster
from oncelog.runner.layout import MOST_LETTERS, Layout, StageLayout, TopicIds, named
from oncelog.runner.unread import to_read_all

PATIENCE_MS: Final = 60_000
REGISTER_REMEDY: Final = (
    "Start the flow again: the register is made anew, and the journals have all but which runs were finished"
)
KIND: Final = RegisterKind(
    what="the flow's register",
    refused=FlowRefused,
    missing=FlowRefused,
    config={"segment.bytes": str(32 << 20), "delete.retention.ms": "3600000"},
    too_large="the flow has too many parts, or its inputs too many partitions",
    cut="Which flow has this name, and with how many cells, is not known any more. Give the flow another name",
)


def check_run_id(flow: str, run_id: object) -> None:
    """Refuse a run_id that is no short text: it could never be read in the register again."""
    if run_id is None:
        return
    check_text(f"flow {flow}: run_id", run_id, "2024-05-01")
    if len(f"{run_id}") > MOST_LETTERS:
        raise ValueError(f"flow {flow}: its run_id has {len(f'{run_id}')} letters, and {MOST_LETTERS} are the most")


@dataclass(frozen=True)
class Agreed:
    flow_id: str
    run_id: str
    ends: dict[str, list[int]] | None  # of a run that comes to an end, for inputs that the flow does not feed itself
    is_finished: bool
    starts: dict[str, list[int]]  # of inputs that are read from later on than they begin


class Agreement:
    def __init__(self, cluster: Cluster, layout: Layout) -> None:
        self._cluster = cluster
        self._layout = layout
        # An answer that never comes is waited for that long by itself; then there is still time to ask again.
        patience_ms = cluster.writing.socket_timeout_ms + PATIENCE_MS
        self._topic: TopicKeeper[FlowRegister] = topic_keeper(
            cluster.brokers, layout.register, KIND, FlowRegister, patience_ms
        )
        self._known = FlowRegister()

    async def kept(self) -> set[str]:
        """Journals that must be there: they are made before the register knows of their cells, and a reset removes
        them."""
        if await self._topic.exists():
            self._known = await self._topic.read(self._known)
        begun = {each.stage for each in self._known.stages} - self._known.resets.keys()
        return {stage.journal for stage in self._layout.stages if stage.name in begun}

    async def begin(self, run_id: str | None, ids: TopicIds, *, until_end: bool) -> Agreed:
        if not await self._topic.exists():
            await self._topic.create()
        await self._topic.check_config()
        self._known = await self._topic.read()
        flow_id = await self._agree_on_the_flow(ids)
        self._check_journals(ids)
        run, nonce = run_id or uuid4().hex, uuid4().hex
        stands = self._known.run(run)
        if stands is None:
            ends = await self._offsets(self._layout.until_ms) if until_end else None
            starts = None if self._layout.since_ms is None else await self._offsets(self._layout.since_ms)
            entry = Run(
                nonce=nonce,
                run=run,
                code=self._layout.code,
                ends=ends,
                starts=starts,
                since_ms=self._layout.since_ms,
                until_ms=self._layout.until_ms,
                journals={stage.name: ids.id_of(stage.journal) for stage in self._layout.stages},
            )
            await self._say(entry, self._known.outdated)
            stands = self._known.run(run)
            assert stands is not None
        if (stands.since_ms, stands.until_ms) != (self._layout.since_ms, self._layout.until_ms):
            raise FlowRefused(
                f"flow {self._layout.flow}: run {run} was begun for the times {_times(stands.since_ms)} to "
                f"{_times(stands.until_ms)}, and goes on so. Give this one another name"
            )
        if run_id is not None and (stands.ends is not None) != until_end:
            kind = 'with until="end"' if stands.ends is not None else "without an end"
            raise FlowRefused(
                f"flow {self._layout.flow}: run {run_id} was begun {kind}, and goes on so. Give this one another run_id"
            )
        return Agreed(flow_id, run, stands.ends, self._known.is_finished(run), stands.starts or {})

    async def finish(self, run_id: str) -> None:
        await self._say(Finished(nonce=uuid4().hex, run=run_id))

    async def stop(self, start: str) -> None:
        await self._say(Stopped(nonce=uuid4().hex, start=start))

    async def look(self) -> FlowRegister:
        self._known = await self._topic.read(self._known)
        return self._known

    def _check_journals(self, ids: TopicIds) -> None:
        """Begun anew, a stage would fill its slots again behind those that stand there."""
        flow = self._layout.flow
        for stage in self._layout.stages:
            then, now = self._known.journals.get(stage.name), ids.id_of(stage.journal)
            if then and now and then != now:
                raise FlowRefused(
                    f"flow {flow}: its journal {stage.journal} was deleted and made again since the last run ({then} "
                    f"is {now} now), and with it went what was read, written and kept as state. Begun anew, the flow "
                    f"writes all of its outputs again: where that is meant, say {self._reset_command} first"
                )

    def check_resets(self, ids: TopicIds) -> None:
        """Refuse a reset that is half done: its stages would not begin where they are to."""
        for stage in self._layout.stages:
            reset = self._known.resets.get(stage.name)
            if reset is not None and ids.id_of(stage.journal) == reset.journals[stage.name] != "":
                raise FlowRefused(
                    f"flow {self._layout.flow}, stage {stage.name}: a reset was begun and has not come to its end. "
                    f"Give it again: {self._reset_command}"
                )

    @property
    def _reset_command(self) -> str:
        return self._cluster.command("flow reset", self._layout.flow)

    def starts(self, stage: str) -> Mapping[str, Start]:
        return self._known.starts(stage)

    @property
    def is_paused(self) -> bool:
        """Whether the flow was paused when it was last looked at."""
        return self._known.order is Order.PAUSE

    async def _agree_on_the_flow(self, ids: TopicIds) -> str:
        layout = self._layout
        if self._known.flow_parts is None:
            await self._say(FlowParts(nonce=uuid4().hex, parts=layout.parts))
        stands = self._known.flow_parts
        assert stands is not None
        check_is_this_flow(layout, self._known)
        for stage in layout.stages:
            if self._known.cells(stage.name) is None:
                starts = await self._starts_of(stage, ids)
                await self._say(Cells(nonce=uuid4().hex, stage=stage.name, cells=stage.cells, starts=starts))
        check_is_this_flow(layout, self._known)
        return stands.nonce

    async def _starts_of(self, stage: StageLayout, ids: TopicIds) -> dict[str, Start]:
        """The offsets at which inputs are now that are read from their end on, or from a time."""
        found = {}
        for branch in stage.part.inputs:
            if branch.start != EARLIEST:
                name = branch.source.name
                offsets = await self._offsets(None if branch.start == LATEST else int(branch.start), [name])
                found[name] = Start(ids.id_of(name), offsets[name])
        return found

    async def _say(self, entry: FlowEntry, removed: Collection[bytes] = ()) -> None:
        """Whether it counts is seen in what was read afterwards."""
        self._known = await self._topic.append(self._known, [encoded(entry), *((key, None) for key in removed)])

    async def _offsets(self, time_ms: int | None, names: Collection[str] = ()) -> dict[str, list[int]]:
        """Of these, or of what the flow does not feed itself: where a time is; their ends, as they are now, where none
        is given or nothing is of that time or later."""
        layout = self._layout
        names = names or layout.sources
        places = [(name, index) for name in sorted(names) for index in range(layout.partitions[name])]
        is_committed = self._cluster.reading.isolation_level == "read_committed"
        found = await end_offsets(self._cluster.brokers, places, read_committed=is_committed)
        if time_ms is not None:
            then = await end_offsets(self._cluster.brokers, places, time_ms, read_committed=is_committed)
            found |= {place: offset for place, offset in then.items() if offset >= 0}
        return {name: [found[name, index] for index in range(layout.partitions[name])] for name in names}


def _goes_on(then: Collection[tuple[str, str, str]], now: Collection[tuple[str, str, str]]) -> bool:
    """The same stages read the same, and write what they did and, maybe, to topics that none of them reads."""
    reads_then, reads = ([(stage, source) for stage, source, _ in parts] for parts in (then, now))
    writes_then, writes = ({(stage, sink) for stage, _, sink in parts} for parts in (then, now))
    read = {source for _, source in reads}
    is_same = list(dict.fromkeys(reads_then)) == list(dict.fromkeys(reads))
    return is_same and writes_then <= writes and read.isdisjoint(sink for _, sink in writes - writes_then)


def check_is_this_flow(layout: Layout, register: FlowRegister) -> None:
    """Refuse another flow of this name, as far as its register says already what it is."""
    stands = register.flow_parts
    parts = [] if stands is None else [(stage, source, named(sink)) for stage, source, sink in stands.parts]
    if stands is not None and not _goes_on(parts, layout.parts):
        raise FlowRefused(
            f"the name {layout.flow} belongs to another flow of this cluster: it has the stages "
            f"{_described(parts)}, and this one {_described(layout.parts)}. Give this one another name: outputs "
            "and dead letters may be added to a flow, but its stages and what they read stay"
        )
    for stage in layout.stages:
        cells = register.cells(stage.name)
        if cells not in (None, stage.cells):
            raise FlowRefused(
                f"flow {layout.flow}, stage {stage.name} has {cells} cells, for ever, and its inputs have "
                f"{stage.cells} partitions now. {to_read_all(stage.inputs[0], stage.cells)}"
            )


def _times(time_ms: int | None) -> str:
    return "open" if time_ms is None else str(time_ms)


def _described(parts: list[tuple[str, str, str]]) -> str:
    return ", ".join(f"{stage} ({source} to {sink})" for stage, source, sink in parts)
